import Glibc
import SyncStore

/// Page-aligned memory in place of a file's pages. It is reserved at once, so that it never moves; the kernel
/// allocates pages at first touch.
///
/// This is one of the few files that use `unsafe`: it makes the memory that a `Mapping` shares.
@safe final class SimulatedMemory: Sendable {
  /// Page size in bytes.
  static let pageBytes = 4096
  /// Capacity in bytes.
  let capacity: Int
  private nonisolated(unsafe) let base: UnsafeMutableRawPointer

  /// `capacity` zero bytes, rounded up to pages.
  init(capacity: Int) {
    self.capacity = SimulatedMemory.rounded(max(capacity, 1))
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    guard let base = unsafe mmap(nil, self.capacity, PROT_READ | PROT_WRITE, flags, -1, 0),
      unsafe base != MAP_FAILED
    else { fatalError("simulated storage: no address space for \(capacity) bytes") }
    unsafe self.base = base
  }

  deinit { unsafe munmap(base, capacity) }

  /// `count` rounded up to whole pages.
  static func rounded(_ count: Int) -> Int { (count + pageBytes - 1) / pageBytes * pageBytes }

  func read(_ range: Range<Int>) -> [UInt8] {
    check(range)
    return unsafe Array(UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count))
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) {
    check(offset..<(offset + bytes.count))
    unsafe bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      unsafe memcpy(base + offset, start, source.count)
    }
  }

  func clear(_ range: Range<Int>) {
    check(range)
    _ = unsafe memset(base + range.lowerBound, 0, range.count)
  }

  func copy(_ range: Range<Int>, from other: SimulatedMemory) {
    check(range)
    other.check(range)
    _ = unsafe memcpy(base + range.lowerBound, other.base + range.lowerBound, range.count)
  }

  func equals(_ other: SimulatedMemory, in range: Range<Int>) -> Bool {
    check(range)
    other.check(range)
    return unsafe memcmp(base + range.lowerBound, other.base + range.lowerBound, range.count) == 0
  }

  /// Whether it begins with those bytes.
  func holds(_ bytes: [UInt8]) -> Bool {
    check(bytes.indices)
    return unsafe memcmp(base, bytes, bytes.count) == 0
  }

  /// The bytes in `range` as a mapping that keeps the memory alive.
  func mapping(_ range: Range<Int>) -> Mapping {
    check(range)
    return unsafe Mapping(unsafeBase: base + range.lowerBound, count: range.count) { [self] _, _ in
      withExtendedLifetime(self) {}
    }
  }

  private func check(_ range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= capacity, "access outside of simulated memory")
  }
}
