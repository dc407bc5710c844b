import Foundation
import SyncTestSupport
import Testing

/// Replays the inputs of the fuzzer that is built from the sources of `sync-cli`.
@Suite struct ArgumentCorpusTests {
  @Test("The corpus of command lines and configurations never crashes the parser, however they are truncated")
  func replay() throws {
    let corpus = Checkout.url("Fuzz/Corpus/Arguments")
    let names = try FileManager.default.contentsOfDirectory(atPath: corpus.path)
    #expect(!names.isEmpty)
    for name in names {
      let bytes = [UInt8](try Data(contentsOf: corpus.appendingPathComponent(name)))
      for count in stride(from: 0, to: bytes.count, by: max(1, bytes.count / 40)) {
        ForeignArguments.read(Array(bytes.prefix(count)))
      }
      ForeignArguments.read(bytes)
    }
  }
}
