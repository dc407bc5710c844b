/// The first page of a segment. The header is stored twice, so that one bad byte cannot take a segment with
/// it (rule R2).
///
/// `schemas/journal.md` has the byte map.
struct SegmentHeader: Hashable, Sendable {
  /// The data set that the journal belongs to.
  var store: StoreID
  /// 1, 2, 3 …, without gaps (F22); for a compacted segment `SegmentHeader.compacted` and a count.
  var number: UInt32
  /// Random; seeds every checksum, so that stale bytes are never taken for a record of this segment (F41).
  var salt: UInt64
  /// The last position before this segment.
  var basePosition: UInt64
  /// Bytes of the file.
  var size: UInt32
  /// The segment before this one.
  var predecessor: Predecessor
  /// When this one was begun, in milliseconds since 1970.
  var created: UInt64
  /// The segment numbers covered: its own, or those of the segments that compaction replaced by it.
  var covered: ClosedRange<UInt32>
  /// The salt that the next segment names as its predecessor's: that of the last segment covered.
  var chainSalt: UInt64
  /// End of the records; 0 in a segment that is appended to, whose end is in the next header.
  var closedLength: UInt32 = 0
  /// Made from the reserve: only appends that free space go here.
  var isReserve = false
  /// Made from the part of the reserve for compactions: only a compaction appends to it.
  var isForCompaction = false
  /// The generation of the master key that encrypts the records; 0 if they are not encrypted.
  var generation: UInt32 = 0
  /// For a compacted segment: records that were dead at this position are not in it. 0 in a segment that is
  /// appended to.
  var compactedAt: UInt64 = 0
  /// Features required of writers that this program does not know: it may only read (F101).
  private(set) var unknownToWriters: UInt32 = 0

  /// Identifies the end of the segment before this one, so that a missing, swapped or shortened segment is
  /// detected.
  struct Predecessor: Hashable, Sendable {
    var salt: UInt64
    /// Where its records end.
    var length: UInt32
    /// Offset up to which it was known durable when its successor was begun.
    var durable: UInt32

    /// Of the first segment, which has no predecessor.
    static let none = Predecessor(salt: 0, length: 0, durable: 0)
  }

  /// Bit set in the numbers of compacted segments.
  static let compacted: UInt32 = 1 << 31

  /// The header of a segment to append to.
  init(
    store: StoreID, number: UInt32, salt: UInt64, basePosition: UInt64, size: UInt32,
    predecessor: Predecessor, created: UInt64
  ) {
    (self.store, self.number, self.salt, self.basePosition) = (store, number, salt, basePosition)
    (self.size, self.predecessor, self.created) = (size, predecessor, created)
    (covered, chainSalt) = (number...number, salt)
  }

  /// The header of the segment that replaces those from `first` to `last`, still without its size and length.
  init(
    compaction count: UInt32, of first: SegmentHeader, to last: SegmentHeader, salt: UInt64, created: UInt64
  ) {
    self.init(
      store: first.store, number: Self.compacted | count, salt: salt, basePosition: first.basePosition,
      size: 0, predecessor: first.predecessor, created: created)
    covered = first.covered.lowerBound...last.covered.upperBound
    chainSalt = last.chainSalt
  }

  /// Name of the segment's file.
  var name: SegmentName { SegmentName(covered: covered, compaction: compaction) }

  /// Number of compactions up to the one that wrote this segment; 0 for one that is appended to.
  var compaction: UInt32 { number >= Self.compacted ? number - Self.compacted : 0 }

  /// Offset of the first record.
  static let length = 4096
  /// Bytes of one copy of the header, its checksum included.
  static let encodedLength = 128
  /// Offsets of the two copies.
  static let copies = [0, 2048]
  /// The version of the format that this program writes.
  static let version: UInt16 = 1
  /// An optional feature: made from the reserve.
  private static let reserveFeature: UInt32 = 1
  /// An optional feature: a program that does not know it takes the segment for one of deletes.
  private static let compactionFeature: UInt32 = 2
  /// A feature required of readers: the records are encrypted.
  private static let encryptedFeature: UInt32 = 1
  private static let magic: [UInt8] = Array("SYNCJRNL".utf8)

