import SyncStore
import Testing

/// The code of `README.md`. `GuideTests` checks that both are equal.
@Suite struct ReadmeSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples behave as their comments say")
  func run() throws {
    // snippet
    let store = try Store.create(at: here + "shop")  // or Store.open(at: here + "shop")
    try store.put("order/1", Array("3 apples".utf8))  // durable when it returns
    print(try store.get("order/1")?.bytes.count ?? 0)  // 8
    try store.transaction { transaction in  // all or nothing
      try transaction.put("stock/apples", Array("97".utf8))
      _ = try transaction.delete("order/1")
    }
    for entry in try store.list(prefix: Array("stock/".utf8)) { print(entry.key, entry.size) }
    let snapshot = try store.snapshot()  // what is written from now on does not show in it
    try snapshot.scan(KeyRange(prefix: "stock/"), reversed: true) { key, value in
      print(key.byteCount, value.byteCount)  // in place, nothing is copied
    }
    let seen = try store.versioned("stock/apples")  // compare and set: nil if another writer was faster
    let expected: Expected = seen.map { .version($0.version) } ?? .absent
    _ = try store.put("stock/apples", Array("96".utf8), expecting: expected)
    try store.put("retries", 5)  // any Codable, stored with its type
    print(try store.get("retries", default: 3))  // 5
    struct Order: Codable, Identifiable { var id: Int, customer: String }
    let orders = try store.collection("orders", of: Order.self)
    try orders.insert(Order(id: 7, customer: "Ann"))
    print(try orders.all(in: 1...9).map(\.customer))  // ["Ann"]
    try store.close()
    // end
    let again = try Store.open(at: here + "shop")
    #expect(try again.list().map(\.key).contains("stock/apples"))
    #expect(try !again.contains("order/1"))
    #expect(try again.get("stock/apples")?.bytes == Array("96".utf8))
    #expect(snapshot.store.path == again.path)
    #expect(try again.get("retries", default: 3) == 5)
    try again.close()
  }
}
