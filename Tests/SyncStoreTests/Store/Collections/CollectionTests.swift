import Foundation
import SyncStoreFoundation
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Collections")
struct CollectionTests {
  let host = SimulatedHost()

  func order(_ id: Int, _ customer: String = "Ann", _ total: Double = 1) -> Order {
    Order(id: id, customer: customer, total: total, note: nil)
  }

  func code(_ body: () throws -> Void) -> StoreError.Code? {
    do { try body() } catch { return (error as? StoreError)?.code }
    return nil
  }

  @Test("elements are inserted, replaced, updated and deleted individually", arguments: [false, true])
  func one(indexed: Bool) throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: indexed ? Order.indexes : [])
    try orders.insert(order(1))
    #expect(try orders.get(1) == order(1))
    #expect(code { try orders.insert(order(1, "Bo")) } == .duplicateIdentifier)
    #expect(try !orders.insertOrIgnore(order(1, "Bo")))
    #expect(try orders.get(1)?.customer == "Ann")
    #expect(try orders.insertOrIgnore(order(2, "Bo")))
    try orders.insertOrReplace(order(1, "Cy"))
    try orders.insertOrReplace(order(3, "Di"))
    #expect(try orders.replace(order(3, "Ed")))
    #expect(try !orders.replace(order(4)))
    #expect(try orders.update(2) { $0.total = 9 })
    #expect(try !orders.update(4) { $0.total = 9 })
    #expect(code { try orders.update(2) { $0.id = 7 } } == .invalidKey)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) {
      try orders.update(2) { element in
        element.total = 10
        throw Refusal()
      }
    }
    #expect(try orders.all().map(\.customer) == ["Cy", "Bo", "Ed"])
    #expect(try orders.get(2)?.total == 9)
    #expect(try orders.delete(1))
    #expect(try !orders.delete(1))
    #expect(try !orders.contains(1) && orders.contains(2))
    try orders.insert(order(1, "again"))
    #expect(try orders.count == 3)
    if indexed {
      #expect(try orders.indexesAreRight())
      #expect(try orders.entries() == 6)
    }
  }

  @Test("an insert replaces expired elements, and reports damaged ones")
  func insertOverOthers() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self)
    let form = try EncodedValue(order(1, "a name to find"))
    try store.put(try orders.key(of: 1), form.bytes, type: form.type, expiration: .at(host.time + 10))
    #expect(try !orders.insertOrIgnore(order(1)))
    host.time += 10
    #expect(try orders.insertOrIgnore(order(1, "another name")))
    let bytes = try host.storage.open(DamageInUseTests.path, .readOnly).read(1 << 20, at: 0)
    let place = try #require(bytes.firstRange(of: Array("another name".utf8))?.lowerBound)
    try host.storage.flipBit(of: DamageInUseTests.path, at: place, bit: 0)
    #expect(code { try orders.insertOrIgnore(order(1)) } == .damaged)
    try orders.insertOrReplace(order(1))
    #expect(try orders.get(1) == order(1))
  }

  @Test("pages, ranges, orders and limits give each element once")
  func pages() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self)
    try orders.insert(contentsOf: (-50..<150).shuffled().map { order($0) })
    try store.put("orders", "not an element")
    try store.put("orders0", "nor this")
    let ids = Array(-50..<150)
    #expect(try orders.all().map(\.id) == ids)
    #expect(try orders.all(reversed: true, limit: 3).map(\.id) == [149, 148, 147])
    #expect(try orders.all(in: -3..<2).map(\.id) == [-3, -2, -1, 0, 1])
    #expect(try orders.all(in: 8...11, reversed: true).map(\.id) == [11, 10, 9, 8])
    #expect(try orders.all(in: 147...).map(\.id) == [147, 148, 149])
    #expect(try orders.all(in: ..<(-48)).map(\.id) == [-50, -49])
    #expect(try orders.all(in: ...(-48)).map(\.id) == [-50, -49, -48])
    #expect(try orders.count(in: 0..<10) == 10)
    var (seen, last): ([Int], Int?) = ([], nil)
    while case let page = try orders.all(limit: 7, after: last), !page.isEmpty {
      seen += page.map(\.id)
      last = page.last?.id
    }
    #expect(seen == ids)
    seen = []
    try orders.forEach(after: 140) { element in
      seen.append(element.id)
      return element.id < 143 ? .next : .stop
    }
    #expect(seen == [141, 142, 143])
    #expect(try orders.all(limit: 0).isEmpty)
    #expect(try orders.deleteAll() == 200)
    #expect(try orders.count == 0)
    #expect(try store.text("orders") == "not an element")
  }

  @Test("many are written atomically")
  func many() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    try orders.insert(contentsOf: [order(1), order(2)])
    #expect(code { try orders.insert(contentsOf: [order(3), order(2), order(4)]) } == .duplicateIdentifier)
    #expect(try orders.all().map(\.id) == [1, 2])
    #expect(try orders.insertOrIgnore(contentsOf: [order(3), order(2, "no"), order(3, "no")]) == 1)
    try orders.insertOrReplace(contentsOf: [order(2, "Zoe"), order(5)])
    #expect(try orders.all().map(\.customer) == ["Ann", "Zoe", "Ann", "Ann"])
    #expect(try orders.delete(contentsOf: [1, 4, 5]) == 2)
    #expect(try orders.indexesAreRight())
    try store.transaction { transaction in
      try orders.insert(order(8, "new"), in: &transaction)
      #expect(try orders.get(8, in: transaction)?.customer == "new")
      #expect(try orders.contains(8, in: transaction))
      #expect(code { try orders.insert(order(8), in: &transaction) } == .duplicateIdentifier)
      #expect(try orders.update(8, in: &transaction) { $0.customer = "newer" })
      #expect(try orders.delete(2, in: &transaction))
      #expect(try orders.get(2, in: transaction) == nil)
      #expect(try !orders.contains(8))
    }
    #expect(try orders.get(8)?.customer == "newer")
    #expect(try orders.all(by: Order.byCustomer, equalTo: "new").isEmpty)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) {
      try store.transaction { transaction in
        try orders.insertOrReplace(order(8, "undone"), in: &transaction)
        throw Refusal()
      }
    }
    #expect(try orders.get(8)?.customer == "newer")
    #expect(try orders.indexesAreRight())
  }

  @Test("identifiers may be texts, UUIDs and custom types")
  func identifiers() throws {
    struct Item<ID: KeyComponent & Codable & Hashable>: Codable, Identifiable, Equatable {
      var id: ID
      var number = 0
    }
    let store = try Store.create(on: host)
    let texts = try store.collection("texts", of: Item<String>.self)
    for id in ["b", "", "a/b", "a", "ä", "a\u{0}"] { try texts.insert(Item(id: id)) }
    #expect(try texts.all().map(\.id) == ["", "a", "a\u{0}", "a/b", "b", "ä"])
    #expect(try texts.all(in: "a"..<"b").map(\.id) == ["a", "a\u{0}", "a/b"])
    #expect(try texts.all(in: ..."a").map(\.id) == ["", "a"])
    #expect(code { try texts.insert(Item(id: String(repeating: "x", count: 1020))) } == .invalidKey)
    let uuids = try store.collection("uuids", of: Item<UUID>.self)
    let ids = (0..<20).map { _ in UUID() }
    try uuids.insert(contentsOf: ids.map { Item(id: $0) })
    #expect(try uuids.all().map(\.id) == ids.sorted())
    let dates = try store.collection("dates", of: Item<Date>.self)
    let days = (0..<20).map { Date(timeIntervalSince1970: Double($0) * 86_400.125) }
    try dates.insert(contentsOf: days.reversed().map { Item(id: $0) })
    #expect(try dates.all(in: days[3]...days[5]).map(\.id) == Array(days[3...5]))
  }

  @Test("names that would make collections ambiguous are refused")
  func names() throws {
    let store = try Store.create(on: host)
    for name in ["", "a/b", "a#b", "a\u{0}", String(repeating: "n", count: 65)] {
      #expect(code { _ = try store.collection(name, of: Order.self) } == .invalidKey)
      let index = CollectionIndex(name, \Order.customer)
      #expect(code { _ = try store.collection("orders", of: Order.self, indexes: [index]) } == .invalidKey)
    }
    #expect(
      code { _ = try store.collection("o", of: Order.self, indexes: [Order.byNote, Order.byNote]) }
        == .invalidKey)
    #expect(code { _ = try store.collection("o", of: Order.self).all(by: Order.byNote) } == .outOfBounds)
  }

  @Test("a snapshot of a collection does not change")
  func snapshots() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self, indexes: Order.indexes)
    try orders.insert(contentsOf: [order(1), order(2, "Bo")])
    let before = try orders.snapshot()
    try orders.insertOrReplace(order(1, "Zoe"))
    try orders.delete(2)
    #expect(try before.all().map(\.customer) == ["Ann", "Bo"])
    #expect(try before.all(by: Order.byCustomer, equalTo: "Ann").map(\.id) == [1])
    #expect(try before.get(2) != nil && before.contains(2) && before.count == 2)
    #expect(try orders.reading(store.snapshot()).all().map(\.customer) == ["Zoe"])
  }

  @Test("an element that cannot be decoded is an error that names its key")
  func foreign() throws {
    let store = try Store.create(on: host)
    let orders = try store.collection("orders", of: Order.self)
    try orders.insert(order(1))
    try store.put(try orders.key(of: 2), "text")
    let error = #expect(throws: StoreError.self) { try orders.all() }
    #expect(error?.code == .wrongType)
    #expect(error?.message.contains("orders/a2") == true)
    #expect(try orders.count == 2)
  }
}
