import SyncStore
import Testing

/// The code of `Transactions.md`. `GuideTests` checks that both are equal.
@Suite struct TransactionsSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("all or nothing")
  func transactions() throws {
    let store = try Store.create(at: here + "store")
    // snippet
    try store.put("stock/apples", 100)
    try store.transaction { transaction in
      let stock = try transaction.get("stock/apples", default: 0)
      try transaction.put("stock/apples", stock - 3)
      try transaction.put("order/1", "3 apples")
    }
    // end
    #expect(try store.get("stock/apples", default: 0) == 97)
    // snippet
    struct OutOfStock: Error {}
    do {
      try store.transaction { transaction in
        try transaction.put("order/2", "500 apples")
        guard try transaction.get("stock/apples", default: 0) >= 500 else { throw OutOfStock() }
      }
    } catch is OutOfStock {
      print(try store.contains("order/2"))  // false
    }
    // end
    #expect(try !store.contains("order/2"))
    try store.close()
  }

  @Test("compare and set")
  func compareAndSet() throws {
    let store = try Store.create(at: here + "store")
    // snippet
    let visits = try store.update("visits", default: 0) { $0 += 1 }
    // end
    #expect(visits == 1)
    // snippet
    func next(_ text: String?) -> String { (text ?? "") + "." }

    while true {
      let seen = try store.versioned("progress", as: String.self)
      if try store.put("progress", next(seen?.value), expecting: .unchanged(since: seen)) != nil { break }
    }
    // end
    #expect(try store.get("progress")?.bytes == [0x2e])
    // snippet
    let isMine = try store.put("leader", "host-a", expecting: .absent) != nil
    // end
    #expect(isMine)
    #expect(try store.put("leader", "host-b", expecting: .absent) == nil)
    // snippet
    try store.put("state", "idle")
    let begun = try store.put("state", "busy", expecting: .equal(to: "idle")) != nil
    // end
    #expect(begun)
    try store.close()
  }
}
