private import CLinux
private import Glibc
package import Synchronization

/// Memory shared with a file, or standing in for one in tests. Every access is bounds-checked; the memory is
/// unmapped with the last reference.
///
/// This is one of the few files that use `unsafe`: the pointer never leaves it except inside a closure.
@safe package final class Mapping: Sendable {
  /// Number of bytes mapped.
  package let count: Int
  private nonisolated(unsafe) let base: UnsafeMutableRawPointer
  private let release: @Sendable (UnsafeMutableRawPointer, Int) -> Void
  /// Registration with the SIGBUS handler; nil if the mapping is not watched.
  private nonisolated(unsafe) let watch: OpaquePointer?

  /// Takes ownership of `count` bytes at `base`; `release` unmaps them. `watch`, if given, watches them until
  /// then.
  package init(
    unsafeBase base: UnsafeMutableRawPointer, count: Int, watch: OpaquePointer? = nil,
    release: @escaping @Sendable (UnsafeMutableRawPointer, Int) -> Void
  ) {
    unsafe self.base = base
    self.count = count
    unsafe self.watch = watch
    unsafe self.release = release
  }

  /// Zeroed memory of this process alone.
  package static func anonymous(_ count: Int) -> Mapping {
    let base = UnsafeMutableRawPointer.allocate(byteCount: count, alignment: 4096)
    unsafe base.initializeMemory(as: UInt8.self, repeating: 0, count: count)
    return unsafe Mapping(unsafeBase: base, count: count) { base, _ in unsafe base.deallocate() }
  }

  /// Memory of this process alone for confidential bytes: not zeroed at first, but before it is freed.
  static func heap(_ count: Int) -> Mapping {
    let base = UnsafeMutableRawPointer.allocate(byteCount: max(count, 1), alignment: 16)
    return unsafe Mapping(unsafeBase: base, count: count) { base, count in
      unsafe sync_zero(base, UInt64(count))
      unsafe base.deallocate()
    }
  }

  /// Zeroed memory of this process alone, populated as it is touched.
  package static func blank(_ count: Int) throws(StoreError) -> Mapping {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    guard let base = unsafe mmap(nil, count, PROT_READ | PROT_WRITE, flags, -1, 0), unsafe base != MAP_FAILED
    else { throw SystemCall.failure("cannot find memory for \(CountText.of(count, noun: "byte"))", nil) }
    return unsafe Mapping(unsafeBase: base, count: count) { unsafe munmap($0, $1) }
  }

  /// Releases the memory of the whole pages in `range`, which then read as zeros. Only for a blank mapping.
  package func discard(_ range: Range<Int>) {
    check(range)
    let (start, end) = (pageEnd(range.lowerBound), pageStart(range.upperBound))
    if start < end { unsafe madvise(base + start, end - start, MADV_DONTNEED) }
  }

  /// Bytes of a page of the running kernel: 4, 16 or 64 KiB.
  static let pageBytes = sysconf(Int32(_SC_PAGESIZE))

  /// Offset at which the page of the byte at `offset` begins. Negative for a mapping that begins inside a
  /// page.
  private func pageStart(_ offset: Int) -> Int {
    let address = unsafe Int(bitPattern: base) + offset
    return offset - address % Self.pageBytes
  }

  /// Offset of the first page boundary at or after `offset`.
  private func pageEnd(_ offset: Int) -> Int { pageStart(offset + Self.pageBytes - 1) }

  deinit {
    if let watch = unsafe watch { unsafe sync_unwatch(watch) }
    unsafe release(base, count)
  }

  /// Why the kernel could not provide a page. Zeros take its place, visible to this process alone.
  package enum Fault: Sendable {
    /// The file ends before the page: it was truncated by another program (F38).
    case truncated
    /// The page is unavailable: the disk failed (F28, F29), or there is no space for it (F26).
    case refused
  }

  /// The fault raised when this memory was read or written; nil if every byte was the file's.
  ///
  /// Query it after the accesses it is about. Costs one load as long as no mapping of the process has
  /// faulted.
  @inline(__always)
  package var fault: Fault? { sync_any_fault() == 0 ? nil : knownFault }

  /// Whether any mapping of this process has faulted.
  @inline(__always)
  static var hasAnyFaulted: Bool { faults != 0 }

  /// Number of faults in all mappings of the process; only increases.
  @inline(__always)
  static var faults: UInt32 { sync_any_fault() }

  @inline(never)
  private var knownFault: Fault? {
    guard let watch = unsafe watch else { return nil }
    let faults = unsafe sync_watch_faults(watch)
    if faults & UInt32(SYNC_FAULT_TRUNCATED) != 0 { return .truncated }
    return faults & UInt32(SYNC_FAULT_REFUSED) != 0 ? .refused : nil
  }

  /// Start of the bytes, valid while this lives.
  @inline(__always)
  var unsafeStart: UnsafeRawPointer { unsafe UnsafeRawPointer(base) }

  /// The bytes in `range`, in place, for the duration of `body`.
  @inline(__always)
  package func withBytes<Result, Failure: Error>(
    _ range: Range<Int>, _ body: (RawSpan) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    check(range)
    let buffer = unsafe UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count)
    return try body(unsafe buffer.bytes)
  }

  /// The bytes in `range`, in place, for the duration of `body`.
  @inline(__always)
  package func withSpan<Result, Failure: Error>(
    _ range: Range<Int>, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    check(range)
    let start = unsafe (base + range.lowerBound).assumingMemoryBound(to: UInt8.self)
    return try body(unsafe UnsafeBufferPointer(start: start, count: range.count).span)
  }

  /// A copy of the bytes in `range`.
  package func bytes(_ range: Range<Int>) -> [UInt8] {
    check(range)
    return unsafe Array(UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count))
  }

  /// Appends the bytes in `range` to `other`.
  package func append(_ range: Range<Int>, to other: inout [UInt8]) {
    check(range)
    unsafe other.append(
      contentsOf: UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count))
  }

  /// Whether the bytes in `range` equal `other`.
  package func equals(_ range: Range<Int>, _ other: Span<UInt8>) -> Bool {
    check(range)
    return unsafe range.count == other.count
      && other.withUnsafeBytes {
        unsafe $0.isEmpty || memcmp(base + range.lowerBound, $0.baseAddress!, $0.count) == 0
      }
  }

  /// Stores `bytes` from `offset` on.
  package func store(_ bytes: Span<UInt8>, at offset: Int) {
    check(offset, bytes.count)
    unsafe bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      unsafe memcpy(base + offset, start, source.count)
    }
  }

  /// Stores `bytes` from `offset` on.
  func store(_ bytes: RawSpan, at offset: Int) {
    check(offset, bytes.byteCount)
    unsafe bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      unsafe memcpy(base + offset, start, source.count)
    }
  }

  /// Stores `bytes` from `offset` on.
  package func store(_ bytes: [UInt8], at offset: Int) { store(bytes.span, at: offset) }

  /// Stores an integer at `offset`, little-endian.
  @inline(__always)
  package func store<Integer: FixedWidthInteger & BitwiseCopyable>(_ value: Integer, at offset: Int) {
    check(offset, MemoryLayout<Integer>.size)
    unsafe (base + offset).storeBytes(of: value.littleEndian, as: Integer.self)
  }

  /// Zeros the bytes in `range`.
  package func clear(_ range: Range<Int>) {
    check(range)
    _ = unsafe memset(base + range.lowerBound, 0, range.count)
  }

  /// Offset of the last byte in `range` that is not zero; nil if all are.
  package func lastNonZero(_ range: Range<Int>) -> Int? {
    check(range)
    let found = unsafe sync_last_nonzero(base + range.lowerBound, UInt64(range.count))
    return found < 0 ? nil : range.lowerBound + Int(found)
  }

  /// The little-endian integer at `offset`.
  @inline(__always)
  package func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    check(offset, MemoryLayout<Integer>.size)
    return unsafe Integer(littleEndian: base.loadUnaligned(fromByteOffset: offset, as: Integer.self))
  }

  /// The 64-bit word at `offset`, a multiple of 8, shared with other processes.
  @inline(__always)
  package func withAtomic<Result>(_ offset: Int, _ body: (borrowing Atomic<UInt64>) -> Result) -> Result {
    check(offset, 8)
    precondition(offset.isMultiple(of: 8), "atomics are aligned")
    return unsafe body((base + offset).assumingMemoryBound(to: Atomic<UInt64>.self).pointee)
  }

  /// The memory at `offset` as a value that the operating system uses in place (a mutex, a futex).
  @inline(__always)
  package func withPointer<Value, Result, Failure: Error>(
    _ offset: Int, to _: Value.Type, _ body: (UnsafeMutablePointer<Value>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    check(offset, MemoryLayout<Value>.size)
    return try unsafe body((base + offset).assumingMemoryBound(to: Value.self))
  }

  /// The bytes in `range`, for a C library that changes them in place.
  @inline(__always)
  func withMutableBytes<Result>(
    _ range: Range<Int>, _ body: (UnsafeMutableRawBufferPointer) -> Result
  ) -> Result {
    check(range)
    return unsafe body(UnsafeMutableRawBufferPointer(start: base + range.lowerBound, count: range.count))
  }

  /// Copies `range` of another mapping to `offset`.
  func store(_ range: Range<Int>, of other: Mapping, at offset: Int) {
    other.check(range)
    check(offset, range.count)
    unsafe memcpy(base + offset, other.base + range.lowerBound, range.count)
  }

  /// Makes the bytes in `range` durable. False on failure, with the reason in `errno`.
  func sync(_ range: Range<Int>) -> Bool {
    check(range)
    let start = pageStart(range.lowerBound)
    return unsafe msync(base + start, range.upperBound - start, MS_SYNC) == 0
  }

  /// Drops the mappings of the whole pages in `range`; reads fault them in again. Only for a shared file,
  /// which keeps what was stored.
  func adviseDontNeed(_ range: Range<Int>) {
    check(range)
    let start = pageEnd(range.lowerBound)
    let end = range.upperBound == count ? count : pageStart(range.upperBound)
    if start < end { unsafe madvise(base + start, end - start, MADV_DONTNEED) }
  }

  /// Expects random access: no readahead around a fault.
  func adviseRandom() { advise(MADV_RANDOM) }

  /// Lets the kernel read ahead around a fault as it sees fit.
  func adviseNormal() { advise(MADV_NORMAL) }

  private func advise(_ advice: Int32) {
    let start = pageStart(0)
    _ = unsafe madvise(base + start, count - start, advice)
  }

  /// Bytes of a huge page, for kernels that have them.
  package static let hugePageBytes = 2 << 20

  /// Backs the memory with huge pages where kernel and file system can: fewer TLB misses on random reads, and
  /// a fault brings 512 pages.
  ///
  /// Not for a file that is synced: dirtiness is tracked per huge page, so all of it is written back for any
  /// change.
  func adviseHugePages() { advise(MADV_HUGEPAGE) }

  /// Populates `range` now, rather than at the first store to each page.
  ///
  /// With random access advised it populates page by page; otherwise in the kernel's readahead units, and the
  /// first access waits for a whole unit.
  package func populate(_ range: Range<Int>) {
    check(range)
    let start = pageStart(range.lowerBound)
    // On a kernel without this call the pages fault in later: slower, not wrong.
    _ = unsafe sync_populate(base + start, UInt64(range.upperBound - start))
  }

  @inline(__always)
  private func check(_ offset: Int, _ size: Int) {
    precondition(offset >= 0 && size <= count && offset <= count - size, "access outside of a mapping")
  }

  @inline(__always)
  private func check(_ range: Range<Int>) {
    precondition(range.lowerBound >= 0 && range.upperBound <= count, "access outside of a mapping")
  }
}
