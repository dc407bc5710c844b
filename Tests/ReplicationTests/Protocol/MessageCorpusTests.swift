import Foundation
import Replication
import SyncTestSupport
import Testing

/// Fuzzing reaches the content of a message only from a well-formed one.
@Suite struct MessageCorpusTests {
  @Test("The corpus of frames has a message of every kind")
  func complete() throws {
    let corpus = Checkout.url("Fuzz/Corpus/Frames")
    var found: Set<UInt8> = []
    for name in try FileManager.default.contentsOfDirectory(atPath: corpus.path) {
      var decoder = FrameDecoder(stage: .session)
      // The byte before the frames says how they are cut.
      decoder.append(
        [UInt8](try Data(contentsOf: corpus.appendingPathComponent(name))).dropFirst().map { $0 })
      while let frame = try? decoder.next() {
        if (try? Message.decode(frame)) != nil { found.insert(frame.type) }
      }
    }
    #expect(Set(MessageType.allCases.map(\.rawValue)).subtracting(found) == [])
  }
}
