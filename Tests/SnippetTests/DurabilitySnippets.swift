import SyncStore
import Testing

/// The code of `DurabilityExplained.md`. `GuideTests` checks that both are equal.
@Suite struct DurabilitySnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let store = try Store.create(
      at: here + "metrics", configuration: Configuration(durability: .interval(milliseconds: 200)))
    try store.put("load", 0.7)  // at once
    try store.put("alarm", true, durability: .full)  // durable when it returns
    try store.sync()  // all before it is durable
    // end
    try store.close()
    // snippet
    var careful = Configuration()
    careful.onCorruption = { report in
      print(report.path, report.places.count)
      return .refuse
    }
    // end
    let again = try Store.open(at: here + "metrics", configuration: careful)
    #expect(try again.get("alarm", default: false))
    try again.close()
  }
}
