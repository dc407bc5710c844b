import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Expiration")
struct ExpirationTests {
  /// An encrypted store has no blob tier.
  let host = SimulatedHost(encrypted: false)

  func store(_ expiry: Lifetime? = nil) throws -> Store {
    var configuration = Configuration()
    configuration.defaultLifetime = expiry
    return try Store.create(on: host, configuration: configuration)
  }

  @Test("is given in durations from a minute to a year")
  func spans() {
    #expect(Lifetime.minute == .seconds(60))
    #expect(Lifetime.hour == .minutes(60))
    #expect(Lifetime.day == .hours(24))
    #expect(Lifetime.week == .days(7))
    #expect(Lifetime.month == .days(30))
    #expect(Lifetime.year.milliseconds == 365 * 86_400_000)
    #expect(Lifetime.minute < .hour)
    #expect(Lifetime.seconds(-1).milliseconds == 1)
    #expect(Lifetime.days(.max).milliseconds == 1 << 47)
    #expect(Lifetime.minute.after(1000) == 61_000)
    #expect(Lifetime.minute.after(.max - 5) == .max)
    #expect(Lifetime.hour.fromNow() > Lifetime.minute.fromNow())
  }

  @Test("by default applies to every put without a deadline, in every form")
  func byDefault() throws {
    let store = try store(.minute)
    let deadline = host.time + 60_000
    try store.put("bytes", [1])
    try store.put("typed", Int32(5))
    try store.put("large", [UInt8](repeating: 1, count: 30_000))
    _ = try store.put("expecting", [1], expecting: .absent)
    _ = try store.putIfChanged("changed", [1])
    try store.transaction { transaction in
      try transaction.put("in", [1])
      _ = try transaction.putIfChanged("in, changed", [1])
      _ = try transaction.put("in, expecting", [1], expecting: .absent)
    }
    struct Item: Codable, Identifiable { var id: Int }
    try store.collection("items", of: Item.self).insert(Item(id: 1))
    let keys = try store.list().map(\.key)
    #expect(keys.count == 9)
    for key in keys { #expect(try store.deadline(of: key) == deadline, "\(key)") }
    try store.put("own", [1], expiration: .at(host.time + 5))
    try store.put("never", [1], expiration: .never)
    #expect(try store.deadline(of: "own") == host.time + 5)
    #expect(try store.deadline(of: "never") == nil)
    #expect(try store.keyCounts() == KeyCounts(live: 11, expired: 0, withDeadline: 10))
    host.time += 60_000
    #expect(try store.list().map(\.key) == ["never"])
    #expect(try store.keyCounts() == KeyCounts(live: 1, expired: 10, withDeadline: 10))
    #expect(try store.keyCounts().all == 11)
    #expect(try store.keyCounts(in: KeyRange(prefix: "in")).expired == 3)
  }

  @Test("can be extended, advanced and cleared without changing the value")
  func changed() throws {
    let store = try store()
    try store.put("k", Int64(7), expiration: .at(host.time + 1000))
    #expect(try store.expire("k", .after(.hour)))
    #expect(try store.deadline(of: "k") == host.time + 3_600_000)
    host.time += 2000
    #expect(try store.get("k", as: Int64.self) == 7)
    #expect(try store.expire("k", .never))
    #expect(try store.deadline(of: "k") == nil)
    let position = try store.changePosition()
    #expect(try store.expire("k", .never))
    #expect(try store.changePosition() == position)
    try store.put("large", [UInt8](repeating: 1, count: 30_000))
    #expect(try store.expire("large", .at(host.time + 10)))
    #expect(try store.get("large")?.bytes.count == 30_000)
    #expect(try store.status().blobKeys == 1)
    try store.transaction { transaction in
      try transaction.put("new", [1])
      #expect(try transaction.expire("new", .at(host.time + 10)))
      #expect(try !transaction.expire("absent", .never))
    }
    #expect(try store.deadline(of: "new") == host.time + 10)
    host.time += 10
    #expect(try store.get("large") == nil)
    #expect(try !store.expire("large", .never), "what has expired is not brought back")
    #expect(try !store.expire("absent", .after(.day)))
    try store.close()
    #expect(try Store.open(on: host).get("k", as: Int64.self) == 7)
  }

  @Test("replicates with the value, as does a change of deadline")
  func replicated() throws {
    let store = try store()
    let far = SimulatedHost(seed: 2, machine: "far")
    let peer = try Store.create(on: far, id: store.id)
    try store.put("k", [1], expiration: .at(host.time + 1000))
    try peer.receive(from: store)
    #expect(try peer.deadline(of: "k") == host.time + 1000)
    try peer.expire("k", .after(.day))
    try store.receive(from: peer)
    #expect(try store.deadline(of: "k") == far.time + 86_400_000)
    #expect(try store.digest() == peer.digest())
    #expect(try store.conflicts().isEmpty)
  }

  @Test("a default applies to new values: a permanent one does not expire because of a change or an import")
  func defaultIsForNew() throws {
    struct Element: Codable, Identifiable, Sendable {
      let id: Int
      var count = 0
      static let byCount = CollectionIndex("count", \Element.count)
    }
    let far = SimulatedHost(seed: 2, machine: "far")
    let lasting = try Store.create(on: far)
    try lasting.put("imported", 1)
    let store = try store(.week)
    try store.put("kept", 1, expiration: .never)
    try store.update("kept", default: 0) { $0 += 1 }
    try store.update("new", default: 0) { $0 += 1 }
    #expect(try store.deadline(of: "kept") == nil && store.deadline(of: "new") != nil)
    for indexes in [[], [Element.byCount]] as [[any CollectionIndexing<Element>]] {
      let elements = try store.collection("elements", of: Element.self, indexes: indexes)
      try elements.insertOrReplace(Element(id: 1))
      #expect(try elements.deadline(of: 1) != nil)
      try elements.expire(1, .never)
      try elements.update(1) { $0.count += 1 }
      #expect(try elements.deadline(of: 1) == nil)
    }
    try store.importAll(from: lasting)
    #expect(try store.deadline(of: "imported") == nil)
    host.time += Lifetime.week.milliseconds + 1
    #expect(try store.get("kept", default: 0) == 2 && store.get("imported", default: 0) == 1)
  }

  @Test(
    "a deadline cannot be set on a missing large value: that write would supersede one that a member holds")
  func expireElsewhere() throws {
    let store = try Store.create(on: host)
    let peer = try Store.create(on: SimulatedHost(seed: 9, machine: "peer"), id: store.id)
    let value = [UInt8](repeating: 5, count: 100_000)
    try peer.put("large", value)
    try store.receive(from: peer)
    #expect(
      #expect(throws: StoreError.self) { try store.expire("large", .after(.day)) }?.code == .blobUnavailable
    )
    _ = try store.blobs.put(bytes: value, durable: true)
    #expect(try store.expire("large", .after(.day)))
  }
}
