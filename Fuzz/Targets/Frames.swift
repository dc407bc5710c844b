import Replication
import SyncStore

/// Foreign bytes as a connection gives them: cut into frames in pieces, each frame decoded, and the message the same when it is
/// encoded and decoded again.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int32 {
  let bytes = [UInt8](UnsafeBufferPointer(start: start, count: count))
  guard let first = bytes.first else { return 0 }
  let stages: [FrameStage] = [.handshake, .session, .pairing]
  var decoder = FrameDecoder(stage: stages[Int(first) % stages.count])
  let piece = max(1, Int(first) / stages.count)
  for place in stride(from: 1, to: bytes.count, by: piece) {
    decoder.append(Array(bytes[place..<min(place + piece, bytes.count)]))
    do {
      while let frame = try decoder.next() {
        guard let message = try Message.decode(frame) else { continue }
        // Not the same bytes: what a later version adds to its greeting is passed over.
        precondition(
          (try? Message.decode(message.frame)) == message, "a message does not come back: \(message)")
      }
    } catch { return 0 }
  }
  return 0
}
