package import SyncStore

/// What travels on a connection: a type and its payload.
package struct Frame: Hashable, Sendable {
  /// What the payload is. `MessageType` names the known ones.
  package var type: UInt8
  /// The bytes after the type.
  package var payload: [UInt8]

  /// Both fields.
  package init(type: UInt8, payload: [UInt8]) { (self.type, self.payload) = (type, payload) }

  /// The bytes before the payload: length (4 bytes, little-endian, of type and payload), type.
  package static let headerBytes = 5

  /// The frame's bytes on the wire.
  package var bytes: [UInt8] { bytes(before: 0) }

  /// The frame's bytes on the wire if its payload ends with `tail`, too: in one piece if that is small.
  func bytes(with tail: [UInt8]) -> [[UInt8]] {
    let head = bytes(before: tail.count)
    return tail.count < Self.pieceBytes ? [head + tail] : [head, tail]
  }

  /// What is as large as this is not copied.
  package static let pieceBytes = 64 << 10

  private func bytes(before tail: Int) -> [UInt8] {
    var writer = ByteWriter(capacity: Self.headerBytes + payload.count)
    writer.write(UInt32(payload.count + tail + 1))
    writer.write(type)
    writer.write(raw: payload)
    return writer.bytes
  }
}

/// What may come on a connection at the moment, and how much of it.
package enum FrameStage: Hashable, Sendable {
  /// Nothing is agreed yet: small frames only.
  case handshake
  /// Batches and blob ranges may come.
  case session
  /// An invitation is being redeemed, by somebody who has not yet shown that he has one.
  case pairing

  /// The most bytes the payload of a frame of `type` may have; nil if no such frame may come at all.
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
/// Invariants: a length is checked as soon as its five header bytes are there, before any byte of the payload
/// is kept; memory is at most four times what has come, whatever was announced (F78); each byte is copied at most twice.
package struct FrameDecoder {
  /// What may come. Set it when the stage changes; it counts from the next header on.
  package var stage: FrameStage

  private var input: [UInt8] = []
  private var index = 0
  private var header: [UInt8] = []
  private var payload: [UInt8] = []
  private var missing = 0

  /// A decoder that has seen nothing.
  package init(stage: FrameStage) { self.stage = stage }

  /// Takes bytes that came from the connection. Take out all frames with `next` before the next call.
  package mutating func append(_ bytes: [UInt8]) {
    if index == input.count {
      input = bytes
      index = 0
    } else {
      input.append(contentsOf: bytes)
    }
  }

  /// The next whole frame; nil until more bytes come. A failure is final: the stream cannot be read on.
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
    // Thousands of connections that are quiet keep no bytes of their last words.
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