  /// The whole first page.
  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.encodedLength)
    writer.write(raw: Self.magic)
    writer.write(Self.version)
    writer.write(UInt16(0))
    // Features: required of readers, required of writers, optional.
    writer.write(generation > 0 ? Self.encryptedFeature : 0)
    writer.write(UInt32(0))
    writer.write(
      (isReserve ? Self.reserveFeature : 0) | (isForCompaction ? Self.compactionFeature : 0))
    writer.write(raw: store.bytes)
    writer.write(number)
    writer.write(size)
    writer.write(salt)
    writer.write(basePosition)
    writer.write(predecessor.salt)
    writer.write(predecessor.length)
    writer.write(predecessor.durable)
    writer.write(created)
    writer.write(covered.lowerBound)
    writer.write(covered.upperBound)
    writer.write(chainSalt)
    writer.write(closedLength)
    writer.write(generation)
    writer.write(compactedAt)
    writer.write(XXH3.hash64(writer.bytes, seed: 0))
    var page = [UInt8](repeating: 0, count: Self.length)
    for copy in Self.copies { page.replaceSubrange(copy..<(copy + Self.encodedLength), with: writer.bytes) }
    return page
  }

  /// Message about a file, a segment or a pack, with only one whole copy of its header.
  static func oneCopyDamaged(isWritable: Bool) -> String {
    "one of the two copies of its header is damaged: the other one serves, and no peer is needed: "
      + (isWritable
        ? "it could not be written anew: check the disk"
        : "open the store for writing (`Store.verify`), and it is written anew")
  }

  /// Result of reading a header page.
  enum Reading: Equatable {
    /// At least one copy is whole; `damaged` if the other is not.
    case whole(SegmentHeader, damaged: Bool)
    /// Neither copy was ever written.
    case blank
    /// Neither copy is whole.
    case bad
    /// Written by a newer program.
    case newer(version: UInt16)
  }

  /// Reads a header page.
  static func read(_ page: [UInt8]) -> Reading {
    guard page.count >= length else { return page.allSatisfy { $0 == 0 } ? .blank : .bad }
    let (first, second) = (copy(0, of: page), copy(1, of: page))
    let reading = read(copy: first)
    let other = first == second ? reading : read(copy: second)
    switch (reading, other) {
    case (.whole(let header, _), _): return .whole(header, damaged: reading != other)
    case (.newer, _): return reading
    case (_, .whole(let header, _)): return .whole(header, damaged: true)
    case (_, .newer): return other
    default: return page.prefix(length).allSatisfy { $0 == 0 } ? .blank : .bad
    }
  }

  private static func copy(_ number: Int, of page: [UInt8]) -> ArraySlice<UInt8> {
    page[copies[number]..<(copies[number] + encodedLength)]
  }

  /// The bytes and the offset to repair the damaged copy with; nil unless exactly one copy is whole.
  static func headerRepair(_ page: [UInt8]) -> (offset: Int, bytes: [UInt8])? {
    let whole = copies.filter {
      if case .whole = read(copy: page[$0..<($0 + encodedLength)]) { true } else { false }
    }
    guard whole.count == 1, let offset = copies.first(where: { $0 != whole[0] }) else { return nil }
    return (offset, Array(page[whole[0]..<(whole[0] + encodedLength)]))
  }

  private static func read(copy: ArraySlice<UInt8>) -> Reading {
    do throws(DecodingFailure) {
      var reader = ByteReader(copy)
      guard try reader.read(raw: 8).elementsEqual(magic) else { return .bad }
      let version = try reader.read(UInt16.self)
      var checksum = ByteReader(copy.suffix(8))
      guard try checksum.read(UInt64.self) == XXH3.hash64(Array(copy.dropLast(8)), seed: 0) else {
        return .bad
      }
      _ = try reader.read(UInt16.self)
      let mustRead = try reader.read(UInt32.self)
      let mustWrite = try reader.read(UInt32.self)
      guard version == Self.version, mustRead & ~encryptedFeature == 0 else {
        return .newer(version: version)
      }
      let others = try reader.read(UInt32.self)
      guard let store = StoreID(bytes: try reader.read(raw: 16)) else { return .bad }
      let number = try reader.read(UInt32.self)
      let size = try reader.read(UInt32.self)
      let salt = try reader.read(UInt64.self)
      let basePosition = try reader.read(UInt64.self)
      let predecessor = Predecessor(
        salt: try reader.read(UInt64.self), length: try reader.read(UInt32.self),
        durable: try reader.read(UInt32.self))
      let created = try reader.read(UInt64.self)
      let first = try reader.read(UInt32.self)
      let last = try reader.read(UInt32.self)
      // Positions are counted one by one: no store reaches this.
      guard first <= last, basePosition < 1 << 62 else { return .bad }
      var header = SegmentHeader(
        store: store, number: number, salt: salt, basePosition: basePosition, size: size,
        predecessor: predecessor, created: created)
      header.covered = first...last
      header.chainSalt = try reader.read(UInt64.self)
      header.closedLength = try reader.read(UInt32.self)
      header.isReserve = others & reserveFeature != 0
      header.isForCompaction = others & compactionFeature != 0
      header.unknownToWriters = mustWrite
      header.generation = try reader.read(UInt32.self)
      header.compactedAt = try reader.read(UInt64.self)
      guard (header.generation > 0) == (mustRead & encryptedFeature != 0) else { return .bad }
      return .whole(header, damaged: false)
    } catch {
      return .bad
    }
  }
}
