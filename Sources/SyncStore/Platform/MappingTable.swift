private import CLinux
private import Glibc

/// Many mappings, found by a number, for work that goes from one to the other millions of times: what is looked at is
/// checked against the bounds as in `Mapping`, but no reference is counted. They stay mapped as long as this lives.
///
/// This is one of the few files that use `unsafe`: the pointers never leave it but inside a closure.
@safe final class MappingTable: Sendable {
  @unsafe private struct Region {
    var start: UnsafeRawPointer?
    var count = 0
  }

  /// How many there are, those that are missing counted.
  let count: Int
  private let mappings: [Mapping?]
  private nonisolated(unsafe) let regions: UnsafeMutablePointer<Region>

  /// Numbers them from 0 on.
  init(_ mappings: [Mapping?]) {
    self.mappings = mappings
    count = mappings.count
    unsafe regions = .allocate(capacity: max(mappings.count, 1))
    for (index, mapping) in mappings.enumerated() {
      let region = unsafe Region(start: mapping?.unsafeStart, count: mapping?.count ?? 0)
      unsafe (regions + index).initialize(to: region)
    }
  }

  deinit { unsafe regions.deallocate() }

  /// How many bytes the mapping has; 0 if there is none of that number.
  @inline(__always)
  func byteCount(_ number: Int) -> Int {
    number >= 0 && number < count ? unsafe regions[number].count : 0
  }

  /// The little-endian integer at `offset` of the mapping.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ number: Int, _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    let start = unsafe pointer(number, offset, MemoryLayout<Integer>.size)
    return unsafe Integer(littleEndian: start.loadUnaligned(as: Integer.self))
  }

  /// The bytes in `range` of the mapping, in place, for the time of `body`.
  @inline(__always)
  func withBytes<Result, Failure: Error>(
    _ number: Int, _ range: Range<Int>, _ body: (RawSpan) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe pointer(number, range.lowerBound, range.count)
    return try body(unsafe UnsafeRawBufferPointer(start: start, count: range.count).bytes)
  }

  /// A copy of the bytes in `range` of the mapping.
  func bytes(_ number: Int, _ range: Range<Int>) -> [UInt8] {
    let start = unsafe pointer(number, range.lowerBound, range.count)
    return unsafe Array(UnsafeRawBufferPointer(start: start, count: range.count))
  }

  /// Are the bytes in `range` before (negative), the same as (0) or behind (positive) `other`, as far as the shorter goes?
  func compare(_ number: Int, _ range: Range<Int>, _ other: Span<UInt8>) -> Int {
    let start = unsafe pointer(number, range.lowerBound, range.count)
    let common = min(range.count, other.count)
    guard common > 0 else { return 0 }
    return unsafe other.withUnsafeBytes { unsafe Int(memcmp(start, $0.baseAddress!, common)) }
  }

  /// All bytes of the mapping from `offset` on; none if there is no such mapping, or it ends before.
  @inline(__always)
  func rest(_ number: Int, _ offset: Int) -> MappedBytes {
    guard number >= 0, number < count, offset >= 0 else { return unsafe MappedBytes(start: nil, count: 0) }
    let region = unsafe regions[number]
    guard let start = unsafe region.start, unsafe offset < region.count else {
      return unsafe MappedBytes(start: nil, count: 0)
    }
    return unsafe MappedBytes(start: start + offset, count: region.count &- offset)
  }

  /// Has `bytes` bytes from `offset` on fetched into the processor's caches: they are needed soon.
  @inline(__always)
  func prefetch(_ number: Int, _ offset: Int, _ bytes: Int) {
    guard number >= 0, number < count, let start = unsafe regions[number].start else { return }
    unsafe sync_prefetch_range(start + offset, UInt64(truncatingIfNeeded: bytes))
  }

  @inline(__always)
  private func pointer(_ number: Int, _ offset: Int, _ size: Int) -> UnsafeRawPointer {
    precondition(number >= 0 && number < count, "no such mapping")
    let region = unsafe regions[number]
    // What is missing has no bytes.
    let isInside = unsafe offset >= 0 && size >= 0 && offset <= region.count &- size
    precondition(isInside, "access outside of a mapping")
    guard let start = unsafe region.start else { preconditionFailure("access outside of a mapping") }
    return unsafe start + offset
  }
}

/// Bytes of a mapping, for who keeps that mapped meanwhile. A bare pointer, because a counted reference would cost more than
/// what is read; all access is checked against the bounds.
@safe struct MappedBytes {
  private let start: UnsafeRawPointer?
  let count: Int

  @unsafe fileprivate init(start: UnsafeRawPointer?, count: Int) {
    unsafe (self.start, self.count) = (start, count)
  }

  /// All of `mapping`, which the caller keeps.
  init(_ mapping: Mapping) { unsafe self.init(start: mapping.unsafeStart, count: mapping.count) }

  /// The first `count` of them.
  @inline(__always)
  func prefix(_ count: Int) -> MappedBytes {
    precondition(count >= 0 && count <= self.count, "access outside of a mapping")
    return unsafe MappedBytes(start: start, count: count)
  }

  /// The little-endian integer at `offset`.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    unsafe Integer(littleEndian: pointer(offset, MemoryLayout<Integer>.size).loadUnaligned(as: Integer.self))
  }

  /// The bytes in `range`, in place, for the time of `body`.
  @inline(__always)
  func withBytes<Result, Failure: Error>(
    _ range: Range<Int>, _ body: (RawSpan) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe pointer(range.lowerBound, range.count)
    return try body(unsafe UnsafeRawBufferPointer(start: start, count: range.count).bytes)
  }

  /// A copy of the bytes in `range`.
  @inline(__always)
  func bytes(_ range: Range<Int>) -> [UInt8] {
    let start = unsafe pointer(range.lowerBound, range.count)
    return unsafe Array(UnsafeRawBufferPointer(start: start, count: range.count))
  }

  /// Are the bytes from `offset` on those of `other`? Keys are short: a call would take longer than to compare them here.
  @inline(__always)
  func equals(_ offset: Int, _ other: Span<UInt8>) -> Bool {
    let size = other.count
    let start = unsafe pointer(offset, size)
    return unsafe other.withUnsafeBytes { other in
      guard let other = other.baseAddress else { return true }
      var next = 0
      while next &+ 8 <= size {
        let (left, right) = unsafe (
          (start + next).loadUnaligned(as: UInt64.self), (other + next).loadUnaligned(as: UInt64.self)
        )
        guard left == right else { return false }
        next &+= 8
      }
      while next < size {
        let (left, right) = unsafe (
          (start + next).load(as: UInt8.self), (other + next).load(as: UInt8.self)
        )
        guard left == right else { return false }
        next &+= 1
      }
      return true
    }
  }

  /// Has the processor fetch the second and third line of them: they are needed as soon as the first has come.
  @inline(__always)
  func prefetch() {
    guard let start = unsafe start else { return }
    unsafe sync_prefetch(start + 64)
    unsafe sync_prefetch(start + 128)
  }

  @inline(__always)
  private func pointer(_ offset: Int, _ size: Int) -> UnsafeRawPointer {
    precondition(offset >= 0 && size >= 0 && offset <= count &- size, "access outside of a mapping")
    guard let start = unsafe start else { preconditionFailure("access outside of a mapping") }
    return unsafe start + offset
  }
}
