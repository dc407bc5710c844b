/// A write of a key, as it stands in the journal: made by this process, by another one, or received from a peer.
public struct Change: Sendable {
  /// What became of the key.
  public enum Kind: Hashable, Sendable {
    /// It got a value.
    case put
    /// It lost it.
    case delete
  }

  /// The key.
  public let key: Key
  /// What became of it.
  public let kind: Kind
  /// Its place in this copy's journal: who goes on from there gets what comes behind it.
  public internal(set) var position: ChangePosition
  /// When it was written, by whatever copy.
  public let stamp: Stamp
  /// Which write it is: who wrote it, and the how-manieth of his it is.
  public let dot: Dot
  /// The type of the value.
  public let type: ValueType
  /// When the value expires, in milliseconds since 1970. That it does is no change of its own.
  public let deadline: UInt64?
  /// Is it the last one of its transaction, as far as its changes are asked for? A write by itself is a transaction.
  public internal(set) var endsTransaction = false

  let content: Record.Content
  let store: Store

  /// The actor, the incarnation of a copy, that wrote it.
  public var actor: ActorID { dot.actor }

  /// Bytes of the value; 0 for a delete.
  public var size: UInt64 {
    switch content {
    case .tombstone: 0
    case .inline(let bytes): UInt64(bytes.count)
    case .blob(let blob): blob.size
    }
  }

  /// Where the value is, if it lies in the blob tier.
  public var blob: BlobReference? {
    if case .blob(let blob) = content { return blob }
    return nil
  }

  /// The value that was written, whatever the key holds by now; nil for a delete. Blocks if the value lies in
  /// the blob tier; see `AsyncStore.value(of:)`.
  ///
  /// - Throws: `.blobUnavailable` if the bytes of a value in the blob tier are not here yet, or not any more.
  public func value() throws(StoreError) -> Value? {
    switch content {
    case .tombstone: return nil
    case .inline(let bytes): return Value(bytes: bytes, type: type, deadline: deadline)
    case .blob(let blob): return Value(bytes: try store.read(blob), type: type, deadline: deadline)
    }
  }
}

/// A place in the journal of one copy, to go on from: in this process or, kept as text, in a later one.
///
/// It stays valid whatever is compacted, for as long as the copy lives. It says nothing to other copies.
public struct ChangePosition: Hashable, Sendable {
  /// Whose journal; nil for the beginning of any.
  let actor: ActorID?
  /// The position of the last record in front of it; 0 at the beginning.
  let position: UInt64
  /// The stamp of that record, by which it is known again; zero if that is not known.
  let stamp: Stamp
  /// The positions of records in front of it whose time had not come: they are still to be given.
  let pending: [UInt64]

  init(actor: ActorID?, position: UInt64, stamp: Stamp, pending: [UInt64] = []) {
    (self.actor, self.position, self.stamp, self.pending) = (actor, position, stamp, pending)
  }

  /// In front of everything that the journal keeps.
  public static let beginning = ChangePosition(actor: nil, position: 0, stamp: .zero)
}

extension ChangePosition: LosslessStringConvertible {
  /// Text without blanks, which `init(_:)` reads.
  public var description: String {
    let fields = [actor.map { "\($0)" } ?? "", "\(position)", "\(stamp.rawValue)"] + pending.map { "\($0)" }
    return fields.joined(separator: ":")
  }

  /// Nil if the text is not that of a position.
  public init?(_ text: String) {
    let fields = text.split(separator: ":", omittingEmptySubsequences: false)
    guard fields.count >= 3 else { return nil }
    let numbers = fields.dropFirst().compactMap { UInt64($0) }
    let actor = fields[0].isEmpty ? nil : ActorID(fields[0])
    guard numbers.count == fields.count - 1, (actor == nil) == fields[0].isEmpty else { return nil }
    // Without an actor there is the beginning alone.
    guard actor != nil || numbers == [0, 0] else { return nil }
    self.init(
      actor: actor, position: numbers[0], stamp: Stamp(rawValue: numbers[1]), pending: Array(numbers[2...]))
  }
}

extension ChangePosition: Codable {
  /// Reads the text of a position.
  ///
  /// - Throws: `DecodingError.dataCorrupted` if it is none; what `decoder` throws.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let position = ChangePosition(text) else {
      throw DecodingError.dataCorruptedError(
        in: container, debugDescription: "\"\(text)\" is no position in a journal")
    }
    self = position
  }

  /// Writes its text.
  ///
  /// - Throws: what `encoder` throws.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}
