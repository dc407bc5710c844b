import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("An element of a collection that expires")
struct CollectionDeadlineTests {
  let host = SimulatedHost()

  func orders(_ store: Store) throws -> StoreCollection<Order> {
    try store.collection("orders", of: Order.self, indexes: Order.indexes)
  }

  @Test("expires with its index entries, however it got its deadline")
  func entriesGoToo() throws {
    let orders = try orders(Store.create(on: host))
    try orders.insert(Order(id: 1, customer: "Ann"), expiration: .after(.minute))
    try orders.insert(Order(id: 2, customer: "Ann"))
    try orders.insertOrReplace(Order(id: 2, customer: "Bo"), expiration: .after(.minute))
    try orders.insert(Order(id: 3, customer: "Cy"))
    #expect(try orders.expire(3, .after(.minute)))
    try orders.source.transaction { transaction in
      try orders.insert(Order(id: 4, customer: "Di"), expiration: .after(.hour), in: &transaction)
      #expect(try orders.expire(4, .at(host.time + 60_000), in: &transaction))
    }
    try orders.insert(Order(id: 5, customer: "Ed"))
    for id in 1...4 { #expect(try orders.deadline(of: id) == host.time + 60_000) }
    #expect(try orders.deadline(of: 5) == nil)
    #expect(try orders.indexesAreRight() && orders.entries() == 10)
    host.time += 60_000
    #expect(try orders.all().map(\.id) == [5])
    #expect(try orders.indexesAreRight() && orders.entries() == 2)
    #expect(try !orders.expire(1, .never))
  }

  @Test(
    "keeps its deadline when updated, and loses it when replaced; new entries have it as well")
  func updateKeeps() throws {
    let orders = try orders(Store.create(on: host))
    try orders.insert(Order(id: 1, customer: "Ann"), expiration: .after(.minute))
    try orders.update(1) { ($0.customer, $0.note) = ("Bo", "moved") }
    #expect(try orders.deadline(of: 1) == host.time + 60_000)
    #expect(try orders.indexesAreRight() && orders.entries() == 3)
    try orders.insert(Order(id: 2, customer: "Cy"), expiration: .after(.minute))
    try orders.replace(Order(id: 2, customer: "Cy"))
    #expect(try orders.deadline(of: 2) == nil)
    host.time += 60_000
    #expect(try orders.all(by: Order.byCustomer).map(\.id) == [2] && orders.entries() == 2)
  }

  @Test(
    "ends at once by a past deadline, with its entries, and is permanent once the deadline is cleared"
  )
  func endedAndCleared() throws {
    let orders = try orders(Store.create(on: host))
    for id in 1...2 { try orders.insert(Order(id: id, customer: "Ann"), expiration: .after(.minute)) }
    #expect(try orders.expire(1, .at(host.time - 1)))
    #expect(try orders.all().map(\.id) == [2] && orders.entries() == 2)
    #expect(try orders.expire(2, .never))
    host.time += 600_000
    #expect(try orders.all(by: Order.byCustomer).map(\.id) == [2] && orders.entries() == 2)
  }

  @Test("is found by an index built later for as long as it exists, whatever the default expiration")
  func builtLater() throws {
    var configuration = Configuration()
    configuration.defaultLifetime = .minute
    let store = try Store.create(on: host, configuration: configuration)
    let plain = try store.collection("orders", of: Order.self)
    try plain.insert(Order(id: 1, customer: "Ann"), expiration: .after(.hour))
    try store.put(plain.key(of: 2), Order(id: 2, customer: "Bo"), expiration: .never)
    let orders = try orders(store)
    host.time += 60_000
    #expect(try orders.all(by: Order.byCustomer).map(\.id) == [1, 2] && orders.entries() == 4)
    host.time += 3_600_000
    #expect(try orders.all(by: Order.byCustomer).map(\.id) == [2] && orders.entries() == 2)
    try orders.insert(Order(id: 3, customer: "Cy"))
    #expect(try orders.deadline(of: 3) == host.time + 60_000)
    host.time += 60_000
    #expect(try orders.all().map(\.id) == [2] && orders.entries() == 2)
  }

  @Test("is the only change seen of its collection: not its entries, not other keys")
  func changes() async throws {
    let orders = try orders(Store.create(on: host))
    var changes = try orders.changes(from: .beginning).makeAsyncIterator()
    try orders.source.put("orders", "not one of them")
    try orders.insert(Order(id: 1, customer: "Ann"), expiration: .after(.minute))
    let put = try await changes.next()
    #expect(try put?.value()?.decoded(as: Order.self) == Order(id: 1, customer: "Ann"))
    #expect(put?.deadline == host.time + 60_000)
    try orders.delete(1)
    let deleted = try await changes.next()
    #expect(try deleted?.kind == .delete && deleted?.key == orders.key(of: 1))
    #expect(try orders.keys.contains(orders.key(of: 1)) && !orders.keys.contains("orders"))
  }
}
