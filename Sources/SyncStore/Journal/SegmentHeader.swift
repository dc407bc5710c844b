/// The first page of a segment. It stands there twice, so that one bad byte cannot take a segment with it (rule R2).
///
/// `schemas/journal.md` has the byte map.
struct SegmentHeader: Hashable, Sendable {
  /// Which data set the journal is of.
  var store: StoreID
  /// 1, 2, 3 …, without gaps (F22); for one that compaction wrote `SegmentHeader.compacted` and a count.
  var number: UInt32
  /// Random; goes into every checksum, so that stale bytes are never taken for a record of this segment (F41).
  var salt: UInt64
  /// The last position before this segment.
  var basePosition: UInt64
  /// Bytes of the file.
  var size: UInt32
  /// The salt of the segment before this one; 0 for the first.
  var previousSalt: UInt64
  /// Where the segment before this one ends; 0 for the first.
  var previousLength: UInt32
  /// Up to where the segment before this one was known durable when this one was begun.
  var previousDurable: UInt32
  /// When this one was begun, in milliseconds since 1970.
  var created: UInt64
  /// The numbers that this one stands for: its own, or those of the segments that compaction replaced by it.
  var covered: ClosedRange<UInt32>
  /// What the segment behind this one names: the salt that the last of those had.
  var chainSalt: UInt64
  /// Where the records end; 0 in one that is appended to: there the next one says it.
  var closedLength: UInt32 = 0
  /// Was it made of the reserve? Then only what gives space back is appended to it.
  var isReserve = false
  /// Was it made of the part of the reserve that is for compactions? Then only a compaction appends to it.
  var isForCompaction = false
  /// The generation of the master key under which its records are sealed; 0 if they are plain.
  var generation: UInt32 = 0
  /// Of a compacted segment: what did not count any more at this position is not in it. 0 in one that is appended to.
  var compactedAt: UInt64 = 0
  /// What a program must know to write to this store, as far as this one does not: it may read (F101).
  private(set) var unknownToWriters: UInt32 = 0

  /// In the numbers of those that compaction wrote.
  static let compacted: UInt32 = 1 << 31

  /// The header of a segment to append to.
  init(
    store: StoreID, number: UInt32, salt: UInt64, basePosition: UInt64, size: UInt32, previousSalt: UInt64,
    previousLength: UInt32, previousDurable: UInt32, created: UInt64
  ) {
    (self.store, self.number, self.salt, self.basePosition) = (store, number, salt, basePosition)
    (self.size, self.previousSalt, self.previousLength) = (size, previousSalt, previousLength)
    (self.previousDurable, self.created) = (previousDurable, created)
    (covered, chainSalt) = (number...number, salt)
  }

  /// The header of the segment that takes the place of those from `first` to `last`, still without its size and length.
  init(
    compaction count: UInt32, of first: SegmentHeader, to last: SegmentHeader, salt: UInt64, created: UInt64
  ) {
    self.init(
      store: first.store, number: Self.compacted | count, salt: salt, basePosition: first.basePosition,
      size: 0, previousSalt: first.previousSalt, previousLength: first.previousLength,
      previousDurable: first.previousDurable, created: created)
    covered = first.covered.lowerBound...last.covered.upperBound
    chainSalt = last.chainSalt
  }

  /// What its file is called.
  var name: SegmentName { SegmentName(covered: covered, compaction: compaction) }

  /// How many compactions there had been when this one was written; 0 for one that is appended to.
  var compaction: UInt32 { number >= Self.compacted ? number - Self.compacted : 0 }

  /// Where the first record begins.
  static let length = 4096
  /// Bytes that a copy of the header fills, its checksum included.
  static let encodedLength = 128
  /// Where the two copies begin.
  static let copies = [0, 2048]
  /// The version of the format that this program writes.
  static let version: UInt16 = 1
  /// A feature that nobody must know.
  private static let reserveFeature: UInt32 = 1
  /// Another one: a program that does not know it takes the segment for one of deletes.
  private static let compactionFeature: UInt32 = 2
  /// Says, among the features that a reader must know, that the records are sealed.
  private static let encryptedFeature: UInt32 = 1
  private static let magic: [UInt8] = Array("SYNCJRNL".utf8)

  /// The whole first page.
  func encoded() -> [UInt8] {
    var writer = ByteWriter(capacity: Self.encodedLength)
    writer.write(raw: Self.magic)
    writer.write(Self.version)
    writer.write(UInt16(0))
    // Features: which a reader must know, which a writer must know, which nobody must know.
    writer.write(generation > 0 ? Self.encryptedFeature : 0)
    writer.write(UInt32(0))
    writer.write(
      (isReserve ? Self.reserveFeature : 0) | (isForCompaction ? Self.compactionFeature : 0))
    writer.write(raw: store.bytes)
    writer.write(number)
    writer.write(size)
    writer.write(salt)
    writer.write(basePosition)
    writer.write(previousSalt)
    writer.write(previousLength)
    writer.write(previousDurable)
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

  /// What is said of a file, a segment or a pack, of whose header one copy alone is whole.
  static func oneCopyDamaged(isWritable: Bool) -> String {
    "one of the two copies of its header is damaged: the other one serves, and no peer is needed: "
      + (isWritable
        ? "it could not be written anew: check the disk"
        : "open the store for writing (`Store.verify`), and it is written anew")
  }

  /// How a header page reads.
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

  /// What the copy that is not whole should be, and where it begins; nil unless the other one is.
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
      let previousSalt = try reader.read(UInt64.self)
      let previousLength = try reader.read(UInt32.self)
      let previousDurable = try reader.read(UInt32.self)
      let created = try reader.read(UInt64.self)
      let first = try reader.read(UInt32.self)
      let last = try reader.read(UInt32.self)
      // Positions are counted one by one: no store comes to so many.
      guard first <= last, basePosition < 1 << 62 else { return .bad }
      var header = SegmentHeader(
        store: store, number: number, salt: salt, basePosition: basePosition, size: size,
        previousSalt: previousSalt, previousLength: previousLength, previousDurable: previousDurable,
        created: created)
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
