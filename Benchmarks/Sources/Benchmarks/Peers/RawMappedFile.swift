import Foundation

/// Lower bound of a durable put on this machine: a few bytes copied into a mapped, preallocated and populated
/// file, then `fdatasync`. No index, no checksum, no lock.
@safe
final class RawMappedFile {
  /// A record of 116 bytes and a header of 32.
  static let recordBytes = 148
  static let title = "raw"

  private let descriptor: Int32
  private let map: UnsafeMutableRawPointer
  private let bytes: Int
  private var tail = 0

  init(at path: String, records: Int) throws {
    unsafe descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
    bytes = (records * Self.recordBytes + 4095) & ~4095
    guard descriptor >= 0, posix_fallocate(descriptor, 0, bytes) == 0 else {
      throw BenchmarkError("\(path) cannot be made: errno \(errno)")
    }
    let mapped = unsafe mmap(nil, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
    guard let mapped = unsafe mapped, unsafe mapped != MAP_FAILED else {
      throw BenchmarkError("\(path) cannot be mapped: errno \(errno)")
    }
    unsafe map = mapped
    // Touches each page, and syncs so that the blocks are written extents, before timing starts.
    for page in stride(from: 0, to: bytes, by: 4096) {
      unsafe map.storeBytes(of: 0, toByteOffset: page, as: UInt8.self)
    }
    guard fdatasync(descriptor) == 0 else { throw BenchmarkError("\(path) cannot be synced: errno \(errno)") }
  }

  deinit {
    unsafe munmap(map, bytes)
    Glibc.close(descriptor)
  }

  /// Appends one record, on disk when it returns.
  func append(_ key: InlineKey, _ value: [UInt8]) throws {
    unsafe map.storeBytes(of: UInt64(tail), toByteOffset: tail, as: UInt64.self)
    let content = unsafe map + tail + Self.recordBytes - Payload.recordBytes
    unsafe withUnsafeBytes(of: key) { bytes in
      unsafe content.copyMemory(from: bytes.baseAddress!, byteCount: bytes.count)
    }
    unsafe value.withUnsafeBytes { bytes in
      unsafe (content + 16).copyMemory(from: bytes.baseAddress!, byteCount: bytes.count)
    }
    tail += Self.recordBytes
    guard fdatasync(descriptor) == 0 else { throw BenchmarkError("fdatasync failed: errno \(errno)") }
  }
}
