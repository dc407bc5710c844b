import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Compare and set")
struct CompareAndSetTests {
  let host = SimulatedHost()

  func text(_ text: String) -> [UInt8] { Array(text.utf8) }

  @Test("writes if the key holds the expected value, and nothing otherwise")
  func expectations() throws {
    let store = try Store.create(on: host)
    #expect(try store.put("k", text("0"), expecting: .value([])) == nil)
    let first = try #require(try store.put("k", text("1"), expecting: .absent))
    #expect(try store.entry("k")?.dot == first)
    #expect(try store.put("k", text("x"), expecting: .absent) == nil)
    let value = try #require(try store.get("k"))
    #expect(try store.versioned("k") == VersionedValue(value: value, version: first))
    let second = try #require(try store.put("k", text("2"), expecting: .version(first), type: .string))
    #expect(try store.put("k", text("x"), expecting: .version(first)) == nil)
    #expect(try store.put("k", text("x"), expecting: .value(text("1"))) == nil)
    #expect(try store.get("k")?.type == .string)
    let third = try #require(try store.put("k", text("3"), expecting: .value(text("2"))))
    #expect(second != third)
    let position = try store.status().position
    #expect(try !store.delete("k", expecting: .version(second)))
    #expect(try !store.delete("k", expecting: .absent))
    #expect(try store.status().position == position)
    #expect(try store.delete("k", expecting: .version(third)))
    #expect(try store.versioned("k") == nil)
    #expect(try store.put("k", text("x"), expecting: .version(third)) == nil)
    #expect(try !store.delete("k", expecting: .absent))
    #expect(try store.put("k", text("4"), expecting: .absent) != nil)
  }

