/// Offsets of a record's fields in a segment. `schemas/journal.md` is the byte map; this is its counterpart
/// in code.
enum RecordLayout {
  static let checksum = 0
  static let length = 4
  static let durable = 8
  static let kind = 12
  static let flags = 13
  static let type = 14
  static let actor = 16
  static let keyLength = 18
  static let position = 20
  static let sequence = 24
  static let stamp = 32
  /// Bytes of the fixed part.
  static let fixedLength = 40
  /// Bytes of a dot in the variable part: actor's number, sequence.
  static let dotLength = 10
  /// Bytes of a blob's hash and size.
  static let blobLength = 40
  /// Records begin at multiples of this.
  static let alignment = 8
  /// Bytes of a record that defines an actor's number.
  static let actorDefinitionLength = fixedLength + 16

  /// Kind of a record.
  enum Kind: UInt8 {
    /// An inline value.
    case value = 1
    /// A reference to a value in the blob tier.
    case blob = 2
    /// A delete.
    case tombstone = 3
    /// A key and value of this copy alone.
    case local = 4
    /// Removal of a local key.
    case localRemoval = 5
    /// Assigns an actor its number in this segment. Written twice: one bad byte must not take an actor's
    /// records.
    case actor = 6
    /// Only carries the durable offset.
    case checkpoint = 7
    /// In an encrypted segment, and never encrypted itself: names a key epoch. Written twice, as actors are.
    case epoch = 8
    /// A copy dropped what it held of a key, up to this record's version (rule R8). 9 is an encrypted record.
    case purge = 10
  }

  /// Further properties of a record.
  struct Flags: OptionSet {
    let rawValue: UInt8
    /// The next record belongs to the same transaction.
    static let continues = Flags(rawValue: 1)
    /// A base dot follows the fixed part.
    static let base = Flags(rawValue: 2)
    /// A deadline follows.
    static let deadline = Flags(rawValue: 4)
    /// Open dots follow.
    static let open = Flags(rawValue: 8)
    /// The losing value of a conflict, kept for a while: it has no position and is not sent.
    static let loser = Flags(rawValue: 16)
    /// On a purge: the purged record is a parked one of exactly that version, not the current one. On a
    /// write: it was parked when it was appended, so that no append has decided yet which records it
    /// supersedes.
    static let parked = Flags(rawValue: 32)
    /// On a purge: the purged record had a value.
    static let valued = Flags(rawValue: 64)
    /// Flags that announce optional fields.
    static let fields: Flags = [.base, .deadline, .open]
    static let known: Flags = [.continues, .base, .deadline, .open, .loser, .parked, .valued]

    /// Bytes of the base and the deadline, which precede the key.
    @inline(__always)
    var bytesBeforeKey: Int {
      (contains(.base) ? RecordLayout.dotLength : 0) &+ (contains(.deadline) ? 8 : 0)
    }
  }

  /// Offset of the deadline, if there is one.
  @inline(__always)
  static func deadline(_ flags: Flags) -> Int { fixedLength &+ (flags.contains(.base) ? dotLength : 0) }

  /// The bytes that a record of `length` bytes takes up, with padding.
  static func aligned(_ length: Int) -> Int { (length + alignment - 1) & ~(alignment - 1) }
}

/// Segment number and offset of a record. Ordered by number, then offset.
struct Location: Hashable, Comparable, Sendable {
  /// Segment number in the upper half, offset in the lower.
  let packed: UInt64

  init(packed: UInt64) { self.packed = packed }
  init(segment: UInt32, offset: Int) { packed = UInt64(segment) << 32 | UInt64(offset) }

  var segment: UInt32 { UInt32(packed >> 32) }
  var offset: Int { Int(packed & 0xFFFF_FFFF) }

  static func < (left: Location, right: Location) -> Bool { left.packed < right.packed }
}
