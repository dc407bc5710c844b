private import CDeflate
private import SyncStore

/// zlib streams (RFC 1950) of whole payloads in memory, by libdeflate.
///
/// For payloads that are in memory as a whole it takes half the time of zlib
/// (docs/decisions/0021-libdeflate.md).
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
package enum Compression {
  /// Payloads with fewer bytes are not compressed.
  static let minimumBytes = 256
  /// Payloads with more bytes are tested with a sample first.
  private static let sampledBytes = 32 << 10
  private static let fastest: Int32 = 1

  /// Compresses `payload` at the fastest level; nil if the stream would not be shorter.
  static func deflate(_ payload: [UInt8]) -> [UInt8]? {
    guard payload.count >= minimumBytes else { return nil }
    // Deflating incompressible data would cost as much as the rest of a transfer: try eight pieces of it
    // first.
    if payload.count > sampledBytes {
      let piece = 1024
      let stride = (payload.count - piece) / 7
      let sample = (0..<8).flatMap { payload[($0 * stride)..<($0 * stride + piece)] }
      guard deflate(sample, limit: sample.count * 15 / 16) != nil else { return nil }
    }
    return deflate(payload, limit: payload.count - 1)
  }

  /// Inflates `stream` to exactly `count` bytes.
  ///
  /// Never allocates more (F79). Nil if the stream holds fewer or more bytes, or if bytes follow it.
  package static func inflate(_ stream: [UInt8], count: Int) -> [UInt8]? {
    var isExact = false
    let payload = unsafe [UInt8](unsafeUninitializedCapacity: max(count, 1)) { output, initialized in
      unsafe stream.withUnsafeBufferPointer { input in
        unsafe decompressors.use { decompressor in
          var (taken, given) = (0, 0)
          let result = unsafe libdeflate_zlib_decompress_ex(
            decompressor, input.baseAddress, input.count, output.baseAddress, count, &taken, &given)
          isExact = result == LIBDEFLATE_SUCCESS && taken == input.count && given == count
        }
      }
      initialized = isExact ? count : 0
    }
    return isExact ? payload : nil
  }

  /// A gzip file (RFC 1952) of `payload`.
  package static func gzip(_ payload: [UInt8]) -> [UInt8] {
    unsafe payload.withUnsafeBufferPointer { input in
      var file: [UInt8] = []
      unsafe compressors.use { compressor in
        // Room for payloads that cannot be compressed: it never fails.
        let room = unsafe libdeflate_gzip_compress_bound(compressor, input.count)
        file = unsafe [UInt8](unsafeUninitializedCapacity: room) { output, initialized in
          initialized = unsafe libdeflate_gzip_compress(
            compressor, input.baseAddress, input.count, output.baseAddress, output.count)
        }
      }
      return file
    }
  }

  private static func deflate(_ payload: [UInt8], limit: Int) -> [UInt8]? {
    var count = 0
    let stream = unsafe [UInt8](unsafeUninitializedCapacity: limit) { output, initialized in
      unsafe payload.withUnsafeBufferPointer { input in
        unsafe compressors.use { compressor in
          count = unsafe libdeflate_zlib_compress(
            compressor, input.baseAddress, input.count, output.baseAddress, output.count)
        }
      }
      initialized = min(count, limit)
    }
    return count > 0 ? stream : nil
  }

  private static let compressors = unsafe CodecPool(
    make: { unsafe libdeflate_alloc_compressor(fastest) }, free: { unsafe libdeflate_free_compressor($0) })
  private static let decompressors = unsafe CodecPool(
    make: { unsafe libdeflate_alloc_decompressor() }, free: { unsafe libdeflate_free_decompressor($0) })
}

/// A pool of at most four idle libdeflate (de)compressors: creating one costs more than a small payload.
@safe private final class CodecPool: @unchecked Sendable {
  @safe private struct Spares: @unchecked Sendable {
    var tools = unsafe [OpaquePointer]()
  }

  private let spares = LockedField(Spares())
  private let make: @Sendable () -> OpaquePointer?
  private let free: @Sendable (OpaquePointer) -> Void
  private static let most = 4

  init(make: @escaping @Sendable () -> OpaquePointer?, free: @escaping @Sendable (OpaquePointer) -> Void) {
    unsafe (self.make, self.free) = (make, free)
  }

  func use(_ body: (OpaquePointer) -> Void) {
    let spare = unsafe spares.withLock { unsafe $0.tools.popLast() }
    guard let tool = unsafe spare ?? make() else { fatalError("libdeflate: no memory") }
    unsafe body(tool)
    let isKept = spares.withLock { spares in
      guard unsafe spares.tools.count < Self.most else { return false }
      unsafe spares.tools.append(tool)
      return true
    }
    if !isKept { unsafe free(tool) }
  }
}
