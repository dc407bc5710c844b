/// An order-independent digest of the live records of a store: the sum, modulo 2^128, of one hash per key.
///
/// Equal on two copies with the same records. It detects faults, not forgery: members of a store trust each
/// other.
public struct StateDigest: Hashable, Sendable, CustomStringConvertible {
  private var sum: UInt128

  /// The digest of nothing.
  public init() { sum = 0 }

  /// The digest of one record.
  init(of record: Record) { sum = Self.hash(record) }

  /// The digest with these halves.
  init(high: UInt64, low: UInt64) { sum = UInt128(high) << 64 | UInt128(low) }
  /// The upper half.
  var high: UInt64 { UInt64(truncatingIfNeeded: sum >> 64) }
  /// The lower half.
  var low: UInt64 { UInt64(truncatingIfNeeded: sum) }

  /// Nil unless there are exactly 16 bytes, highest first.
  package init?(bytes: some Collection<UInt8>) {
    guard bytes.count == 16 else { return nil }
    sum = bytes.reduce(0) { $0 << 8 | UInt128($1) }
  }

  /// The 16 bytes, highest first.
  package var bytes: [UInt8] { (0..<16).map { UInt8(truncatingIfNeeded: sum >> UInt128(120 - 8 * $0)) } }

  /// The 32 lower-case hex digits.
  public var description: String { Hex.string(of: bytes) }

  /// Adds a record.
  package mutating func add(_ record: Record) { sum &+= Self.hash(record) }
  /// Adds the records of another digest, which must be of other keys.
  package mutating func add(_ other: StateDigest) { sum &+= other.sum }
  /// Removes a record that was added before.
  package mutating func remove(_ record: Record) { sum &-= Self.hash(record) }

  /// XXH3-128 of the record's canonical bytes; `schemas/wire.md` has their layout.
  private static func hash(_ record: Record) -> UInt128 {
    var writer = ByteWriter(capacity: 64 + record.transferSize)
    writer.write(counted: record.key)
    writer.write(record.dot)
    writer.write(record.stamp.rawValue)
    writer.write(record.type.rawValue)
    writer.write(record.deadline ?? 0)
    switch record.content {
    case .tombstone: writer.write(UInt8(0))
    case .inline(let value):
      writer.write(UInt8(1))
      writer.write(counted: value)
    case .blob(let blob):
      writer.write(UInt8(2))
      writer.write(raw: blob.hash.bytes)
      writer.writeVariable(blob.size)
      writer.write(counted: blob.metadata)
    }
    let hash = XXH3.hash128(writer.bytes)
    return UInt128(hash.high) << 64 | UInt128(hash.low)
  }
}
