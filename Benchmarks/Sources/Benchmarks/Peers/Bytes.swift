// Conversions between keys and values and the `char *` and length of LevelDB and RocksDB.

/// A copy of the bytes: one allocation.
@inline(__always)
func copied(_ bytes: UnsafeRawPointer?, _ count: Int) -> [UInt8] {
  unsafe [UInt8](unsafeUninitializedCapacity: count) { array, initialized in
    if let bytes = unsafe bytes, count > 0 {
      unsafe UnsafeMutableRawBufferPointer(array).baseAddress?.copyMemory(from: bytes, byteCount: count)
    }
    initialized = count
  }
}

/// Lends the bytes of a key for one call.
@inline(__always)
func withCharacters<Result>(of key: InlineKey, _ body: (UnsafePointer<CChar>?, Int) -> Result) -> Result {
  unsafe withUnsafeBytes(of: key) { bytes in
    unsafe body(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
  }
}

/// Lends the bytes of a value for one call.
@inline(__always)
func withCharacters<Result>(of value: [UInt8], _ body: (UnsafePointer<CChar>?, Int) -> Result) -> Result {
  unsafe value.withUnsafeBytes { bytes in
    unsafe body(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
  }
}
