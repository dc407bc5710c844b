import SyncTestSupport
import Testing

@testable import SyncStore

/// The record of which indexes are complete, and who may rely on it.
@Suite("An index of a collection")
struct IndexMetadataTests {
  private let host = SimulatedHost(seed: 11)

  struct Order: Codable, Identifiable, Equatable, Sendable {
    let id: Int
    var customer: String
    static let byCustomer = CollectionIndex("customer", \Order.customer)
    static let byLength = CollectionIndex("length") { (order: Order) in order.customer.utf8.count }
  }

  /// Opens the collection as a program with these indexes, in its own process.
  private func program(
    _ indexes: [any CollectionIndexing<Order>]
  ) throws -> StoreCollection<Order> {
    let store = try Store.open(on: host, configuration: Configuration(mode: .shared))
    return try store.collection("orders", of: Order.self, indexes: indexes)
  }

  @Test(
    "is complete again only once it was built, if a writer that does not know it wrote",
    arguments: [
      { try $0.insert(Order(id: 2, customer: "Bo")) },
      { try $0.insertOrIgnore(Order(id: 2, customer: "Bo")) },
      { try $0.insertOrReplace(Order(id: 1, customer: "Cy")) },
      { try $0.replace(Order(id: 1, customer: "Cy")) },
      { try $0.update(1) { $0.customer = "Cy" } },
      { try $0.insert(contentsOf: (2..<2000).map { Order(id: $0, customer: "c\($0)") }) },
      { try $0.insert(Order(id: 2, customer: "Bo"), expiration: .after(.seconds(60))) },
      { try $0.expire(1, .at(.max - 1)) },
    ] as [@Sendable (StoreCollection<Order>) throws -> Void], [false, true])
  func unknown(write: @Sendable (StoreCollection<Order>) throws -> Void, knowsAnother: Bool) throws {
    _ = try Store.create(on: host, configuration: Configuration(mode: .shared))
    let old = try program(knowsAnother ? [Order.byLength] : [])
    let new = try program([Order.byLength, Order.byCustomer])
    try new.insert(Order(id: 1, customer: "Ann"))
    #expect(try new.all(by: Order.byCustomer).map(\.id) == [1])
    try write(old)
    #expect(code { _ = try new.all(by: Order.byCustomer) } == .outOfBounds)
    if knowsAnother { #expect(try new.all(by: Order.byLength).count == old.count) }
    let again = try program([Order.byLength, Order.byCustomer])
    let wanted = try old.all()
    #expect(try again.all(by: Order.byCustomer).sorted { $0.id < $1.id } == wanted)
    #expect(try new.all(by: Order.byCustomer).count == wanted.count)
  }

  @Test("stays complete after deletes by a writer that does not know it, and after writes rolled back")
  func harmless() throws {
    _ = try Store.create(on: host, configuration: Configuration(mode: .shared))
    let old = try program([])
    let new = try program([Order.byCustomer])
    try new.insert(contentsOf: [Order(id: 1, customer: "Ann"), Order(id: 2, customer: "Bo")])
    #expect(try old.delete(1))
    #expect(try new.all(by: Order.byCustomer).map(\.id) == [2])
    try old.source.transaction { transaction in
      let start = transaction.savepoint()
      try old.insert(Order(id: 3, customer: "Cy"), in: &transaction)
      try transaction.rollBack(to: start)
    }
    #expect(try new.all(by: Order.byCustomer).map(\.id) == [2])
    try old.source.transaction { transaction in
      let start = transaction.savepoint()
      try old.insert(Order(id: 3, customer: "Cy"), in: &transaction)
      try transaction.rollBack(to: start)
      try old.insert(Order(id: 4, customer: "Di"), in: &transaction)
    }
    #expect(code { _ = try new.all(by: Order.byCustomer) } == .outOfBounds)
  }

  @Test("that was built after a snapshot was made says so, and later snapshots have it")
  func snapshots() throws {
    let store = try Store.create(on: host)
    let plain = try store.collection("orders", of: Order.self)
    try plain.insert(Order(id: 1, customer: "Ann"))
    let before = try store.snapshot()
    let orders = try store.collection("orders", of: Order.self, indexes: [Order.byCustomer])
    #expect(code { _ = try orders.reading(before).all(by: Order.byCustomer) } == .outOfBounds)
    let after = try orders.snapshot()
    _ = try store.collection("orders", of: Order.self)
    #expect(try after.all(by: Order.byCustomer).map(\.id) == [1], "it has what there was")
    #expect(code { _ = try orders.all(by: Order.byCustomer) } == .outOfBounds)
  }

  private func finishes(
    _ note: inout IndexMetadata, _ wanted: Set<IndexMetadata.Name>, _ announced: IndexMetadata
  ) -> Bool {
    note.finishBuilding(wanted, since: announced)
  }

  @Test("is complete if its announcement is unchanged when it was built, whichever process made it")
  func announcements() throws {
    let (one, other) = (
      IndexMetadata.Name(name: "a/b", version: 1), IndexMetadata.Name(name: "b", version: -3)
    )
    var note = IndexMetadata(complete: [other])
    note.beginBuilding([one, other], at: 7)
    let announced = note
    #expect(IndexMetadata(try note.bytes()) == note)
    note.beginBuilding([one], at: 9)
    #expect(note == announced, "it is good for a second one who builds")
    var left = note
    left.invalidate(exceptFor: [other])
    #expect(left == IndexMetadata(complete: [other]))
    #expect(!finishes(&left, [one, other], announced))
    left.beginBuilding([one, other], at: 12)
    #expect(!finishes(&left, [one, other], announced), "announced anew: somebody wrote in between")
    #expect(finishes(&note, [one, other], announced))
    #expect(note == IndexMetadata(complete: [one, other]))
    #expect(finishes(&note, [one, other], announced), "finished by another one")
  }
}
