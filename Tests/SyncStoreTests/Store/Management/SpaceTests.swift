import SyncTestSupport
import Testing

@testable import SyncStore

/// Releasing keys, space and memory.
@Suite("A store's space")
struct SpaceTests {
  let host = SimulatedHost(compacting: .onRequest)

  @Test("is freed by deleting all keys, or a range; they stay deleted on a copy")
  func deleteAll() throws {
    let store = try Store.create(on: host)
    let copy = try Store.create("/copy", on: host, id: store.id)
    for number in 0..<1200 { try store.put(Key("a\(number)"), "x") }
    for number in 0..<10 { try store.put(Key("b\(number)"), "x") }
    try copy.receive(from: store)
    #expect(try store.deleteAll(KeyRange(prefix: "a")) == 1200)
    #expect(try store.status().keys == 10)
    #expect(try store.deleteAll() == 10 && store.deleteAll() == 0)
    host.losePower(seed: 1)
    let again = try Store.open(on: host)
    #expect(try again.status().keys == 0)
    let other = try Store.open("/copy", on: host)
    try other.receive(from: again)
    #expect(try other.status().keys == 0 && other.digest() == again.digest())
  }

  @Test(
    "is freed by a trim, which compacts and removes blobs unreferenced for a while"
  )
  func trim() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let directory = TemporaryDirectory()
    var environment = Environment.real()
    environment.compactionMode = .onRequest
    environment.now = { host.time }
    let configuration = Configuration(durability: .relaxed, blobThreshold: 1000, segmentBytes: 64 << 10)
    let path = directory.path + "/store"
    let store = try Store.create(
      at: path, name: nil, id: nil, configuration: configuration, environment: environment)
    for number in 0..<300 { try store.put("k", [UInt8](repeating: UInt8(number % 251), count: 900)) }
    try store.put("kept", [UInt8](repeating: 1, count: 5000))
    try store.put("replaced", [UInt8](repeating: 2, count: 6000))
    try store.put("replaced", "small")
    #expect(try store.trim() > 100_000)
    #expect(try store.blobs.all().count == 2)
    _ = try store.trim()
    host.time += 7_200_000
    #expect(try store.trim() == 6000)
    #expect(try store.blobs.all().map(\.size) == [5000])
    #expect(try store.get("kept")?.bytes.count == 5000 && store.text("replaced") == "small")
    #expect(try store.verify().isClean)
    try store.close()
  }

  @Test("in memory can be purged at the cost of time, and nothing else")
  func purge() throws {
    let store = try Store.create(on: host)
    for number in 0..<100 { try store.put(Key("\(number)"), "x") }
    #expect(try store.list().count == 100)
    #expect(store.core.engine.withLock { $0.sortedKeys.index != nil })
    let snapshot = try store.snapshot()
    store.purgeMemory()
    #expect(store.core.engine.withLock { $0.sortedKeys.index == nil })
    try store.delete("5")
    #expect(try store.list().count == 99 && snapshot.list().count == 100)
  }
}
