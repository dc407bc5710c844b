private import CZlib

/// zlib streams (RFC 1950) of whole payloads in memory.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
enum Compression {
  /// Payloads below this many bytes are not worth the setting up of a stream.
  static let minimumBytes = 256
  /// Of a payload above this many bytes a sample is tried first.
  private static let sampledBytes = 32 << 10

  /// The stream for `payload`, fastest level; nil if it would not be shorter.
  static func deflate(_ payload: [UInt8]) -> [UInt8]? {
    guard payload.count >= minimumBytes else { return nil }
    // Deflating what does not shrink costs as much as all the rest of a transfer together: eight places tell.
    if payload.count > sampledBytes {
      let piece = 1024
      let stride = (payload.count - piece) / 7
      let sample = (0..<8).flatMap { payload[($0 * stride)..<($0 * stride + piece)] }
      guard deflate(sample, limit: sample.count * 15 / 16) != nil else { return nil }
    }
    return deflate(payload, limit: payload.count - 1)
  }

  /// The `count` bytes that `stream` holds. Never takes memory for more (F79); nil if it holds fewer or more, or is
  /// followed by anything.
  static func inflate(_ stream: [UInt8], count: Int) -> [UInt8]? {
    var isExact = false
    let payload = unsafe [UInt8](unsafeUninitializedCapacity: max(count, 1)) { output, initialized in
      unsafe stream.withUnsafeBufferPointer { input in
        var state = unsafe z_stream()
        guard unsafe sync_inflate_start(&state) == Z_OK else { fatalError("zlib: no memory") }
        defer { unsafe inflateEnd(&state) }
        unsafe state.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
        unsafe state.avail_in = UInt32(input.count)
        unsafe state.next_out = output.baseAddress
        unsafe state.avail_out = UInt32(count)
        let result = unsafe CZlib.inflate(&state, Z_FINISH)
        isExact = unsafe result == Z_STREAM_END && state.avail_in == 0 && state.avail_out == 0
        unsafe initialized = count - Int(state.avail_out)
      }
    }
    return isExact ? payload : nil
  }

  private static func deflate(_ payload: [UInt8], limit: Int) -> [UInt8]? {
    // A window no larger than the payload: a stream for a few records costs a few KiB instead of 268.
    let windowBits = Int32(min(15, max(10, Int.bitWidth - (payload.count - 1).leadingZeroBitCount)))
    var isShorter = false
    let stream = unsafe [UInt8](unsafeUninitializedCapacity: limit) { output, initialized in
      unsafe payload.withUnsafeBufferPointer { input in
        var state = unsafe z_stream()
        guard unsafe sync_deflate_start(&state, Z_BEST_SPEED, windowBits, windowBits - 7) == Z_OK else {
          fatalError("zlib: no memory")
        }
        defer { unsafe deflateEnd(&state) }
        unsafe state.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
        unsafe state.avail_in = UInt32(input.count)
        unsafe state.next_out = output.baseAddress
        unsafe state.avail_out = UInt32(limit)
        isShorter = unsafe CZlib.deflate(&state, Z_FINISH) == Z_STREAM_END
        unsafe initialized = limit - Int(state.avail_out)
      }
    }
    return isShorter ? stream : nil
  }
}
