package import SyncStore

/// Which batch it is: what the sender writes into the authenticated header, and what the receiver expects there (F80).
package struct BatchContext: Hashable, Sendable, CustomStringConvertible {
  /// What a payload holds.
  package enum Kind: UInt8, Sendable {
    /// Records of a round.
    case records = 1
    /// A range of a blob's bytes.
    case blobRange = 2
    /// What a blob is made of.
    case recipe = 3

    /// Bytes of a payload of this kind, inflated.
    package var maximumBytes: Int {
      switch self {
      case .records: Limits.batchBytes
      case .blobRange: Limits.blobRangeBytes
      case .recipe: Limits.controlFrameBytes / 2
      }
    }
  }

  /// What the payload holds.
  package let kind: Kind
  /// The store it belongs to.
  package let store: StoreID
  /// The sender's actor.
  package let sender: ActorID
  /// The round's mark; zeros for a blob range and for records that belong to no round.
  package let mark: RoundMark
  /// The number of the batch in its round, from 0; for a blob range its first byte's offset in the blob.
  package let index: UInt64

  /// The batch of records number `index` (from 0) in the round `mark` of `sender`.
  package static func records(
    store: StoreID, sender: ActorID, mark: RoundMark, index: UInt64
  ) -> BatchContext {
    BatchContext(kind: .records, store: store, sender: sender, mark: mark, index: index)
  }

  /// The records of `sender` for keys that differ, in the comparison number `index` (from 0) of a session. They belong to no
  /// round: no round has this mark.
  package static func differing(store: StoreID, sender: ActorID, index: UInt64) -> BatchContext {
    BatchContext(kind: .records, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: index)
  }

  /// The range of a blob that starts at byte `offset`, from `sender`. That it is a range of the right blob is known
  /// when the whole blob was hashed (F85).
  package static func blobRange(store: StoreID, sender: ActorID, offset: UInt64) -> BatchContext {
    BatchContext(
      kind: .blobRange, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: offset)
  }

  /// What a blob is made of from byte `offset` on, from `sender`.
  package static func recipe(store: StoreID, sender: ActorID, offset: UInt64) -> BatchContext {
    BatchContext(
      kind: .recipe, store: store, sender: sender, mark: RoundMark(high: 0, low: 0), index: offset)
  }

  /// For messages.
  package var description: String {
    switch kind {
    case .records: "batch \(index) of round \(mark) from \(sender)"
    case .blobRange: "blob range at \(index) from \(sender)"
    case .recipe: "recipe from \(index) on from \(sender)"
    }
  }
}
