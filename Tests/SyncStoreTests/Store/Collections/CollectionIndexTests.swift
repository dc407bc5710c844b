import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Indexes of collections")
struct CollectionIndexTests {
  let host = SimulatedHost()
  static let customers = ["Ann", "Bo", "", "Cy\u{0}", "Cy", "Cy\u{0}\u{1}"]

  func random(_ random: inout SplitMix64, id: Int) -> Order {
    Order(
      id: id, customer: Self.customers[Int(random.next() % 6)], total: Double(random.next() % 20) - 10,
      note: random.chance(50) ? nil : "note \(random.next() % 3)")
  }

  @Test("elements are found by values, ranges and pages of values")
  func queries() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    var random = SplitMix64(seed: 2)
    let all = (0..<200).map { self.random(&random, id: $0) }
    try orders.insert(contentsOf: all)
    #expect(try orders.indexesAreRight())
    for customer in Self.customers + ["none"] {
      let wanted = all.filter { $0.customer == customer }
      #expect(try orders.all(by: Order.byCustomer, equalTo: customer) == wanted)
      #expect(try orders.all(by: Order.byCustomer, equalTo: customer, reversed: true) == wanted.reversed())
      #expect(try orders.count(by: Order.byCustomer, equalTo: customer) == wanted.count)
      #expect(try orders.all(by: Order.byCustomer, in: ..<customer).allSatisfy { $0.customer < customer })
      #expect(
        try orders.all(by: Order.byCustomer, in: customer...).count
          == all.filter { $0.customer >= customer }.count)
      #expect(
        try orders.all(by: Order.byCustomer, in: ...customer).count
          == all.filter { $0.customer <= customer }.count)
    }
    #expect(try orders.all(by: Order.byTotal, in: -3.0..<3).count == all.filter { -3..<3 ~= $0.total }.count)
    for reversed in [false, true] {
      var (seen, last): ([Order], Order?) = ([], nil)
      while case let page = try orders.all(by: Order.byTotal, reversed: reversed, limit: 7, after: last),
        !page.isEmpty
      {
        seen += page
        last = page.last
      }
      #expect(try seen == orders.all(by: Order.byTotal, reversed: reversed))
      #expect(Set(seen) == Set(all))
    }
  }

  @Test(
    "random writes leave exactly the entries that the elements require", arguments: 0..<10 as Range<UInt64>)
  func exact(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    for _ in 0..<300 {
      let element = self.random(&random, id: Int(random.next() % 30))
      switch random.next() % 5 {
      case 0: try orders.insertOrIgnore(element)
      case 1: try orders.delete(element.id)
      case 2: try orders.update(element.id) { $0.note = element.note }
      case 3: try orders.replace(element)
      default: try orders.insertOrReplace(element)
      }
    }
    #expect(try orders.indexesAreRight(), "seed \(seed)")
    let wanted = try orders.all().reduce(0) { $0 + ($1.note == nil ? 2 : 3) }
    #expect(try orders.entries() == wanted, "seed \(seed)")
  }

  @Test("a new, changed or removed index is built, rebuilt or deleted")
  func changes() throws {
    let store = try Store.create(on: host)
    var random = SplitMix64(seed: 8)
    let plain = try store.collection("orders", of: Order.self)
    try plain.insert(contentsOf: (0..<1200).map { self.random(&random, id: $0) })
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    #expect(try orders.indexesAreRight())
    let position = try store.status().position
    _ = try store.collection("orders", of: Order.self, indexes: Order.indexes.reversed())
    #expect(try store.status().position == position)
    let lengths = CollectionIndex("customer", version: 2) { (order: Order) in order.customer.utf8.count }
    let changed = try store.collection("orders", of: Order.self, indexes: [lengths])
    let wanted = try changed.all().filter { $0.customer.utf8.count == 2 }
    #expect(try changed.all(by: lengths, equalTo: 2) == wanted)
    #expect(try changed.entries() == 1200)
    #expect(try store.list(prefix: Array("orders#".utf8)).count == 1200)
    _ = try store.collection("orders", of: Order.self)
    #expect(try store.list(prefix: Array("orders#".utf8)).isEmpty)
    #expect(try plain.count == 1200)
  }

  @Test("an index build that was killed is repeated")
  func killedBuilding() throws {
    var position = 1
    while true {
      let host = SimulatedHost(seed: UInt64(position))
      let store = try Store.create(
        on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
      let plain = try store.collection("orders", of: Order.self)
      try plain.insert(contentsOf: (0..<30).map { Order(id: $0, customer: "c\($0 % 3)") })
      try store.close()
      let plan = FaultPlan()
      plan.fail(number: position, forever: true)
      do {
        let failing = try Store.open(on: host, failing: plan)
        _ = try failing.collection("orders", of: Order.self, indexes: Order.indexes)
      } catch {}
      host.losePower(seed: UInt64(position))
      let again = try Store.open(on: host)
      let orders = try again.collection("orders", of: Order.self, indexes: Order.indexes)
      #expect(try orders.indexesAreRight(), "call \(position)")
      if plan.calls < position { break }
      position += 7
    }
    #expect(position > 10)
  }

  @Test("a loss of power keeps an element and its entries together", arguments: 0..<40 as Range<UInt64>)
  func powerLoss(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
    let configuration = Configuration(durability: .relaxed, segmentBytes: 1 << 20)
    var store = try Store.create(on: host, configuration: configuration)
    for _ in 0..<3 {
      let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
      for _ in 0..<60 {
        let element = self.random(&random, id: Int(random.next() % 20))
        if random.chance(20) { try orders.delete(element.id) } else { try orders.insertOrReplace(element) }
        if random.chance(5) { try store.sync() }
      }
      host.losePower(seed: random.next())
      store = try Store.open(on: host, configuration: configuration)
      let after = try store.collection("orders", of: Order.self, indexes: Order.indexes)
      #expect(try after.indexesAreRight(), "seed \(seed)")
      #expect(try after.entries() == after.all().reduce(0) { $0 + ($1.note == nil ? 2 : 3) }, "seed \(seed)")
    }
  }

  @Test("two concurrent writers, in two instances of one store, leave the index correct")
  func concurrency() async throws {
    let shared = Configuration(mode: .shared, durability: .relaxed)
    let stores = [
      try Store.create(on: host, configuration: shared),
      try Store.openSecond(on: host, configuration: shared),
    ]
    let collections = try stores.map { try $0.collection("orders", of: Order.self, indexes: Order.indexes) }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for (number, orders) in collections.enumerated() {
        group.addTask {
          var random = SplitMix64(seed: UInt64(number))
          for _ in 0..<300 {
            let element = self.random(&random, id: Int(random.next() % 10))
            if random.chance(30) {
              try orders.update(element.id) { $0.total += 1 }
            } else {
              try orders.insertOrReplace(element)
            }
          }
        }
      }
      try await group.waitForAll()
    }
    for orders in collections {
      #expect(try orders.indexesAreRight())
      #expect(try orders.entries() == orders.all().reduce(0) { $0 + ($1.note == nil ? 2 : 3) })
    }
  }

  @Test(
    "copies that wrote the same elements find each of them after a sync", arguments: 0..<30 as Range<UInt64>
  )
  func copies(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let hosts = [SimulatedHost(seed: seed), SimulatedHost(seed: seed + 1000, machine: "two")]
    let first = try Store.create(on: hosts[0])
    let stores = [first, try Store.create(on: hosts[1], id: first.id)]
    let collections = try stores.map { try $0.collection("orders", of: Order.self, indexes: Order.indexes) }
    for _ in 0..<4 {
      for _ in 0..<12 {
        let place = Int(random.next() % 2)
        let element = self.random(&random, id: Int(random.next() % 4))
        // Often within one millisecond: the stamps of both copies interleave.
        if random.chance(30) { hosts[place].time += 1 }
        switch random.next() % 4 {
        case 0: try collections[place].delete(element.id)
        case 1: try collections[place].update(element.id) { $0.note = element.note }
        default: try collections[place].insertOrReplace(element)
        }
      }
      try stores[0].receive(from: stores[1])
      try stores[1].receive(from: stores[0])
      #expect(try collections[0].all() == collections[1].all(), "seed \(seed)")
      for orders in collections { #expect(try orders.indexesAreRight(), "seed \(seed)") }
    }
  }

  @Test("elements written without the collection are found once the indexes are rebuilt")
  func rebuilt() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    try orders.insert(Order(id: 1, customer: "Ann"))
    try store.put(try orders.key(of: 2), Order(id: 2, customer: "Bo"))
    try store.put(try orders.key(of: 1), Order(id: 1, customer: "Cy"))
    #expect(try orders.all(by: Order.byCustomer).isEmpty)
    try orders.rebuildIndexes()
    #expect(try orders.indexesAreRight())
    #expect(try orders.all(by: Order.byCustomer, equalTo: "Ann").isEmpty)
  }

  @Test("a query of an index removed or redefined since is an error, never a partial result")
  func redefinedElsewhere() throws {
    let store = try Store.create(on: host)
    let first = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer, Order.byTotal])
    try first.insert(Order(id: 1, customer: "Ann"))
    let byLength = CollectionIndex("customer", version: 2) { (order: Order) in order.customer.utf8.count }
    let second = try store.collection("orders", of: Order.self, indexes: [byLength, Order.byTotal])
    try first.insert(Order(id: 2, customer: "Bo", total: 1))
    #expect(code { _ = try first.all(by: Order.byCustomer) } == .outOfBounds)
    #expect(code { _ = try first.count(by: Order.byCustomer, equalTo: "Bo") } == .outOfBounds)
    #expect(code { _ = try second.all(by: Order.byCustomer) } == .outOfBounds, "of another version")
    #expect(try first.all(by: Order.byTotal).map(\.id) == [1, 2])
    #expect(code { _ = try second.all(by: byLength) } == .outOfBounds, "the first wrote no entry for it")
    try second.rebuildIndexes()
    #expect(try second.all(by: byLength, equalTo: 2).map(\.id) == [2])
    _ = try store.collection("orders", of: Order.self)
    #expect(code { _ = try second.all(by: byLength) } == .outOfBounds)
    let again = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    #expect(try again.all(by: Order.byCustomer).map(\.id) == [1, 2])
  }

  /// The index that a check of name and version alone mistakes for `Order.byCustomer`.
  private static let byInitial = CollectionIndex("customer") { (order: Order) in
    String(order.customer.prefix(1))
  }

  @Test(
    "an index redefined under its old version is rebuilt when the collection is opened")
  func changedInSilence() throws {
    var store = try Store.create(on: host)
    let former = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer, Order.byTotal])
    try former.insert(contentsOf: (0..<40).map { Order(id: $0, customer: $0 % 2 == 0 ? "Ann" : "Bo") })
    try store.close()
    store = try Store.open(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: [Self.byInitial, Order.byTotal])
    #expect(
      try orders.all(by: Self.byInitial, equalTo: "A").map(\.id) == Array(stride(from: 0, to: 40, by: 2)))
    #expect(
      try orders.all(by: Self.byInitial, equalTo: "Ann").isEmpty, "entries that are left count for nothing")
    #expect(try orders.all(by: Order.byTotal).count == 40)
    let position = try store.status().position
    _ = try store.collection("orders", of: Order.self, indexes: [Self.byInitial, Order.byTotal])
    #expect(try store.status().position == position, "what is right is not built again")
  }

  @Test(
    "one recently written element suffices to detect a redefined index",
    arguments: [32, 35, 39])
  func sampled(place: Int) throws {
    let store = try Store.create(on: host)
    let former = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    try former.insert(contentsOf: (0..<40).map { Order(id: $0, customer: $0 == place ? "Ann" : "B") })
    let orders = try store.collection("orders", of: Order.self, indexes: [Self.byInitial])
    #expect(try orders.all(by: Self.byInitial, equalTo: "A").map(\.id) == [place])
  }

  @Test(
    "a complete index is not rebuilt, whatever else was written, replaced and deleted")
  func unharmed() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    try orders.insert(contentsOf: (0..<40).map { Order(id: $0, customer: "Ann") })
    for id in 30..<40 { try orders.insertOrReplace(Order(id: id, customer: "Bo")) }
    for id in 34..<40 { try orders.delete(id) }
    for number in 0..<20 { try store.put(Key("orders \(number)"), "no element") }
    let position = try store.status().position
    _ = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    #expect(try store.status().position == position)
  }

  @Test("a read-only process need not name all indexes, and removes none")
  func readOnly() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    try orders.insert(Order(id: 1, customer: "Ann"))
    try store.close()
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(try reader.collection("orders", of: Order.self).count == 1)
    let some = try reader.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    #expect(try some.all(by: Order.byCustomer).count == 1)
    try reader.close()
    let again = try Store.open(on: host).collection("orders", of: Order.self, indexes: Order.indexes)
    #expect(try again.entries() == 2)
  }

  @Test("entries that would expire before their element are rewritten when indexes are rebuilt")
  func rebuiltDeadlines() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    try orders.insert(Order(id: 7, customer: "Ann"), expiration: .after(.minute))
    #expect(try store.expire(orders.key(of: 7), .never))
    try orders.rebuildIndexes()
    host.time += 60_000
    #expect(try orders.all(by: Order.byCustomer, equalTo: "Ann").map(\.id) == [7])
    #expect(try orders.indexesAreRight())
  }

  @Test(
    "an element too large for an index entry, stored without the index, can be changed and deleted"
  )
  func tooLong() throws {
    let store = try Store.create(on: host)
    let long = String(repeating: "x", count: 2000)
    let plain = try store.collection("orders", of: Order.self)
    try plain.insert(contentsOf: (1...3).map { Order(id: $0, customer: long) })
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    #expect(
      #expect(throws: StoreError.self) { try orders.insert(Order(id: 9, customer: long)) }?.code
        == .invalidKey)
    #expect(try orders.all(by: Order.byTotal).map(\.id) == [1, 2, 3])
    #expect(try orders.all(by: Order.byCustomer).isEmpty)
    try orders.update(1) { $0.customer = "short" }
    #expect(try orders.expire(2, .after(.minute)))
    #expect(try orders.delete(3))
    try orders.rebuildIndexes()
    #expect(try orders.all(by: Order.byCustomer).map(\.id) == [1])
    host.time += 60_000
    #expect(try orders.all().map(\.id) == [1] && orders.indexesAreRight())
  }

  @Test("an element cannot get an identifier that is equal in Swift but another key")
  func canonicallyEqual() throws {
    struct Named: Codable, Identifiable {
      var id: String
      var note = ""
    }
    let store = try Store.create(on: host)
    let byNote = CollectionIndex("note", \Named.note)
    let names = try store.collection("names", of: Named.self, indexes: [byNote])
    try names.insert(Named(id: "\u{E9}"))
    #expect(throws: StoreError.self) { try names.update("\u{E9}") { $0.id = "e\u{301}" } }
    #expect(try names.all(by: byNote).count == 1)
  }
}