  @Test("treats an expired value as absent")
  func expired() throws {
    let store = try Store.create(on: host)
    let version = try #require(
      try store.put("k", text("1"), expecting: .absent, expiration: .at(host.time + 10)))
    host.time += 10
    #expect(try store.put("k", text("x"), expecting: .version(version)) == nil)
    #expect(try store.put("k", text("x"), expecting: .value(text("1"))) == nil)
    #expect(try store.put("k", text("2"), expecting: .absent) != nil)
  }

  @Test("identifies a large value by its content, whether its bytes are here or not")
  func blobs() throws {
    let store = try Store.create(on: SimulatedHost(encrypted: false))
    let large = [UInt8](repeating: 7, count: 100_000)
    #expect(try store.putIfChanged("k", large))
    #expect(try !store.putIfChanged("k", large))
    #expect(try store.put("k", large + [1], expecting: .value(large + [2])) == nil)
    let far = SimulatedHost(seed: 3, machine: "other", encrypted: false)
    let other = try Store.create(on: far, id: store.id)
    try other.receive(from: store)
    #expect(#expect(throws: StoreError.self) { try other.get("k") }?.code == .blobUnavailable)
    #expect(try !other.putIfChanged("k", large))
    #expect(try other.put("k", text("small"), expecting: .value(large)) != nil)
  }

  @Test("of a streamed value holds when all of it is written, and nothing is written otherwise")
  func streams() throws {
    let store = try Store.create(on: SimulatedHost(encrypted: false))
    let piece = [UInt8](repeating: 7, count: 60_000)
    let first = try store.put("k", expecting: .absent) { for _ in 0..<2 { try $0.append(piece) } }
    #expect(try store.versioned("k")?.version == first && store.entry("k")?.size == 120_000)
    #expect(try store.put("k", expecting: .absent, writing: { try $0.append([1]) }) == nil)
    let second = try store.put("k", expecting: .version(try #require(first)), type: .string) { writer in
      try writer.append(text("small"))
    }
    #expect(try second != nil && second != first && store.text("k") == "small")
    #expect(try store.put("k", expecting: nil, writing: { _ in }) != nil)
    #expect(try store.get("k")?.bytes.isEmpty == true)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) { try store.put("n", expecting: nil) { _ in throw Refusal() } }
    #expect(try !store.contains("n"))
  }

  @Test("a version is read from its text, and only from such text")
  func versionText() throws {
    let store = try Store.create(on: host)
    let version = try #require(try store.put("k", text("1"), expecting: .absent))
    #expect(Dot("\(version)") == version)
    for text in [
      "", ":", "1:1", "\(version.actor)", "\(version.actor):", "\(version.actor):0", "\(version):1",
    ] {
      #expect(Dot(text) == nil, "\(text)")
    }
  }

  @Test("skips a put that changes nothing, unless value, type or deadline differ")
  func unchanged() throws {
    let store = try Store.create(on: host)
    #expect(try store.putIfChanged("k", text("1")))
    let dot = try store.entry("k")?.dot
    #expect(try !store.putIfChanged("k", text("1")))
    #expect(try store.entry("k")?.dot == dot)
    #expect(try store.putIfChanged("k", text("2")))
    #expect(try store.putIfChanged("k", text("2"), type: .string))
    #expect(try store.putIfChanged("k", text("2"), type: .string, expiration: .at(host.time + 10)))
    #expect(try !store.putIfChanged("k", text("2"), type: .string, expiration: .at(host.time + 10)))
    host.time += 10
    #expect(try store.putIfChanged("k", text("2"), type: .string, expiration: .at(host.time - 5)))
    try store.delete("k")
    #expect(try store.putIfChanged("k", text("2"), type: .string))
  }

  @Test("makes an unchanged value durable if an earlier put did not (F24)")
  func durable() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Configuration(durability: .relaxed))
    try store.put("k", text("1"))
    #expect(try !store.putIfChanged("k", text("1"), durability: .full))
    host.losePower(seed: 1)
    #expect(try Store.open(on: host).text("k") == "1")
  }

  @Test("in a transaction sees its pending writes, and is rolled back with it")
  func transactions() throws {
    let store = try Store.create(on: host)
    try store.put("k", "0")
    try store.transaction { transaction in
      #expect(try transaction.put("k", text("1"), expecting: .absent) == nil)
      let version = try #require(try transaction.put("k", text("1"), expecting: .value(text("0"))))
      #expect(try transaction.versioned("k")?.version == version)
      #expect(try transaction.put("k", text("2"), expecting: .version(version)) != nil)
      #expect(try !transaction.putIfChanged("k", text("2")))
      #expect(try transaction.putIfChanged("k", [UInt8](repeating: 3, count: 50_000)))
      #expect(try !transaction.delete("k", expecting: .version(version)))
    }
    #expect(try store.get("k")?.bytes.count == 50_000)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) {
      try store.transaction { transaction in
        #expect(try transaction.delete("k", expecting: .value([UInt8](repeating: 3, count: 50_000))))
        #expect(try transaction.put("k", text("x"), expecting: .absent) != nil)
        throw Refusal()
      }
    }
    #expect(try store.get("k")?.bytes.count == 50_000)
  }

  @Test("refuses to compare with a damaged record, and replaces it when nothing is expected (F37)")
  func damaged() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host)
    try store.put("the key", "the value")
    let bytes = try host.storage.open(DamageInUseTests.path, .readOnly).read(1 << 20, at: 0)
    let place = try #require(bytes.firstRange(of: Array("the value".utf8))?.lowerBound)
    try host.storage.flipBit(of: DamageInUseTests.path, at: place, bit: 0)
    for expectation in [.absent, .value(text("the value"))] as [Expected] {
      #expect(
        #expect(throws: StoreError.self) { try store.put("the key", [], expecting: expectation) }?.code
          == .damaged)
    }
    #expect(try store.putIfChanged("the key", text("the value")))
    #expect(try store.text("the key") == "the value")
  }

  @Test("lets one of many threads win each time, in two concurrent instances of one store")
  func races() async throws {
    let host = SimulatedHost()
    let shared = Configuration(mode: .shared, durability: .relaxed)
    let first = try Store.create(on: host, configuration: shared)
    let second = try Store.openSecond(on: host, configuration: shared)
    let each = 150
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          let store = writer % 2 == 0 ? first : second
          for number in 0..<each {
            while true {
              let held = try store.versioned("count")
              let count = held.flatMap { Int(String(decoding: $0.value.bytes, as: UTF8.self)) } ?? 0
              let expectation: Expected =
                switch (held, number % 2) {
                case (nil, _): .absent
                case (let held?, 0): .version(held.version)
                case (let held?, _): .value(held.value.bytes)
                }
              if try store.put("count", Array("\(count + 1)".utf8), expecting: expectation) != nil { break }
            }
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try first.text("count") == "\(4 * each)")
    #expect(try second.text("count") == "\(4 * each)")
  }
}
