private import Glibc

/// A growing byte buffer for encoders. An array in a class would check unique ownership at each append.
///
/// This is one of the few files that use `unsafe`: the object owns the memory, and room is reserved before
/// each write.
///
/// Invariants: `count <= capacity`; the bytes below `count` are initialised.
@safe final class ByteBuffer {
  private var base: UnsafeMutablePointer<UInt8>
  private var capacity: Int
  private(set) var count = 0

  init(capacity: Int = 240) {
    self.capacity = capacity
    unsafe base = .allocate(capacity: capacity)
  }

  deinit { unsafe base.deallocate() }

  /// Drops the bytes from `count` on.
  func truncate(to count: Int) {
    precondition(count >= 0 && count <= self.count)
    self.count = count
  }

  /// Reserves room for `more` further bytes.
  @inline(__always)
  func reserve(_ more: Int) {
    if more > capacity &- count { grow(more) }
  }

  @inline(never)
  private func grow(_ more: Int) {
    let larger = max(2 * capacity, count + more)
    let moved = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
    unsafe moved.initialize(from: base, count: count)
    unsafe base.deallocate()
    unsafe base = moved
    capacity = larger
  }

  @inline(__always)
  func append(_ byte: UInt8) {
    reserve(1)
    unsafe base[count] = byte
    count &+= 1
  }

  /// Appends a byte and a big-endian number.
  @inline(__always)
  func append<Number: FixedWidthInteger>(_ byte: UInt8, bigEndian number: Number) {
    reserve(1 + MemoryLayout<Number>.size)
    unsafe base[count] = byte
    unsafe UnsafeMutableRawPointer(base + count + 1).storeBytes(of: number.bigEndian, as: Number.self)
    count &+= 1 &+ MemoryLayout<Number>.size
  }

  @inline(__always)
  func append(littleEndian number: UInt64) {
    reserve(8)
    unsafe UnsafeMutableRawPointer(base + count).storeBytes(of: number.littleEndian, as: UInt64.self)
    count &+= 8
  }

  func append(_ bytes: Span<UInt8>) {
    guard !bytes.isEmpty else { return }
    reserve(bytes.count)
    unsafe bytes.withUnsafeBufferPointer { bytes in
      unsafe (base + count).update(from: bytes.baseAddress!, count: bytes.count)
    }
    count &+= bytes.count
  }

  func append(_ bytes: RawSpan) {
    guard bytes.byteCount > 0 else { return }
    reserve(bytes.byteCount)
    _ = unsafe bytes.withUnsafeBytes { unsafe memcpy(base + count, $0.baseAddress!, $0.count) }
    count &+= bytes.byteCount
  }

  /// Appends the UTF-8 bytes of `text`; `head` first writes their number.
  @inline(__always)
  func append(_ text: String, head: (_ count: Int) -> Void) {
    let isContiguous: Void? = unsafe text.utf8.withContiguousStorageIfAvailable { bytes in
      head(bytes.count)
      guard bytes.count > 0 else { return }
      reserve(bytes.count)
      unsafe memcpy(base + count, bytes.baseAddress!, bytes.count)
      count &+= bytes.count
    }
    if isContiguous == nil {
      let bytes = Array(text.utf8)
      head(bytes.count)
      append(bytes.span)
    }
  }

  /// Inserts bytes at `place`, moving what follows.
  func insert(_ bytes: Span<UInt8>, at place: Int) {
    precondition(place <= count)
    guard !bytes.isEmpty else { return }
    reserve(bytes.count)
    unsafe memmove(base + place + bytes.count, base + place, count - place)
    unsafe bytes.withUnsafeBufferPointer { bytes in
      unsafe (base + place).update(from: bytes.baseAddress!, count: bytes.count)
    }
    count += bytes.count
  }

  subscript(place: Int) -> UInt8 {
    @inline(__always) get {
      precondition(place >= 0 && place < count)
      return unsafe base[place]
    }
    @inline(__always) set {
      precondition(place >= 0 && place < count)
      unsafe base[place] = newValue
    }
  }

  /// Passes a range of the bytes to `body`, in place.
  @inline(__always)
  func withSpan<Result, Failure: Error>(
    _ range: Range<Int>, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    precondition(range.lowerBound >= 0 && range.upperBound <= count)
    let bytes = unsafe UnsafeBufferPointer(start: base + range.lowerBound, count: range.count)
    return try body(unsafe bytes.span)
  }

  /// A copy of a range of the bytes.
  func bytes(_ range: Range<Int>) -> [UInt8] { withSpan(range) { [UInt8](copying: $0) } }

  /// The little-endian integer at `place`.
  @inline(__always)
  func load<Number: FixedWidthInteger & BitwiseCopyable>(_ place: Int, as _: Number.Type = Number.self)
    -> Number
  {
    precondition(place >= 0 && place <= count &- MemoryLayout<Number>.size)
    return unsafe Number(littleEndian: UnsafeRawPointer(base + place).loadUnaligned(as: Number.self))
  }

  /// Decodes a range as UTF-8; nil if it is invalid.
  @inline(__always)
  func text(_ range: Range<Int>) -> String? {
    withSpan(range) { bytes in
      do { return String(copying: try UTF8Span(validating: bytes)) } catch { return nil }
    }
  }

  /// Whether the bytes from `place` on equal the text, whose UTF-8 has `length` bytes.
  @inline(__always)
  func holds(_ text: String, at place: Int, length: Int) -> Bool {
    guard place >= 0, length >= 0, length <= count &- place else { return false }
    let isEqual = unsafe text.utf8.withContiguousStorageIfAvailable { bytes in
      guard bytes.count == length else { return false }
      guard length > 0 else { return true }
      return unsafe memcmp(base + place, bytes.baseAddress!, length) == 0
    }
    return isEqual ?? text.utf8.elementsEqual(self.bytes(place..<(place + length)))
  }
}

extension RawSpan {
  /// The bytes decoded as UTF-8; nil if they are invalid.
  @inline(__always)
  var text: String? { unsafe withUnsafeBytes { unsafe String(validating: $0, as: UTF8.self) } }
}

extension [UInt8] {
  /// The little-endian integer at `place`.
  @inline(__always)
  func load<Number: FixedWidthInteger & BitwiseCopyable>(_ place: Int, as _: Number.Type = Number.self)
    -> Number
  {
    unsafe span.bytes.load(place)
  }
}

/// A cast without cost if the types are equal; nil otherwise.
@inline(__always)
func staticCast<Value, Other>(_ value: Value, as _: Other.Type) -> Other? {
  guard Value.self == Other.self else { return nil }
  return unsafe withUnsafePointer(to: value) { pointer in
    unsafe UnsafeRawPointer(pointer).load(as: Other.self)
  }
}
