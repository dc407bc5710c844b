import SyncTestSupport
import Testing

@testable import SyncStore

/// Convenience operations on a program's own types.
@Suite("A typed operation")
struct TypedOperationTests {
  struct Reading: Codable, Equatable {
    var celsius: Double
  }

  let host = SimulatedHost()

  @Test("opens a store or creates it")
  func openOrCreate() throws {
    let first = try Store.openOrCreate(
      at: "/store", configuration: host.configured(), environment: host.environment)
    try first.put("a", 1)
    #expect(first.name == "store")
    let same = try Store.openOrCreate(
      at: "/store", name: "other", configuration: host.configured(), environment: host.environment)
    #expect(same === first)
    try first.close()
    let again = try Store.openOrCreate(
      at: "/store", configuration: host.configured(), environment: host.environment)
    #expect(try again.get("a", default: 0) == 1)
    let error = #expect(throws: StoreError.self) {
      _ = try Store.openOrCreate(
        at: "/none", configuration: host.configured(Configuration(mode: .readOnly)),
        environment: host.environment)
    }
    #expect(error?.code == .notAStore)
  }

  @Test(
    "creates one store, in which all find each other's writes, however many open or create it concurrently")
  func openOrCreateAtOnce() throws {
    for _ in 0..<20 {
      let scratch = TemporaryDirectory()
      let path = scratch.path + "/store"
      try Threaded.run(6) { number in
        let store = try Store.openOrCreate(
          at: path, configuration: Configuration(mode: .shared, durability: .relaxed))
        try store.put(Key("thread/\(number)"), number)
      }
      let store = try Store.open(at: path, configuration: Configuration(mode: .shared))
      #expect(try store.values(of: Int.self, prefix: "thread/").map(\.value) == Array(0..<6))
      try store.close()
    }
  }

  @Test("creates one store, and fails for all others that create it concurrently")
  func createAtOnce() throws {
    for _ in 0..<20 {
      let scratch = TemporaryDirectory()
      let path = scratch.path + "/store"
      let outcomes = Locked<[StoreError.Code?]>([])
      try Threaded.run(6) { _ in
        do throws(StoreError) {
          let store = try Store.create(at: path, configuration: Configuration(durability: .relaxed))
          try store.put("made", true)
          outcomes.withLock { $0.append(nil) }
        } catch {
          outcomes.withLock { $0.append(error.code) }
        }
      }
      #expect(outcomes.withLock { $0.filter { $0 == nil }.count } == 1)
      #expect(outcomes.withLock { $0.filter { $0 == .alreadyExists }.count } == 5)
      #expect(try Store.open(at: path).get("made", default: false))
    }
  }

  @Test("lists values of one type in order, page by page, and names the key of another type")
  func values() throws {
    let store = try Store.create(on: host)
    for number in 1...9 { try store.put(Key("deck/\(number)"), Reading(celsius: Double(number))) }
    try store.put("hold/1", Reading(celsius: 20))
    let all = try store.values(of: Reading.self, prefix: "deck/")
    #expect(all.map(\.value.celsius) == (1...9).map(Double.init))
    #expect(all.first?.key == "deck/1")
    let last = try store.values(of: Reading.self, prefix: "deck/", reversed: true, limit: 2)
    #expect(last.map(\.key) == ["deck/9", "deck/8"])
    var seen: [Key] = []
    var page: Key?
    repeat {
      page = try store.forEachValue(of: Reading.self, in: KeyRange(prefix: "deck/"), after: page, limit: 4) {
        key, _ in
        seen.append(key)
        return .next
      }
    } while page != nil
    #expect(seen == all.map(\.key))
    try store.put("deck/5", "five")
    let error = #expect(throws: StoreError.self) { try store.values(of: Reading.self, prefix: "deck/") }
    #expect(error?.code == .wrongType && error?.message.contains("deck/5") == true)
    let snapshot = try store.snapshot()
    try store.delete("hold/1")
    #expect(try snapshot.values(of: Reading.self, in: KeyRange("h"...)).count == 1)
  }

  @Test("reads a value with its version, and writes a derived one unless it has changed meanwhile")
  func versioned() throws {
    let store = try Store.create(on: host)
    let none = try store.versioned("a", as: Reading.self)
    #expect(none == nil)
    #expect(try store.put("a", Reading(celsius: 1), expecting: .unchanged(since: none)) != nil)
    #expect(try store.put("a", Reading(celsius: 2), expecting: .unchanged(since: none)) == nil)
    let seen = try #require(try store.versioned("a", as: Reading.self))
    #expect(seen.value.celsius == 1)
    try store.put("a", Reading(celsius: 3))
    #expect(try store.put("a", Reading(celsius: 4), expecting: .unchanged(since: seen)) == nil)
    let wrong = try Expected.equal(to: Reading(celsius: 9))
    #expect(try store.put("a", Reading(celsius: 4), expecting: wrong) == nil)
    let right = try Expected.equal(to: Reading(celsius: 3))
    #expect(try store.put("a", Reading(celsius: 4), expecting: right) != nil)
    #expect(throws: StoreError.self) { try store.versioned("a", as: Int.self) }
  }

  @Test("expects a value of the same type, or, on request, the same bytes of any type")
  func expectedType() throws {
    let store = try Store.create(on: host)
    try store.put("zero", 0)
    #expect(try store.put("zero", 1, expecting: .equal(to: 0.0)) == nil)
    #expect(try !store.delete("zero", expecting: .equal(to: 0.0)))
    #expect(try store.transaction { try $0.put("zero", 1, expecting: .equal(to: 0.0)) } == nil)
    #expect(try store.get("zero", as: Int.self) == 0)
    // A whole number is one, whatever its type was in the program.
    #expect(try store.put("zero", 0, expecting: .equal(to: UInt8(0))) != nil)
    #expect(try store.put("zero", 1, expecting: .equal(to: 0)) != nil)
    try store.put("zero", 0.0)
    #expect(try store.put("zero", "set", expecting: .value([UInt8](repeating: 0, count: 8))) != nil)
    // Also of a value that lies in the blob tier.
    let text = String(repeating: "long ", count: 10_000)
    try store.put("large", text)
    #expect(try store.put("large", "b", expecting: .equal(to: Array(text.utf8))) == nil)
    #expect(try store.put("large", "b", expecting: .equal(to: text)) != nil)
  }

  @Test("updates a value, keeps its deadline, and writes nothing if it is unchanged")
  func update() throws {
    struct Refused: Error {}
    let store = try Store.create(on: host)
    #expect(try store.update("count", default: 5) { $0 += 1 } == 6)
    #expect(try store.update("count", default: 5) { $0 += 1 } == 7)
    try store.put("lasting", 1, expiration: .at(host.time + 5000))
    try store.update("lasting", default: 0) { $0 += 1 }
    #expect(try store.deadline(of: "lasting") == host.time + 5000)
    let position = try store.status().position
    try store.update("count", default: 0) { $0 *= 1 }
    #expect(try store.status().position == position)
    #expect(throws: Refused.self) {
      try store.update("count", default: 0) { count in
        count = 100
        throw Refused()
      }
    }
    #expect(try store.get("count", default: 0) == 7)
    try store.transaction { transaction in
      try transaction.put("count", 20)
      #expect(try transaction.update("count", default: 0) { $0 += 1 } == 21)
    }
    #expect(try store.get("count", default: 0) == 21)
  }

  @Test("gives a value a time to live")
  func timeToLive() throws {
    let store = try Store.create(on: host)
    try store.put("bytes", [1], expiration: .after(.seconds(2)))
    try store.put("typed", Reading(celsius: 1), expiration: .after(Lifetime(.milliseconds(1500))))
    try store.transaction { transaction in
      try transaction.put("in", [1], expiration: .after(.minute))
      try transaction.put("in, typed", 5, expiration: .after(.hour))
    }
    #expect(try store.deadline(of: "bytes") == host.time + 2000)
    #expect(try store.deadline(of: "typed") == host.time + 1500)
    #expect(try store.deadline(of: "in") == host.time + 60_000)
    #expect(try store.deadline(of: "in, typed") == host.time + 3_600_000)
    #expect(Lifetime(.seconds(-5)).milliseconds == 1 && Lifetime(.nanoseconds(1)).milliseconds == 1)
    #expect(Lifetime(.seconds(Int64.max)).milliseconds == 1 << 47)
  }

  @Test("leases a key for a time, if it has the expected value, and frees it again by itself")
  func leases() throws {
    let store = try Store.create(on: host)
    #expect(try store.put("lease", "a", expecting: .absent, expiration: .after(.seconds(2))) != nil)
    #expect(try store.put("lease", "b", expecting: .absent, expiration: .after(.seconds(2))) == nil)
    #expect(try store.get("lease", as: String.self) == "a" && store.deadline(of: "lease") == host.time + 2000)
    #expect(try store.put("bytes", [1], expecting: .absent, expiration: .after(.seconds(2))) != nil)
    host.time += 2000
    try store.transaction { transaction throws in
      #expect(try transaction.put("lease", "b", expecting: .absent, expiration: .after(.seconds(3))) != nil)
      #expect(
        try transaction.put("bytes", [2], expecting: .value([1]), expiration: .after(.seconds(3))) == nil)
      #expect(try transaction.put("bytes", [2], expecting: .absent, expiration: .after(.seconds(3))) != nil)
    }
    #expect(
      try store.deadline(of: "lease") == host.time + 3000 && store.deadline(of: "bytes") == host.time + 3000)
    let seen = try store.versioned("lease", as: String.self)
    #expect(try store.put("lease", "c", expecting: .absent, expiration: .after(.minute)) == nil)
    #expect(
      try store.put("lease", "c", expecting: .unchanged(since: seen), expiration: .after(.minute)) != nil)
    #expect(
      try store.get("lease", as: String.self) == "c" && store.deadline(of: "lease") == host.time + 60_000)
    #expect(try store.put("lease", "d", expecting: .equal(to: "c")) != nil)
    #expect(try store.deadline(of: "lease") == nil)
  }

  @Test("deletes many keys atomically")
  func deleteMany() throws {
    let store = try Store.create(on: host)
    for number in 0..<10 { try store.put(Key("\(number)"), number) }
    #expect(try store.delete(contentsOf: ["1", "3", "none"]) == 2)
    #expect(try store.list().count == 8)
  }

  @Test("begins a transaction only if no other writer has one")
  func tryBegin() throws {
    let shared = Configuration(mode: .shared)
    let store = try Store.create(on: host, configuration: shared)
    try Threaded.run(1) { _ in
      let isOpen = try store.tryBeginTransaction() != nil
      #expect(isOpen)
    }
    var open = try store.beginTransaction()
    try open.transaction.put("a", 1)
    try Threaded.run(1) { _ in
      let isNone = try store.tryBeginTransaction() == nil
      #expect(isNone)
    }
    #expect(throws: StoreError.self) {
      let none = try store.tryBeginTransaction() == nil
      #expect(!none)
    }
    try open.commit()
    if var next = try store.tryBeginTransaction() {
      try next.transaction.put("b", 2)
      try next.commit()
    }
    #expect(try store.get("b", default: 0) == 2)
  }
}
