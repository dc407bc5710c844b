import Foundation
import SyncTestSupport
import Testing

/// Replays the seed inputs of the fuzzers, and those that once caused a failure, in every run of the tests.
@Suite("The fuzzing corpus")
struct CorpusTests {
  @Test("each reader has inputs, and each input directory a target")
  func complete() throws {
    for name in ForeignBytes.readers.keys {
      #expect(!Repository.files(in: "Fuzz/Corpus/\(name)", ending: "").isEmpty, "no inputs for \(name)")
      #expect(
        try Repository.read("Fuzz/Targets/\(name).swift").contains("ForeignBytes."), "no target \(name)")
    }
  }

  @Test("no input causes a crash", arguments: ForeignBytes.readers.keys.sorted())
  func replay(name: String) throws {
    let read = try #require(ForeignBytes.readers[name])
    for path in Repository.files(in: "Fuzz/Corpus/\(name)", ending: "") {
      let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: Repository.top + "/" + path)))
      read(bytes)
      // Truncated inputs, too; fewer where each costs a store.
      let cuts = ["Catalogues", "Forgeries", "Stores"].contains(name) ? 2 : 40
      for count in stride(from: 0, to: bytes.count, by: max(1, bytes.count / cuts)) {
        read(Array(bytes.prefix(count)))
      }
    }
  }
}
