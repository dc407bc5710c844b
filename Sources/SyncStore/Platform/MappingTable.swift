private import CLinux

/// Numbered mappings, for passes that switch between them millions of times: bounds are checked as in
/// `Mapping`, but references are not counted. They stay mapped as long as this lives.
///
/// This is one of the few files that use `unsafe`: the pointers never leave it except inside a closure.
@safe final class MappingTable: Sendable {
  @unsafe private struct Region {
    var start: UnsafeRawPointer?
    var count = 0
  }

  /// Number of entries, missing ones included.
  let count: Int
  private let mappings: [Numbered]
  private nonisolated(unsafe) let regions: UnsafeMutablePointer<Region>

  /// Numbers the mappings from 0 on.
  convenience init(_ mappings: [Mapping?]) {
    self.init(
      count: mappings.count,
      mappings.enumerated().compactMap { number, mapping in
        mapping.map { Numbered(number: number, mapping: $0) }
      })
  }

  /// Mappings with explicit numbers below `count`; all other entries are missing.
  init(count: Int, _ mappings: [Numbered]) {
    (self.count, self.mappings) = (count, mappings)
    unsafe regions = .allocate(capacity: max(count, 1))
    unsafe regions.initialize(repeating: Region(), count: count)
    for numbered in mappings {
      precondition(numbered.number >= 0 && numbered.number < count, "a number out of bounds")
      unsafe regions[numbered.number] = Region(
        start: numbered.mapping.unsafeStart, count: numbered.mapping.count)
    }
  }

  /// A mapping and its number.
  struct Numbered {
    let number: Int
    let mapping: Mapping
  }

  deinit { unsafe regions.deallocate() }

  /// Bytes of the mapping; 0 if there is none of that number.
  @inline(__always)
  func byteCount(_ number: Int) -> Int {
    number >= 0 && number < count ? unsafe regions[number].count : 0
  }

  /// The little-endian integer at `offset` of the mapping.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ number: Int, at offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    let start = unsafe pointer(to: number, offset: offset, size: MemoryLayout<Integer>.size)
    return unsafe Integer(littleEndian: start.loadUnaligned(as: Integer.self))
  }

  /// The bytes in `range` of the mapping, in place, for the duration of `body`.
  @inline(__always)
  func withBytes<Result, Failure: Error>(
    of number: Int, in range: Range<Int>, _ body: (RawSpan) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe pointer(to: number, offset: range.lowerBound, size: range.count)
    return try body(unsafe UnsafeRawBufferPointer(start: start, count: range.count).bytes)
  }

  /// All bytes of the mapping from `offset` on; empty if there is no such mapping or it ends earlier.
  @inline(__always)
  func rest(of number: Int, from offset: Int) -> MappedBytes {
    guard number >= 0, number < count, offset >= 0 else { return unsafe MappedBytes(start: nil, count: 0) }
    let region = unsafe regions[number]
    guard let start = unsafe region.start, unsafe offset < region.count else {
      return unsafe MappedBytes(start: nil, count: 0)
    }
    return unsafe MappedBytes(start: start + offset, count: region.count &- offset)
  }

  /// Prefetches `bytes` bytes from `offset` on into the processor's caches.
  @inline(__always)
  func prefetch(_ number: Int, at offset: Int, bytes: Int) {
    guard number >= 0, number < count, let start = unsafe regions[number].start else { return }
    unsafe sync_prefetch_range(start + offset, UInt64(truncatingIfNeeded: bytes))
  }

  @inline(__always)
  private func pointer(to number: Int, offset: Int, size: Int) -> UnsafeRawPointer {
    precondition(number >= 0 && number < count, "no such mapping")
    let region = unsafe regions[number]
    // A missing mapping has no bytes.
    let isInside = unsafe offset >= 0 && size >= 0 && offset <= region.count &- size
    precondition(isInside, "access outside of a mapping")
    guard let start = unsafe region.start else { preconditionFailure("access outside of a mapping") }
    return unsafe start + offset
  }
}
