package import SyncStore

/// A frame on the wire: a type and its payload.
package struct Frame: Hashable, Sendable {
  /// The type of the message; `MessageType` has the known ones.
  package var type: UInt8
  /// The bytes after the type.
  package var payload: [UInt8]

  /// Both fields.
  package init(type: UInt8, payload: [UInt8]) { (self.type, self.payload) = (type, payload) }

  /// Bytes before the payload: length of type and payload (4 bytes, little-endian), type.
  package static let headerBytes = 5

  /// The frame's bytes on the wire.
  package var bytes: [UInt8] { bytes(before: 0) }

  /// The frame's bytes on the wire with `tail` after its payload. A small tail is copied into one piece; a
  /// large one stays a piece of its own.
  func bytes(with tail: [UInt8]) -> [[UInt8]] {
    let head = bytes(before: tail.count)
    return tail.count < Self.pieceBytes ? [head + tail] : [head, tail]
  }

  /// Byte strings of at least this length are not copied.
  package static let pieceBytes = 64 << 10

  private func bytes(before tail: Int) -> [UInt8] {
    var writer = ByteWriter(capacity: Self.headerBytes + payload.count)
    writer.write(UInt32(payload.count + tail + 1))
    writer.write(type)
    writer.write(raw: payload)
    return writer.bytes
  }
}

/// The frames that a connection accepts in its current stage, and their maximum sizes.
package enum FrameStage: Hashable, Sendable {
  /// Nothing is negotiated yet: small frames only.
  case handshake
  /// Batches and blob ranges are accepted.
  case session
  /// An invitation is being redeemed; the peer has not proven that it holds one.
  case pairing

  /// Maximum bytes of the payload of a frame of `type`; nil if the type is not accepted.
  package func limit(of type: UInt8) -> Int? {
    switch self {
    case .pairing:
      return type == MessageType.joinAccept.rawValue
        ? WireLimits.joinAcceptBytes : WireLimits.pairingFrameBytes
    case .handshake:
      switch type {
      case MessageType.batch.rawValue, MessageType.blobRange.rawValue, MessageType.differingRecords.rawValue:
        return nil
      default: return Limits.controlFrameBytes
      }
    case .session:
      switch type {
      case MessageType.batch.rawValue: return WireLimits.encryptedBatchBytes + 16
      case MessageType.blobRange.rawValue: return WireLimits.encryptedBlobRangeBytes + 64
      case MessageType.differingRecords.rawValue:
        return WireLimits.encryptedBatchBytes + 8 * WireLimits.repairKeys + 16
      default: return Limits.controlFrameBytes
      }
    }
  }
}

/// Cuts a stream of bytes into frames.
///
/// Invariants: a length is checked as soon as its five header bytes have arrived, before any byte of the
/// payload is kept; memory is at most four times the bytes received, whatever length was announced (F78);
/// each byte is copied at most twice.
package struct FrameDecoder {
  /// The current stage. A change applies from the next header on.
  package var stage: FrameStage

  private var input: [UInt8] = []
  private var index = 0
  private var header: [UInt8] = []
  private var payload: [UInt8] = []
  private var missing = 0

  /// Creates an empty decoder.
  package init(stage: FrameStage) { self.stage = stage }

  /// Appends received bytes. Drain all frames with `next` before the next call.
  package mutating func append(_ bytes: [UInt8]) {
    if index == input.count {
      input = bytes
      index = 0
    } else {
      input.append(contentsOf: bytes)
    }
  }

  /// The next complete frame; nil until more bytes arrive. An error is final: the stream cannot be
  /// resynchronized.
  package mutating func next() throws(DecodingFailure) -> Frame? {
    if header.count < Frame.headerBytes {
      let taken = min(Frame.headerBytes - header.count, input.count - index)
      header.append(contentsOf: input[index..<(index + taken)])
      index += taken
      guard header.count == Frame.headerBytes else { return nil }
      missing = try payloadCount()
    }
    let taken = min(missing, input.count - index)
    let (here, whole) = (payload.count + taken, payload.count + missing)
    if here > payload.capacity { payload.reserveCapacity(min(whole, 4 * here)) }
    payload.append(contentsOf: input[index..<(index + taken)])
    index += taken
    missing -= taken
    guard missing == 0 else { return nil }
    let frame = Frame(type: header[4], payload: payload)
    header.removeAll(keepingCapacity: true)
    payload = []
    // Free the buffers: thousands of idle connections keep no memory.
    if index == input.count { (input, index) = ([], 0) }
    return frame
  }

  private func payloadCount() throws(DecodingFailure) -> Int {
    var reader = ByteReader(header)
    let length = Int(try reader.read(UInt32.self))
    let type = header[4]
    guard length > 0 else { throw DecodingFailure("frame of length 0") }
    guard let limit = stage.limit(of: type) else {
      throw DecodingFailure("frame of type \(type) before the handshake")
    }
    guard length - 1 <= limit else {
      throw DecodingFailure(
        "frame of type \(type) announces \(CountText.of(length - 1, noun: "byte")), at most \(limit) may come"
      )
    }
    return length - 1
  }
}
