package import SyncStore

/// Identifies a batch: written into the authenticated header by the sender, checked by the receiver (F80).
package struct BatchContext: Hashable, Sendable, CustomStringConvertible {
  /// The content of a payload.
  package enum Kind: UInt8, Sendable {
    /// Records of a round.
    case records = 1
    /// A range of a blob's bytes.
    case blobRange = 2
    /// The recipe of a blob: its chunks.
    case recipe = 3
    /// An object of a relay other than batches of records and blobs.
    case relayObject = 4
    /// A blob, or a chunk of one, in a relay.
    case relayBlob = 5

    /// Maximum bytes of an inflated payload of this kind.
    package var maximumBytes: Int {
      switch self {
      case .records: Limits.batchBytes
      case .blobRange: Limits.blobRangeBytes
      case .recipe: Limits.controlFrameBytes / 2
      case .relayObject, .relayBlob: Limits.batchBytes
      }
    }
  }

  /// The content of the payload.
  package let kind: Kind
  /// The store it belongs to.
  package let store: StoreID
  /// The sender's actor.
  package let sender: ActorID
  /// The round's mark; zeros for a blob range and for records outside a round.
  package let mark: RoundMark
  /// Number of the batch in its round, from 0; for a blob range or recipe, the offset in the blob.
  package let index: UInt64

  /// The batch of records number `index` (from 0) in the round `mark` of `sender`.
  package static func records(
    store: StoreID, sender: ActorID, mark: RoundMark, index: UInt64
  ) -> BatchContext {
    BatchContext(kind: .records, store: store, sender: sender, mark: mark, index: index)
  }

  /// The records of `sender` for differing keys, in comparison number `index` (from 0) of a session.
  ///
  /// They belong to no round; no round has the mark used here.
  package static func differing(store: StoreID, sender: ActorID, index: UInt64) -> BatchContext {
    BatchContext(kind: .records, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: index)
  }

  /// The statement of `sender` about differing keys, in answer number `index` (from 1) of a session.
  ///
  /// It belongs to no round; no round has the mark used here.
  package static func keyStates(store: StoreID, sender: ActorID, index: UInt64) -> BatchContext {
    BatchContext(kind: .records, store: store, sender: sender, mark: RoundMark(high: 0, low: 1), index: index)
  }

  /// The range of a blob that starts at byte `offset`, from `sender`.
  ///
  /// The header does not name the blob: a range of a wrong blob is detected when the whole blob is hashed
  /// (F85).
  package static func blobRange(store: StoreID, sender: ActorID, offset: UInt64) -> BatchContext {
    BatchContext(
      kind: .blobRange, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: offset)
  }

  /// The recipe of a blob from byte `offset` on, from `sender`.
  package static func recipe(store: StoreID, sender: ActorID, offset: UInt64) -> BatchContext {
    BatchContext(
      kind: .recipe, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: offset)
  }

  /// For log and error messages.
  package var description: String {
    switch kind {
    case .records: "batch \(index) of round \(mark) from \(sender)"
    case .blobRange: "blob range at \(index) from \(sender)"
    case .recipe: "recipe from \(index) on from \(sender)"
    case .relayObject: "an object of relay \(sender)"
    case .relayBlob: "a large value in relay \(sender)"
    }
  }
}
