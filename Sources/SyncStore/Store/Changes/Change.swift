/// A write of a key, read from the journal: made by this process, by another one, or received from a peer.
public struct Change: Sendable {
  /// The effect on the key.
  public enum Kind: Hashable, Sendable {
    /// The key got a value.
    case put
    /// The key was deleted.
    case delete
  }

  /// The key.
  public let key: Key
  /// The effect on the key.
  public let kind: Kind
  /// Its position in this copy's journal: resuming from it continues with the next change.
  public internal(set) var position: ChangePosition
  /// Time of the write on the copy that made it.
  public let stamp: Stamp
  /// Identity of the write: its actor and sequence number.
  public let dot: Dot
  /// The type of the value.
  public let type: ValueType
  /// When the value expires, in milliseconds since 1970. The expiry itself is no change.
  public let deadline: UInt64?
  /// Whether it is the last change of its transaction in the requested range. A single write is a
  /// transaction.
  public internal(set) var endsTransaction = false

  let content: Record.Content
  let store: Store

  /// The actor (incarnation of a copy) that wrote it.
  public var actor: ActorID { dot.actor }

  /// Bytes of the value; 0 for a delete.
  public var size: UInt64 {
    switch content {
    case .tombstone: 0
    case .inline(let bytes): UInt64(bytes.count)
    case .blob(let blob): blob.size
    }
  }

  /// The blob reference, if the value is in the blob tier.
  public var blob: BlobReference? {
    if case .blob(let blob) = content { return blob }
    return nil
  }

  /// The value that was written, whatever the key holds now; nil for a delete. Blocks if the value is in the
  /// blob tier: asynchronous code uses `change.run { try $0.value() }` then.
  ///
  /// - Throws: `.blobUnavailable` if the bytes of a value in the blob tier have not arrived yet, or were
  ///   evicted.
  public func value() throws(StoreError) -> Value? {
    switch content {
    case .tombstone: return nil
    case .inline(let bytes): return Value(bytes: bytes, type: type, deadline: deadline)
    case .blob(let blob): return Value(bytes: try store.read(blob), type: type, deadline: deadline)
    }
  }
}

/// A position in the journal of one copy, from which to resume: in this process or, kept as text, in a later
/// one.
///
/// It survives compaction and is valid as long as the copy lives. It means nothing to other copies.
public struct ChangePosition: Hashable, Sendable {
  /// The copy whose journal it is; nil for the beginning of any.
  let actor: ActorID?
  /// Position of the last record before it; 0 at the beginning.
  let position: UInt64
  /// Stamp of that record, which identifies it; zero if unknown.
  let stamp: Stamp
  /// Positions of earlier records that were still parked: they are still to be delivered.
  let pending: [UInt64]

  init(actor: ActorID?, position: UInt64, stamp: Stamp, pending: [UInt64] = []) {
    (self.actor, self.position, self.stamp, self.pending) = (actor, position, stamp, pending)
  }

  /// The beginning of the journal as far as it is kept.
  public static let beginning = ChangePosition(actor: nil, position: 0, stamp: .zero)
}

extension ChangePosition: LosslessStringConvertible {
  /// Text without blanks, readable by `init(_:)`.
  public var description: String {
    let fields = [actor.map { "\($0)" } ?? "", "\(position)", "\(stamp.rawValue)"] + pending.map { "\($0)" }
    return fields.joined(separator: ":")
  }

  /// Nil if the text is no valid position.
  public init?(_ text: String) {
    let fields = text.split(separator: ":", omittingEmptySubsequences: false)
    guard fields.count >= 3 else { return nil }
    let numbers = fields.dropFirst().compactMap { UInt64($0) }
    let actor = fields[0].isEmpty ? nil : ActorID(fields[0])
    guard numbers.count == fields.count - 1, (actor == nil) == fields[0].isEmpty else { return nil }
    // Without an actor, only the beginning is valid.
    guard actor != nil || numbers == [0, 0] else { return nil }
    self.init(
      actor: actor, position: numbers[0], stamp: Stamp(rawValue: numbers[1]), pending: Array(numbers[2...]))
  }
}

extension ChangePosition: Codable {
  /// Decodes the text of a position.
  ///
  /// - Throws: `DecodingError.dataCorrupted` if it is invalid; errors of `decoder`.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let position = ChangePosition(text) else {
      throw DecodingError.dataCorruptedError(
        in: container, debugDescription: "\"\(text)\" is no position in a journal")
    }
    self = position
  }

  /// Encodes the position as text.
  ///
  /// - Throws: errors of `encoder`.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}
