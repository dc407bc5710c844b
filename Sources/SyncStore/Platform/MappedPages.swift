private import CLinux
private import Glibc
private import Synchronization

/// The pages of a file that grows in chunks. Each chunk is mapped separately at first use and stays mapped as
/// long as this object lives: nothing is remapped, so readers concurrent with growth need no lock.
///
/// This is one of the few files that use `unsafe`: a `PageView` is a bare pointer, because reference counting
/// would cost more than the lookup it serves. Bounds are kept because page numbers and offsets are checked
/// here, a chunk holds all pages counted to it, and every holder of a view also holds this object.
///
/// Invariants: chunk 0 has 16 pages; the next seven each double the total; all later ones have 2048 (8 MiB).
/// A chunk is mapped only once the file has all its blocks, so that no access can raise SIGBUS.
@safe final class MappedPages: Sendable {
  /// Bytes of a page.
  static let pageBytes = 4096
  /// One more than the greatest page number.
  static let limit: UInt32 = 1 << 24
  /// Maximum number of parts of a directory over the pages; each is as large as all before it together.
  static let directoryParts = 13

  /// Chunks of the full size have 2 to the power of this many pages.
  private static let chunkShift: UInt32 = 11
  private static let chunks = Int(chunkShift) - 4 + Int(limit >> chunkShift)

  private let file: any StorageFile
  private let writable: Bool
  /// Both tables: lazily populated memory, most of which is never touched.
  private let tables: Mapping
  private nonisolated(unsafe) let directory: UnsafeMutablePointer<Atomic<UInt>>
  private nonisolated(unsafe) let bases: UnsafeMutablePointer<Atomic<UInt>>
  private let mapped = LockedField(Chunks(), rank: .pages)

  /// The chunks that are mapped.
  private struct Chunks {
    struct Chunk {
      let index: Int
      let mapping: Mapping
    }

    var all: [Chunk] = []

    subscript(index: Int) -> Mapping? { all.first { $0.index == index }?.mapping }
  }

  /// The pages of `file`.
  init(_ file: any StorageFile, writable: Bool) {
    self.file = file
    self.writable = writable
    let bytes = (Self.directoryParts + Self.chunks) * MemoryLayout<Atomic<UInt>>.stride
    do throws(StoreError) { tables = try .blank(bytes) } catch { preconditionFailure("\(error)") }
    unsafe directory = UnsafeMutableRawPointer(mutating: tables.unsafeStart).assumingMemoryBound(
      to: Atomic<UInt>.self)
    unsafe bases = directory + Self.directoryParts
  }

  /// The pages in the same chunk as page `number`.
  static func chunk(of number: UInt32) -> Range<UInt32> {
    if number < 16 { return 0..<16 }
    if number >> chunkShift > 0 {
      let start = (number >> chunkShift) << chunkShift
      return start..<(start + (1 << chunkShift))
    }
    let start = UInt32(1) << UInt32(31 - number.leadingZeroBitCount)
    return start..<(2 * start)
  }

  /// Whether the chunk has room for huge pages.
  private static func isHuge(_ chunk: Range<UInt32>) -> Bool {
    chunk.count * pageBytes >= Mapping.hugePageBytes
  }

  @inline(__always)
  private static func index(of number: UInt32) -> Int {
    let small = 28 - (number | 8).leadingZeroBitCount
    return number >> chunkShift == 0 ? small : Int(chunkShift) - 4 + Int(number >> chunkShift)
  }

  /// Page `number`, which must have been allocated; `.damaged` if the file is too short to have it.
  @inline(__always)
  func page(_ number: UInt32) throws(StoreError) -> PageView {
    precondition(number < Self.limit, "a page number out of bounds")
    let chunk = Self.index(of: number)
    let base = unsafe bases[chunk].load(ordering: .acquiring)
    guard base != 0 else { return try mapping(number) }
    // The table holds the address that page 0 would have if all chunks were contiguous with this one.
    return unsafe PageView(UnsafeMutableRawPointer(bitPattern: base &+ UInt(number) &* UInt(Self.pageBytes))!)
  }

