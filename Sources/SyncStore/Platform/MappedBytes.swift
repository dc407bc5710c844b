private import CLinux
private import Glibc

/// Bytes of a mapping that the caller keeps alive. A bare pointer, because reference counting would cost more
/// than the reads; all access is bounds-checked.
@safe struct MappedBytes {
  private let start: UnsafeRawPointer?
  let count: Int

  @unsafe init(start: UnsafeRawPointer?, count: Int) {
    unsafe (self.start, self.count) = (start, count)
  }

  /// All bytes of `mapping`, which the caller must keep alive.
  init(_ mapping: Mapping) { unsafe self.init(start: mapping.unsafeStart, count: mapping.count) }

  /// The first `count` bytes.
  @inline(__always)
  func prefix(_ count: Int) -> MappedBytes {
    precondition(count >= 0 && count <= self.count, "access outside of a mapping")
    return unsafe MappedBytes(start: start, count: count)
  }

  /// The bytes in `range`.
  @inline(__always)
  func extracting(_ range: Range<Int>) -> MappedBytes {
    precondition(range.lowerBound >= 0 && range.upperBound <= count, "access outside of a mapping")
    guard let start = unsafe start else { return self }
    return unsafe MappedBytes(start: start + range.lowerBound, count: range.count)
  }

  /// The little-endian integer at `offset`.
  @inline(__always)
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ offset: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    unsafe Integer(littleEndian: pointer(offset, MemoryLayout<Integer>.size).loadUnaligned(as: Integer.self))
  }

  /// The bytes in `range`, in place, for the duration of `body`.
  @inline(__always)
  func withBytes<Result, Failure: Error>(
    _ range: Range<Int>, _ body: (RawSpan) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe pointer(range.lowerBound, range.count)
    return try body(unsafe UnsafeRawBufferPointer(start: start, count: range.count).bytes)
  }

  /// The bytes in `range`, in place, for the duration of `body`.
  @inline(__always)
  func withSpan<Result>(_ range: Range<Int>, _ body: (Span<UInt8>) -> Result) -> Result {
    let start = unsafe pointer(range.lowerBound, range.count).assumingMemoryBound(to: UInt8.self)
    return body(unsafe UnsafeBufferPointer(start: start, count: range.count).span)
  }

  /// A copy of the bytes in `range`.
  @inline(__always)
  func bytes(_ range: Range<Int>) -> [UInt8] {
    let start = unsafe pointer(range.lowerBound, range.count)
    return unsafe Array(UnsafeRawBufferPointer(start: start, count: range.count))
  }

  /// Whether the bytes from `offset` on equal `other`. Compared inline: keys are short, and a call would take
  /// longer.
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

  /// Prefetches the second and third cache line: they are needed as soon as the first has come.
  @inline(__always)
  func prefetch() {
    guard let start = unsafe start else { return }
    unsafe sync_prefetch(start + 64)
    unsafe sync_prefetch(start + 128)
  }

  @inline(__always)
  fileprivate func pointer(_ offset: Int, _ size: Int) -> UnsafeRawPointer {
    precondition(offset >= 0 && size >= 0 && offset <= count &- size, "access outside of a mapping")
    guard let start = unsafe start else { preconditionFailure("access outside of a mapping") }
    return unsafe start + offset
  }
}

/// Writable bytes of a mapping that the caller keeps alive.
///
/// This is one of the few files that use `unsafe`: the checks here are all that keeps accesses in bounds.
@safe struct WritableBytes {
  private let start: UnsafeMutableRawPointer
  let count: Int

  @unsafe private init(start: UnsafeMutableRawPointer, count: Int) {
    unsafe (self.start, self.count) = (start, count)
  }

  /// All bytes of `mapping`, which the caller must keep alive.
  init(_ mapping: Mapping) {
    unsafe self.init(start: UnsafeMutableRawPointer(mutating: mapping.unsafeStart), count: mapping.count)
  }

  /// The bytes in `range`.
  @inline(__always)
  func extracting(_ range: Range<Int>) -> WritableBytes {
    precondition(range.lowerBound >= 0 && range.upperBound <= count, "access outside of a mapping")
    return unsafe WritableBytes(start: start + range.lowerBound, count: range.count)
  }

  /// Stores an integer at `offset`, little-endian.
  @inline(__always)
  func store<Integer: FixedWidthInteger & BitwiseCopyable>(_ value: Integer, at offset: Int) {
    let size = MemoryLayout<Integer>.size
    precondition(offset >= 0 && size <= count && offset <= count &- size, "access outside of a mapping")
    unsafe (start + offset).storeBytes(of: value.littleEndian, as: Integer.self)
  }

  /// Stores `bytes` from `offset` on.
  @inline(__always)
  func store(_ bytes: Span<UInt8>, at offset: Int) {
    precondition(offset >= 0 && offset <= count &- bytes.count, "access outside of a mapping")
    unsafe bytes.withUnsafeBytes { source in
      guard let base = source.baseAddress else { return }
      unsafe memcpy(start + offset, base, source.count)
    }
  }

  /// Stores `bytes` from the start.
  @inline(__always)
  func store(_ bytes: MappedBytes) {
    precondition(bytes.count <= count, "access outside of a mapping")
    guard bytes.count > 0 else { return }
    unsafe memcpy(start, bytes.pointer(0, bytes.count), bytes.count)
  }

  /// Zeros the bytes from `offset` on.
  @inline(__always)
  func clear(from offset: Int) {
    precondition(offset >= 0 && offset <= count, "access outside of a mapping")
    var next = offset
    while next < count {
      unsafe (start + next).storeBytes(of: 0, as: UInt8.self)
      next &+= 1
    }
  }

  /// The bytes in `range`, in place, for the duration of `body`.
  @inline(__always)
  func withBytes<Result>(_ range: Range<Int>, _ body: (RawSpan) -> Result) -> Result {
    precondition(range.lowerBound >= 0 && range.upperBound <= count, "access outside of a mapping")
    return body(unsafe UnsafeRawBufferPointer(start: start + range.lowerBound, count: range.count).bytes)
  }
}
