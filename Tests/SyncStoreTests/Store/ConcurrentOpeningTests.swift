import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Concurrent opening")
struct ConcurrentOpeningTests {
  let host = SimulatedHost()

  @Test("that finds no usable index makes the other processes give theirs up, so that they miss nothing")
  func withoutTheirIndex() throws {
    let shared = Configuration(mode: .shared, durability: .relaxed)
    let store = try Store.create(on: host, configuration: shared)
    try store.put("a", "1")
    // From now on the index is trusted only by processes that have it open.
    try host.storage.flipBit(of: "/store/index", at: 20, bit: 0)
    let other = try Store.openSecond(on: host, configuration: shared)
    for number in 0..<10 {
      try other.put("a", "other \(number)")
      #expect(try store.text("a") == "other \(number)")
      try store.put("a", "own \(number)")
      #expect(try other.text("a") == "own \(number)")
    }
  }

  @Test(
    "without the others' index replays segments that they compact before it has read them"
  )
  func compactedUnread() throws {
    let host = SimulatedHost(compacting: .onRequest)
    let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
    let store = try Store.create(on: host, configuration: shared)
    let other = try Store.openSecond(on: host, configuration: shared)
    for number in 0..<20 { try store.put(Key("key \(number)"), "first \(number)") }
    #expect(try other.text("key 7") == "first 7")
    other.core.engine.withLock { engine in
      engine.index.failure = StoreError(.damaged, "for the test")
      engine.rebuildIndex()
    }
    for round in 0..<3 {
      // It has read into the segment in which they are then replaced.
      for number in 0..<4 { try store.put(Key("filler \(number)"), [UInt8](repeating: 1, count: 18_000)) }
      #expect(try other.get("filler 3") != nil)
      for number in 0..<20 { try store.put(Key("key \(number)"), "\(round) \(number)") }
      try store.compact()
      for number in 0..<20 { #expect(try other.text(Key("key \(number)")) == "\(round) \(number)") }
      #expect(try other.status().heldBytes == 0)
    }
    #expect(try other.digest() == store.digest())
    #expect(try other.verify().isClean)
  }

  @Test("between the renaming and the installation of a compacted segment compacts it later")
  func duringCompaction() throws {
    let host = SimulatedHost(compacting: .onRequest)
    let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
    let plan = FaultPlan()
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    try Store.create(on: host, configuration: shared).close()
    let store = try Store.open(
      at: "/store", configuration: host.configured(shared), environment: environment)
    for number in 0..<60 { try store.put(Key("key \(min(number, 8))"), [UInt8](repeating: 1, count: 5000)) }
    let others = Locked<[Store]>([])
    plan.before(.open, of: "-1.segment") {
      let other = try? Store.openSecond(on: host, configuration: shared)
      // From here on it takes the copy for its original, though the index does not know the copy yet.
      #expect((try? other?.get("key 7")) != nil)
      others.withLock { $0 = other.map { [$0] } ?? [] }
    }
    try store.compact()
    let other = try #require(others.withLock { $0.first })
    for number in 0..<9 { try other.put(Key("key \(number)"), "later") }
    #expect(try other.compact() > 10_000)
    for store in [store, other] {
      for number in 0..<9 { #expect(try store.text(Key("key \(number)")) == "later") }
    }
    #expect(try other.digest() == store.digest() && other.verify().isClean)
  }

  @Test("while another process is suspended in an index write shares its index", arguments: [false, true])
  func withSuspendedWriter(isSettled: Bool) throws {
    let shared = Configuration(mode: .shared, durability: .relaxed)
    let store = try Store.create(on: host, configuration: shared)
    try store.put("a", "1")
    let applied = try store.core.engine.withLock { try $0.index.hashIndex.applied }
    try store.put("b", "2")
    // All of it is recorded, except how far that is.
    store.core.engine.withLock { $0.index.hashIndex.setApplied(applied) }
    let other = try Store.openSecond(on: host, configuration: shared)
    #expect(other.core.engine.withLock { $0.index.isShared })
    #expect(try other.text("b") == "2")
    if isSettled { try store.put("c", "3") }
    try other.put("d", "4")
    #expect(try store.text("d") == "4")
    #expect(try other.digest() == store.digest())
    host.killProcesses()
    let again = try Store.open(on: host, configuration: shared)
    #expect(again.core.engine.withLock { $0.status.isRestored })
    #expect(try again.text("b") == "2" && again.text("d") == "4")
    #expect(try again.verify().isClean)
  }

  @Test(
    "that was delayed while another one made a copied directory its own store reverts nothing (F14, F55)"
  )
  func heldUp() throws {
    let original = try Store.create(on: host)
    try original.put("a", "1")
    let former = try original.actor
    try original.close()
    let copy = SimulatedHost(seed: 2, machine: "copy")
    try copy.storage.install(host.storage.files(below: "/store"), from: "/store", at: "/store")
    // The part of the store it has read before its turn.
    let configuration = try copy.configured().checked()
    let identity = try #require(try StoreIdentity.read("/store", storage: copy.storage))
    let seal = try JournalKeys(
      "/store", store: identity.id, passphrase: configuration.passphrase, environment: copy.environment,
      writable: true, openedBytes: configuration.openedRecordBytes)
    let other = try Store.open(on: copy)
    for number in 0..<50 { try other.put(Key("key \(number)"), "2", durability: .full) }
    let actor = try other.actor
    #expect(actor != former)
    copy.killProcesses()
    let store = try StoreOpener(
      path: "/store", identity: identity, configuration: configuration, environment: copy.environment,
      journalKeys: seal
    ).run()
    #expect(try store.text("a") == "1")
    for number in 0..<50 { #expect(try store.text(Key("key \(number)")) == "2") }
    #expect(try store.actor == actor)
  }

  @Test("while a store with many keys is being closed is not refused")
  func duringClosing() throws {
    let shared = Configuration(mode: .shared, durability: .relaxed)
    let plan = FaultPlan()
    try Store.create(on: host, configuration: shared).close()
    let store = try Store.open(
      at: "/store", configuration: host.configured(shared),
      environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
    // From this number of keys on the index is closed, too.
    for part in 0..<8 {
      try store.transaction { transaction in
        for number in 0..<8200 { try transaction.put(Key("\(part) \(number)"), [1]) }
      }
    }
    let opened = Locked<Result<Store, any Error>?>(nil)
    plan.afterUnlocking(StoreLayout.entranceByte, of: "/control") {
      let other = Result {
        try Store.openSecond(on: host, configuration: shared)
      }
      opened.withLock { $0 = other }
    }
    try store.close()
    let other = try #require(opened.withLock { $0 }).get()
    #expect(try other.get("7 8199")?.bytes == [1])
  }
}