  /// Makes sure that the file has page `number` and all of its chunk. `.diskFull` leaves everything
  /// unchanged.
  func allocate(_ number: UInt32) throws(StoreError) {
    precondition(number < Self.limit, "a page number out of bounds")
    guard unsafe bases[Self.index(of: number)].load(ordering: .relaxed) == 0 else { return }
    let end = Int(Self.chunk(of: number).upperBound) * Self.pageBytes
    if try file.status().size < end { try file.allocate(to: end) }
    _ = try mapping(number)
  }

  /// Populates pages of one mapped chunk ahead of the first store to them.
  func populate(_ pages: Range<UInt32>) {
    let chunk = Self.chunk(of: pages.lowerBound)
    precondition(pages.upperBound <= chunk.upperBound, "pages of one chunk")
    guard let mapping = mapped.withLock({ $0[Self.index(of: pages.lowerBound)] }) else { return }
    let start = Int(pages.lowerBound - chunk.lowerBound) * Self.pageBytes
    let bytes = start..<(start + pages.count * Self.pageBytes)
    // With readahead, the first access would wait for all of it: 9 ms for 4 MiB of zeros. Huge pages are
    // populated one at a time.
    mapping.adviseRandom()
    mapping.populate(bytes)
    mapping.adviseNormal()
  }

  /// Whether the kernel refused a page. Stores to it since are visible to this process alone.
  var hasFaulted: Bool { mapped.withLock { $0.all.contains { $0.mapping.fault != nil } } }

  @inline(never)
  private func mapping(_ number: UInt32) throws(StoreError) -> PageView {
    let chunk = Self.chunk(of: number)
    let index = Self.index(of: number)
    let bytes = Int(chunk.lowerBound) * Self.pageBytes..<Int(chunk.upperBound) * Self.pageBytes
    let base = try mapped.withLock { chunks throws(StoreError) -> UInt in
      if chunks[index] != nil { return unsafe bases[index].load(ordering: .relaxed) }
      // The first pages are those that an opening needs.
      var size = index == 0 ? try file.sizeAtOpening : 0
      if size < bytes.upperBound { size = try file.status().size }
      guard size >= bytes.upperBound else {
        throw StoreError(.damaged, "names a page behind its end: it is to be built anew", path: file.path)
      }
      let mapping = try file.map(bytes, writable: writable)
      if Self.isHuge(Self.chunk(of: number)) { mapping.adviseHugePages() }
      chunks.all.append(Chunks.Chunk(index: index, mapping: mapping))
      let start = unsafe mapping.withPointer(0, to: UInt8.self) { UInt(bitPattern: $0) }
      let base = start &- UInt(bytes.lowerBound)
      unsafe bases[index].store(base, ordering: .releasing)
      return base
    }
    return unsafe PageView(UnsafeMutableRawPointer(bitPattern: base &+ UInt(number) &* UInt(Self.pageBytes))!)
  }

  // MARK: Page directory

  /// Entry `index` of the directory; nil if its part is not known yet. Part 0 has the first 1024 entries,
  /// each other part as many as all before it.
  @inline(__always)
  func entry(_ index: UInt32) -> EntryView? {
    let part = Self.part(of: index)
    let base = unsafe directory[part].load(ordering: .acquiring)
    guard base != 0 else { return nil }
    return unsafe EntryView(UnsafeMutableRawPointer(bitPattern: base &+ UInt(index) &* 4)!)
  }

  /// The part of the directory that has entry `index`.
  @inline(__always)
  static func part(of index: UInt32) -> Int {
    precondition(index < 1024 << UInt32(directoryParts - 1), "a directory entry out of bounds")
    return 22 - (index | 512).leadingZeroBitCount
  }

  /// Number of pages of a part of the directory.
  static func pages(ofPart part: Int) -> UInt32 { part == 0 ? 1 : 1 << UInt32(part - 1) }

  /// Places a part of the directory in the pages from `start` on, which must lie in one chunk.
  func setPart(_ part: Int, start: UInt32) throws(StoreError) {
    guard start < Self.limit, start + Self.pages(ofPart: part) <= Self.chunk(of: start).upperBound else {
      throw StoreError(.damaged, "its directory is out of bounds: it is to be built anew", path: file.path)
    }
    let first = part == 0 ? 0 : UInt(512) << UInt(part)
    let base = try page(start).address &- first &* 4
    unsafe directory[part].store(base, ordering: .releasing)
  }
}

