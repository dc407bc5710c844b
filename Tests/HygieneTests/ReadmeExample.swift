import Foundation
import SyncStore
import Testing

/// The library example of the README, run. `DocumentTests` sees to it that the two are the same.
@Suite struct ReadmeExample {
  @Test("the README's example does what its comments say")
  func run() throws {
    let path = NSTemporaryDirectory() + "sync-store-readme-" + UUID().uuidString
    defer { try? FileManager.default.removeItem(atPath: path) }

    let store = try Store.create(at: path)
    try store.put("order/1", Array("3 apples".utf8))
    print(try store.get("order/1")?.bytes.count ?? 0)
    #expect(try store.get("order/1")?.bytes.count == 8)
    try store.transaction { transaction in
      try transaction.put("stock/apples", Array("97".utf8))
      _ = try transaction.delete("order/1")
    }
    for entry in try store.list(prefix: Array("stock/".utf8)) { print(entry.key, entry.size) }
    #expect(try store.list().map(\.key) == ["stock/apples"])
    let snapshot = try store.snapshot()
    try snapshot.scan(KeyRange(prefix: "stock/"), reversed: true) { key, value in
      print(key.byteCount, value.byteCount)
    }
    let seen = try store.versioned("stock/apples")
    let expected: Expected = seen.map { .version($0.version) } ?? .absent
    _ = try store.put("stock/apples", Array("96".utf8), expecting: expected)
    #expect(try store.get("stock/apples")?.bytes == Array("96".utf8))
    #expect(try snapshot.get("stock/apples")?.bytes == Array("97".utf8))
    try store.put("retries", 5)
    print(try store.get("retries", default: 3))
    #expect(try store.get("retries", default: 3) == 5)
    struct Order: Codable, Identifiable { var id: Int, customer: String }
    let orders = try store.collection("orders", of: Order.self)
    try orders.insert(Order(id: 7, customer: "Ann"))
    print(try orders.all(in: 1...9).map(\.customer))
    #expect(try orders.all(in: 1...9).map(\.customer) == ["Ann"])
    try store.close()
  }
}
