/// One write, as the journal keeps it and as a peer receives it: the fields, without checksum and place.
package struct Record: Hashable, Sendable {
  /// What the record says of its key.
  package enum Content: Hashable, Sendable {
    /// The key was deleted.
    case tombstone
    /// The value itself.
    case inline([UInt8])
    /// The value lies in the blob tier.
    case blob(BlobReference)
  }

  /// Which write it is.
  package var dot: Dot
  /// When it was made.
  package var stamp: Stamp
  /// The newest write by another actor that it replaced, through its author's own overwrites.
  package var base: Dot?
  /// What it replaced, directly or through what it replaced, that its author's vector did not cover then.
  package var open: [Dot]
  /// When it expires, in milliseconds since 1970.
  package var deadline: UInt64?
  /// The type of the value.
  package var type: ValueType
  /// Whose value it is; 1 to `Limits.keyBytes` bytes.
  package var key: [UInt8]
  /// The value, a reference to it, or its absence.
  package var content: Content
  /// Set on all records of a transaction but the last: what follows belongs to the same transaction.
  package var continues: Bool

  /// All fields.
  package init(
    dot: Dot, stamp: Stamp, base: Dot? = nil, open: [Dot] = [], deadline: UInt64? = nil,
    type: ValueType = .bytes,
    key: [UInt8], content: Content, continues: Bool = false
  ) {
    (self.dot, self.stamp, self.base, self.open, self.deadline) = (dot, stamp, base, open, deadline)
    (self.type, self.key, self.content, self.continues) = (type, key, content, continues)
  }

  /// What decides between it and another record of its key.
  package var version: Version { Version(stamp: stamp, dot: dot) }
  /// Does it say that the key was deleted?
  package var isTombstone: Bool { content == .tombstone }
  /// Is its key one of the store's own (members, frontiers), never shown to the user?
  package var isReserved: Bool { ReservedKey.isReserved(key) }
}

/// A value in the blob tier: named by its content.
public struct BlobReference: Hashable, Sendable {
  /// The SHA-256 of the content.
  public let hash: BlobHash
  /// The number of bytes of the content.
  public let size: UInt64
  /// A few bytes kept in the journal beside the reference, at most `Limits.blobMetadataBytes`.
  public let metadata: [UInt8]

  /// The blob of `size` bytes whose SHA-256 is `hash`.
  public init(hash: BlobHash, size: UInt64, metadata: [UInt8] = []) {
    (self.hash, self.size, self.metadata) = (hash, size, metadata)
  }

  /// The reference that a record holds in these bytes; nil if they are too few.
  init?(recorded bytes: [UInt8]) {
    guard bytes.count >= RecordLayout.blobLength, let hash = BlobHash(bytes: bytes[..<32]) else { return nil }
    let size = bytes[32..<40].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    self.init(hash: hash, size: size, metadata: Array(bytes[40...]))
  }
}

/// The SHA-256 of a blob's content. Its text is 64 lower-case hex digits and nothing else (F83).
public struct BlobHash: Hashable, Comparable, Sendable, CustomStringConvertible {
  // The bytes in their order, eight in each, the first of them highest: no allocation, and their order is that of the numbers.
  private let first, second, third, fourth: UInt64

  /// The 32 bytes.
  package var bytes: [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(32)
    appendBytes(to: &bytes)
    return bytes
  }

  /// Nil unless there are exactly 32 bytes.
  package init?(bytes: some Collection<UInt8>) { self.init(each: bytes) }

  /// The same for what the bytes of messages and records are: other modules cannot specialise the general one.
  package init?(bytes: ArraySlice<UInt8>) { self.init(each: bytes) }

  private init?(each bytes: some Collection<UInt8>) {
    guard bytes.count == 32 else { return nil }
    var iterator = bytes.makeIterator()
    func word() -> UInt64 {
      var word: UInt64 = 0
      for _ in 0..<8 { word = word << 8 | UInt64(iterator.next() ?? 0) }
      return word
    }
    (first, second, third, fourth) = (word(), word(), word(), word())
  }

  /// Appends the 32 bytes.
  func appendBytes(to bytes: inout [UInt8]) {
    func append(_ word: UInt64) {
      for shift in stride(from: 56, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: word >> UInt64(shift)))
      }
    }
    append(first)
    append(second)
    append(third)
    append(fourth)
  }

  /// Nil unless the text is exactly 64 lower-case hex digits.
  public init?(_ text: some StringProtocol) {
    guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }),
      let bytes = Hex.bytes(of: text)
    else { return nil }
    self.init(bytes: bytes)
  }

  /// The 64 lower-case hex digits.
  public var description: String { Hex.string(of: bytes) }

  /// The first eight bytes, lowest first.
  var prefix: UInt64 { first.byteSwapped }

  /// Eight of the bytes: they are as good as random already.
  public func hash(into hasher: inout Hasher) { hasher.combine(first) }

  /// The order of the bytes.
  public static func < (left: BlobHash, right: BlobHash) -> Bool {
    (left.first, left.second, left.third, left.fourth) < (
      right.first, right.second, right.third, right.fourth
    )
  }
}

/// Keys that the store keeps for itself: they begin with a zero byte, which no user's key may.
package enum ReservedKey {
  /// The first byte of every such key.
  static let first: UInt8 = 0

  /// Does the key belong to the store?
  package static func isReserved(_ key: [UInt8]) -> Bool { key.first == first }

  /// What a member is: name, rights, addresses. Replicated like any record.
  package static func member(_ device: DeviceID) -> [UInt8] { [0] + Array("member/".utf8) + device.bytes }
  /// The vector that a member has reached. Replicated like any record.
  package static func frontier(_ device: DeviceID) -> [UInt8] { [0] + Array("frontier/".utf8) + device.bytes }
  /// Before all frontiers.
  static let frontierPrefix: [UInt8] = [0] + Array("frontier/".utf8)
  /// Deleted by who has taken back writes of which all are gone: a write that nobody else has.
  static let restamped: [UInt8] = [0] + Array("restamped".utf8)
  /// Before all member records.
  package static let memberPrefix: [UInt8] = [0] + Array("member/".utf8)
}
