import Replication
import SyncStore
import SyncTestSupport
import Testing

@Suite struct FrameTests {
  @Test(
    "Frames are decoded as they were encoded, however the stream is split",
    arguments: [1, 2, 3, 4, 5, 6, 7, 64, 4096])
  func anyCut(size: Int) throws {
    let frames = [
      Frame(type: 1, payload: []), Frame(type: 7, payload: [1, 2, 3]),
      Frame(type: 4, payload: Array(repeating: 9, count: 9000)), Frame(type: 0x80, payload: [0]),
    ]
    let stream = frames.flatMap(\.bytes)
    var decoder = FrameDecoder(stage: .session)
    var found: [Frame] = []
    for start in stride(from: 0, to: stream.count, by: size) {
      decoder.append(Array(stream[start..<min(stream.count, start + size)]))
      while let frame = try decoder.next() { found.append(frame) }
    }
    #expect(found == frames)
  }

  @Test("F78 a length of zero, a huge one and a negative one are refused at the fifth byte")
  func badLengths() {
    for header: [UInt8] in [
      [0, 0, 0, 0, 1], [0xFF, 0xFF, 0xFF, 0x7F, 4], [0xFF, 0xFF, 0xFF, 0xFF, 4], [0, 0, 0, 0x80, 1],
    ] {
      var decoder = FrameDecoder(stage: .session)
      decoder.append(Array(header.dropLast()))
      #expect(throws: Never.self) { _ = try decoder.next() }
      decoder.append([header[4]])
      #expect(throws: DecodingFailure.self) { _ = try decoder.next() }
    }
  }

  @Test(
    "F78 each type has its own bound in each stage",
    arguments: [
      (FrameStage.handshake, MessageType.hello, Limits.controlFrameBytes as Int?),
      (.handshake, .batch, nil), (.handshake, .blobRange, nil),
      (.session, .hello, Limits.controlFrameBytes), (.session, .batch, WireLimits.encryptedBatchBytes + 16),
      (.session, .blobRange, WireLimits.encryptedBlobRangeBytes + 64),
      (.pairing, .joinRequest, WireLimits.pairingFrameBytes),
      (.pairing, .joinAccept, WireLimits.joinAcceptBytes),
      (.pairing, .batch, WireLimits.pairingFrameBytes),
    ])
  func bounds(stage: FrameStage, type: MessageType, limit: Int?) {
    func accepts(_ count: Int) -> Bool {
      var decoder = FrameDecoder(stage: stage)
      var writer = ByteWriter()
      writer.write(UInt32(count + 1))
      writer.write(type.rawValue)
      decoder.append(writer.bytes)
      do { return try decoder.next() == nil || count == 0 } catch { return false }
    }
    #expect(accepts(limit ?? 0) == (limit != nil))
    #expect(!accepts((limit ?? 0) + 1))
  }

  @Test(
    "F78 random bytes are refused or wait for more, and never crash the decoder",
    arguments: 1...50 as ClosedRange<UInt64>)
  func garbage(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var decoder = FrameDecoder(stage: .session)
    for _ in 0..<20 {
      decoder.append(random.bytes(Int(random.next() % 300)))
      do { while try decoder.next() != nil {} } catch { return }
    }
  }
}