/// A page of a `MappedPages`, valid while that lives. All access is atomic.
@safe struct PageView: @unchecked Sendable {
  private let base: UnsafeMutableRawPointer

  fileprivate init(_ base: UnsafeMutableRawPointer) { unsafe self.base = base }

  fileprivate var address: UInt { unsafe UInt(bitPattern: base) }

  /// The word at `offset`, a multiple of 8.
  @inline(__always)
  func load(_ offset: Int) -> UInt64 {
    precondition(offset & 7 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    return unsafe (base + offset).assumingMemoryBound(to: Atomic<UInt64>.self).pointee.load(
      ordering: .acquiring)
  }

  /// Stores a word with release order.
  @inline(__always)
  func store(_ word: UInt64, at offset: Int) {
    precondition(offset & 7 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    unsafe (base + offset).assumingMemoryBound(to: Atomic<UInt64>.self).pointee.store(
      word, ordering: .releasing)
  }

  /// The 16-bit number at `offset`, a multiple of 2.
  @inline(__always)
  func loadShort(_ offset: Int) -> UInt16 {
    precondition(offset & 1 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    return unsafe (base + offset).assumingMemoryBound(to: Atomic<UInt16>.self).pointee.load(
      ordering: .relaxed)
  }

  /// Stores a 16-bit number with release order.
  @inline(__always)
  func storeShort(_ value: UInt16, at offset: Int) {
    precondition(offset & 1 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    unsafe (base + offset).assumingMemoryBound(to: Atomic<UInt16>.self).pointee.store(
      value, ordering: .releasing)
  }

  /// Prefetches the cache line of the byte at `offset`.
  @inline(__always)
  func prefetch(_ offset: Int) { unsafe sync_prefetch(base + (offset & (MappedPages.pageBytes - 1))) }

  /// The eight words from `offset` on, a multiple of 64, read from the last to the first.
  @inline(__always)
  func line(_ offset: Int) -> CacheLine {
    precondition(offset & 63 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    let words = unsafe (base + offset).assumingMemoryBound(to: Atomic<UInt64>.self)
    let seven = unsafe words[7].load(ordering: .acquiring)
    let six = unsafe words[6].load(ordering: .acquiring)
    let five = unsafe words[5].load(ordering: .acquiring)
    let four = unsafe words[4].load(ordering: .acquiring)
    let three = unsafe words[3].load(ordering: .acquiring)
    let two = unsafe words[2].load(ordering: .acquiring)
    let one = unsafe words[1].load(ordering: .acquiring)
    let zero = unsafe words[0].load(ordering: .acquiring)
    return CacheLine(
      zero: zero, one: one, two: two, three: three, four: four, five: five, six: six, seven: seven)
  }

  /// Summary of the eight words from `offset` on, a multiple of 64, read from the last to the first.
  @inline(__always)
  func scanLine(_ offset: Int, tag: UInt64) -> LineScan {
    precondition(offset & 63 == 0 && offset >= 0 && offset < MappedPages.pageBytes, "out of the page")
    let look = unsafe sync_look_at_line(base + offset, UInt16(truncatingIfNeeded: tag))
    return LineScan(fold: look.fold, last: look.last, matches: look.matches)
  }
}

/// Eight words, read one after the other.
struct CacheLine: Equatable {
  var zero, one, two, three, four, five, six, seven: UInt64
}

/// Summary of eight words.
struct LineScan {
  /// Exclusive or of all eight.
  let fold: UInt64
  /// The last word.
  let last: UInt64
  /// Bit 4n + 3 is set if the upper 16 bits of word n equal the tag.
  let matches: UInt32
}

/// An entry of a directory over pages, valid while its `MappedPages` lives.
@safe struct EntryView {
  private let base: UnsafeMutableRawPointer

  fileprivate init(_ base: UnsafeMutableRawPointer) { unsafe self.base = base }

  /// The entry, loaded with acquire order.
  @inline(__always)
  func load() -> UInt32 {
    unsafe base.assumingMemoryBound(to: Atomic<UInt32>.self).pointee.load(ordering: .acquiring)
  }

  /// Stores the entry with release order.
  @inline(__always)
  func store(_ value: UInt32) {
    unsafe base.assumingMemoryBound(to: Atomic<UInt32>.self).pointee.store(value, ordering: .releasing)
  }
}
