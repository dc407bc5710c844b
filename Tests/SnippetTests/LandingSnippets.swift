import SyncStore
import Testing

/// The code of `SyncStore.md`. `GuideTests` checks that both are equal.
@Suite struct LandingSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let store = try Store.create(at: here + "shop")
    try store.put("order/1", "3 apples")  // durable when it returns
    try store.transaction { transaction in  // all or nothing
      try transaction.put("stock/apples", 97)
      try transaction.delete("order/1")
    }
    print(try store.get("stock/apples", default: 0))  // 97
    // end
    #expect(try store.get("stock/apples", default: 0) == 97)
    #expect(try !store.contains("order/1"))
    try store.close()
  }
}
