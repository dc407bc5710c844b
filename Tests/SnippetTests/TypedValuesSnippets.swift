import FoundationEssentials
import SyncStore
import SyncStoreFoundation
import Testing

/// The code of `TypedValues.md`. `GuideTests` checks that both are equal.
@Suite struct TypedValuesSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("values of any type")
  func values() throws {
    let store = try Store.create(at: here + "store")
    // snippet
    struct Settings: Codable, Equatable {
      var interval = 60
      var unit = "celsius"
      var thresholds: [Double] = [2.5, 8]
    }
    try store.put("settings", Settings())
    let settings = try store.get("settings", default: Settings())
    let none = try store.get("other", as: Settings.self)  // nil: no value
    // end
    #expect(settings == Settings())
    #expect(none == nil)
    // snippet
    try store.put("count", 300)
    do {
      _ = try store.get("count", as: UInt8.self)
    } catch let error where error.code == .outOfBounds {
      print(error.message)
    }
    // end
    // snippet
    try store.put("started", Date(timeIntervalSince1970: 1_700_000_000))
    let started = try store.get("started", as: Date.self)
    // end
    #expect(started == Date(timeIntervalSince1970: 1_700_000_000))
    #expect(try !store.putIfChanged("settings", Settings()))
    try store.close()
  }

  @Test("arrays of numbers and of bytes")
  func arrays() throws {
    let store = try Store.create(at: here + "store")
    // snippet
    try store.put("bytes", [1, 2, 3])  // three bytes, of the type `bytes`
    try store.put("numbers", [1, 300] as [Int])  // numbers; without `as` 300 is too large for a byte
    let numbers = try store.get("numbers", as: [Int].self)
    // end
    #expect(numbers == [1, 300])
    #expect(try store.entry("bytes")?.type == .bytes && store.entry("numbers")?.type == .cbor)
    #expect(try store.get("bytes")?.bytes == [1, 2, 3])
    try store.close()
  }

  /// `Date`, `UUID` and `Data` as a program without `SyncStoreFoundation` stores them: by their own
  /// `Codable`.
  @Test("dates and identifiers stored without Foundation are not read as such, and are put again")
  func withoutFoundation() throws {
    let store = try Store.create(at: here + "store")
    let date = Date(timeIntervalSince1970: 1_700_000_000)
    try store.put("visited/a", date.timeIntervalSinceReferenceDate)
    #expect(
      #expect(throws: StoreError.self) { try store.get("visited/a", as: Date.self) }?.code == .wrongType)
    try store.put("id", UUID().uuidString)
    #expect(#expect(throws: StoreError.self) { try store.get("id", as: UUID.self) }?.code == .wrongType)
    try store.put("data", [1, 2, 255] as [Int])
    #expect(try store.get("data", as: Data.self) == Data([1, 2, 255]))
    // snippet
    for (key, seconds) in try store.values(of: Double.self, prefix: "visited/") {
      try store.put(key, Date(timeIntervalSinceReferenceDate: seconds))
    }
    // end
    #expect(try store.get("visited/a", as: Date.self) == date)
    try store.close()
  }

  private struct Lowered {
    typealias Order = TypedValuesSnippets.Order
    // snippet
    static let byCustomer = CollectionIndex("customer", version: 2) { (order: Order) in
      order.customer.lowercased()
    }
    // end
  }

  struct Order: Codable, Identifiable, Sendable {
    let id: Int
    var customer: String
  }

  @Test("a changed index has another version")
  func versions() throws {
    let store = try Store.create(at: here + "store")
    let former = CollectionIndex("customer", \Order.customer)
    try store.collection("orders", of: Order.self, indexes: [former]).insert(Order(id: 1, customer: "Ann"))
    let orders = try store.collection("orders", of: Order.self, indexes: [Lowered.byCustomer])
    #expect(try orders.all(by: Lowered.byCustomer, equalTo: "ann").map(\.id) == [1])
    try store.close()
  }

  @Test("collections")
  func collections() async throws {
    let store = try Store.create(at: here + "store")
    // snippet
    struct Order: Codable, Identifiable, Sendable {
      let id: Int
      var customer: String
      var total: Double

      static let byCustomer = CollectionIndex("customer", \Order.customer)
    }

    let orders = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    // end
    // snippet
    try orders.insert(Order(id: 7, customer: "Ann", total: 12))  // an error if there is a 7
    try orders.insert(contentsOf: [
      Order(id: 8, customer: "Bo", total: 30), Order(id: 9, customer: "Ann", total: 5),
    ])
    try orders.update(7) { $0.total += 3 }  // no other write in between
    try orders.insertOrReplace(Order(id: 8, customer: "Bo", total: 31))
    try orders.delete(9)
    // end
    // snippet
    let seven = try orders.get(7)
    let all = try orders.all()
    let some = try orders.all(in: 5...8, limit: 10)
    let ofAnn = try orders.all(by: Order.byCustomer, equalTo: "Ann")
    let fromA = try orders.all(by: Order.byCustomer, in: "A"..<"B")
    let number = try orders.count
    // end
    #expect(seven?.total == 15)
    #expect(all.map(\.id) == [7, 8])
    #expect(some.count == 2)
    #expect(ofAnn.map(\.id) == [7])
    #expect(fromA.map(\.id) == [7])
    #expect(number == 2)
    // snippet
    var page = try orders.all(limit: 50)
    while let last = page.last {
      print(page.map(\.id))
      page = try orders.all(limit: 50, after: last.id)
    }
    // end
    #expect(page.isEmpty)
    // snippet
    try store.transaction { transaction in
      try orders.insert(Order(id: 10, customer: "Cy", total: 8), in: &transaction)
      try transaction.put("last-order", 10)
    }
    // end
    #expect(try orders.count == 3)
    #expect(try store.get("last-order", default: 0) == 10)
    // snippet
    try orders.insert(Order(id: 11, customer: "Di", total: 3), expiration: .after(.days(30)))
    try orders.expire(8, .after(.week))
    // end
    #expect(try orders.deadline(of: 11) != nil && orders.deadline(of: 8) != nil)
    // snippet
    struct Rank: KeyComponent, Comparable {
      var customer: String
      var total: Double

      static func < (left: Rank, right: Rank) -> Bool {
        (left.customer, left.total) < (right.customer, right.total)
      }

      func appendKeyBytes(to key: inout [UInt8]) {
        customer.appendKeyBytes(to: &key)
        total.appendKeyBytes(to: &key)
      }
    }

    let byRank = CollectionIndex("rank") { (order: Order) in
      Rank(customer: order.customer, total: order.total)
    }
    let ranked = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer, byRank])
    let big = try ranked.all(
      by: byRank, in: Rank(customer: "Ann", total: 10)...Rank(customer: "Ann", total: .infinity))
    // end
    #expect(big.map(\.id) == [7])
    let following = Task {
      // snippet
      for try await change in try orders.changes() {
        do {
          let order = try change.value()?.decoded(as: Order.self)  // nil: it was deleted
          print(change.key, order?.total ?? 0)
        } catch {
          print(change.key, "cannot be read:", error)  // the loop goes on
        }
      }
      // end
    }
    following.cancel()
    try await following.value
    try store.close()
  }
}
