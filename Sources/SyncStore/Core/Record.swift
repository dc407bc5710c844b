/// The writes that a write has replaced, as far as they must be known to tell a conflict from an overwrite.
package struct CausalContext: Hashable, Sendable {
  /// The newest replaced write by another actor, through the author's own overwrites.
  package var base: Dot?
  /// Replaced writes that the author's vector did not cover.
  package var open: [Dot]

  /// Both fields.
  package init(base: Dot? = nil, open: [Dot] = []) { (self.base, self.open) = (base, open) }
}

/// One write, as the journal keeps it and as a peer receives it: the fields, without checksum and location.
package struct Record: Hashable, Sendable {
  /// The record's effect on its key.
  package enum Content: Hashable, Sendable {
    /// The key was deleted.
    case tombstone
    /// The value itself.
    case inline([UInt8])
    /// The value is in the blob tier.
    case blob(BlobReference)
  }

  /// The name of the write.
  package var dot: Dot
  /// Time of the write.
  package var stamp: Stamp
  /// The newest write by another actor that it replaced, through its author's own overwrites.
  package var base: Dot?
  /// Writes that it replaced, directly or indirectly, and that its author's vector did not cover then.
  package var open: [Dot]
  /// When it expires, in milliseconds since 1970.
  package var deadline: UInt64?
  /// The type of the value.
  package var type: ValueType
  /// The key; 1 to `Limits.keyBytes` bytes.
  package var key: [UInt8]
  /// The value, a reference to it, or its absence.
  package var content: Content
  /// Set on all records of a transaction but the last: the next record belongs to the same transaction.
  package var continues: Bool

  /// All fields.
  package init(
    version: Version, context: CausalContext = CausalContext(), deadline: UInt64? = nil,
    type: ValueType = .bytes, key: [UInt8], content: Content, continues: Bool = false
  ) {
    (dot, stamp, base, open) = (version.dot, version.stamp, context.base, context.open)
    (self.deadline, self.type) = (deadline, type)
    (self.key, self.content, self.continues) = (key, content, continues)
  }

  /// The version that decides between this and another record of its key.
  package var version: Version { Version(stamp: stamp, dot: dot) }
  /// True if the record deletes the key.
  package var isTombstone: Bool { content == .tombstone }
  /// True if the key is one of the store's own (members, frontiers), never shown to the user.
  package var isReserved: Bool { ReservedKey.isReserved(key) }
}

/// A reference to a value in the blob tier, by the hash of its content.
public struct BlobReference: Hashable, Sendable {
  /// The SHA-256 of the content.
  public let hash: BlobHash
  /// The number of bytes of the content.
  public let size: UInt64
  /// A few bytes kept in the journal with the reference, at most `Limits.blobMetadataBytes`.
  public let metadata: [UInt8]

  /// A reference to the blob of `size` bytes whose SHA-256 is `hash`.
  public init(hash: BlobHash, size: UInt64, metadata: [UInt8] = []) {
    (self.hash, self.size, self.metadata) = (hash, size, metadata)
  }

  /// Decodes the reference in a record; nil if there are too few bytes.
  init?(recorded bytes: [UInt8]) {
    guard bytes.count >= RecordLayout.blobLength, let hash = BlobHash(bytes: bytes[..<32]) else { return nil }
    let size = bytes[32..<40].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    self.init(hash: hash, size: size, metadata: Array(bytes[40...]))
  }
}

/// The SHA-256 of a blob's content. Its text is 64 lower-case hex digits and nothing else (F83).
public struct BlobHash: Hashable, Comparable, Sendable, CustomStringConvertible {
  // Big-endian words: no allocation, and their order is the order of the bytes.
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

  /// Specialised for the bytes of messages and records: other modules cannot specialise the generic
  /// initialiser.
  package init?(bytes: ArraySlice<UInt8>) { self.init(each: bytes) }

  /// The hash whose bytes are this SHA-256.
  package init(sha256 digest: [UInt8]) {
    guard let hash = BlobHash(each: digest) else { preconditionFailure("a SHA-256 has 32 bytes") }
    self = hash
  }

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

  /// Hashes eight of the bytes: they are as good as random already.
  public func hash(into hasher: inout Hasher) { hasher.combine(first) }

  /// Compares the bytes in order.
  public static func < (left: BlobHash, right: BlobHash) -> Bool {
    (left.first, left.second, left.third, left.fourth) < (
      right.first, right.second, right.third, right.fourth
    )
  }
}

/// Keys that the store reserves for itself: they begin with a zero byte, which no user's key may.
package enum ReservedKey {
  /// The first byte of every such key.
  static let first: UInt8 = 0

  /// True if the key belongs to the store.
  package static func isReserved(_ key: [UInt8]) -> Bool { key.first == first }

  /// Key of a member's record: name, rights, addresses. Replicated like any record.
  package static func member(_ device: DeviceID) -> [UInt8] { [0] + Array("member/".utf8) + device.bytes }
  /// Key of the vector that a member has reached. Replicated like any record.
  package static func frontier(_ device: DeviceID) -> [UInt8] { [0] + Array("frontier/".utf8) + device.bytes }
  /// Common prefix of all frontiers.
  static let frontierPrefix: [UInt8] = [0] + Array("frontier/".utf8)
  /// Key of a tombstone that a copy writes after it retracted writes and all of these are gone: a write that
  /// no other copy has.
  static let restamped: [UInt8] = [0] + Array("restamped".utf8)
  /// Common prefix of all member records.
  package static let memberPrefix: [UInt8] = [0] + Array("member/".utf8)
  /// Key of the name that a member was given after it joined. A record of its own: had the member's record
  /// the name alone, a rename would undo a concurrent change of the right, such as a revocation. Replicated
  /// like any record.
  package static func memberName(_ device: DeviceID) -> [UInt8] { memberNamePrefix + device.bytes }
  /// Common prefix of all names of members.
  package static let memberNamePrefix: [UInt8] = [0] + Array("member-name/".utf8)
  /// Common prefix of member records and of their names.
  package static let membershipPrefix: [UInt8] = [0] + Array("member".utf8)
}
