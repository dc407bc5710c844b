import Foundation
import SyncTestSupport
import Testing

/// Replays the inputs of the fuzzer that is built from the sources of `sync-cli`.
@Suite struct ArgumentCorpusTests {
  @Test("The corpus of command lines and configurations never crashes the parser, however they are truncated")
  func replay() throws { try replay("Arguments", ForeignArguments.read) }

  @Test("The corpus of HTTP requests never crashes the parser, however they are truncated")
  func requests() throws { try replay("Requests", ForeignRequests.read) }

  private func replay(_ name: String, _ read: ([UInt8]) -> Void) throws {
    let corpus = Checkout.url("Fuzz/Corpus/\(name)")
    let names = try FileManager.default.contentsOfDirectory(atPath: corpus.path)
    #expect(!names.isEmpty)
    for name in names {
      let bytes = [UInt8](try Data(contentsOf: corpus.appendingPathComponent(name)))
      for count in stride(from: 0, to: bytes.count, by: max(1, bytes.count / 40)) {
        read(Array(bytes.prefix(count)))
      }
      read(bytes)
    }
  }
}
