import SyncStore
import Testing

/// The code of `AsynchronousCode.md`. `GuideTests` checks that both are equal.
@Suite struct AsynchronousCodeSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() async throws {
    // snippet
    let store = try await AsyncStore.openOrCreate(at: here + "shop")
    try await store.put("order/1", "3 apples")  // durable when it returns
    let order = try store.store.get("order/1", as: String.self)  // waits for nothing
    // end
    #expect(order == "3 apples")
    // snippet
    try await withThrowingTaskGroup { group in
      for number in 2...50 {
        group.addTask { try await store.put(Key("order/\(number)"), number) }
      }
      try await group.waitForAll()
    }
    // end
    // snippet
    let left = try await store.transaction { transaction in
      try transaction.update("stock/apples", default: 100) { $0 -= 3 }
    }
    // end
    #expect(left == 97)
    let file = here + "backup"
    try await store.run { try $0.backUp(to: file) }
    // snippet
    let apples = try await store.run { store in
      try store.list(prefix: Array("order/".utf8)).count
    }
    let reclaimed = try await store.run { try $0.compact() }
    let backup = try await Store.run { try Store.backupSummary(of: file) }
    // end
    #expect(apples == 50 && reclaimed >= 0 && backup.states.count == 1)
    // snippet
    let (first, count) = try await store.run { store in
      let snapshot = try store.snapshot()
      return (try snapshot.get("order/1", as: String.self), try snapshot.count)
    }
    // end
    #expect(first == "3 apples" && count == 51)
    // snippet
    struct Visit: Codable, Identifiable, Sendable {
      let id: Int
      var page: String
    }

    let visits = try await store.run { try $0.collection("visits", of: Visit.self) }
    try await visits.run { try $0.insert(Visit(id: 1, page: "/")) }
    try await store.transaction { try visits.insert(Visit(id: 2, page: "/cart"), in: &$0) }
    let visit = try visits.get(1)
    // end
    #expect(visit?.page == "/")
    #expect(try visits.count == 2)
    // snippet
    let writing = Task { try await store.put("order/51", 51) }
    do {
      try await writing.value
    } catch let error as StoreError {
      print(error.code, error.message)
    }
    // end
    // snippet
    try await store.close()
    // end
  }
}
