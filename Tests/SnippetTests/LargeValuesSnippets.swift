import SyncStore
import Testing

/// The code of `LargeValues.md`. `DocumentTests` sees to it that the two are the same.
@Suite struct LargeValuesSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("what the page says happens")
  func run() throws {
    let store = try Store.create(at: here + "store")
    try scratch.write("report.pdf", [UInt8](repeating: 7, count: 100_000))
    // snippet
    try store.put("report/may", fileAt: here + "report.pdf")  // streamed, not read into memory
    let found = try store.export("report/may", toFileAt: here + "copy.pdf")  // false: no value
    // end
    #expect(found)
    #expect(try scratch.read("copy.pdf").count == 100_000)
    // snippet
    if let entry = try store.entry("report/may") {
      print(entry.size, entry.blob?.hash.description ?? "in the journal")
    }
    // end
    // snippet
    try store.transaction { transaction in
      try transaction.put("report/june", fileAt: here + "report.pdf")
      try transaction.put("report/june/title", "June")
    }
    // end
    #expect(try store.entry("report/june")?.blob?.hash == store.entry("report/may")?.blob?.hash)
    #expect(try store.entry("report/june")?.blob != nil)
    try store.close()
  }
}
