import SyncTestSupport
import Testing

@testable import SyncStore

/// Opening after a crash: itself interrupted, concurrent with others, or after a failed sync.
@Suite("Recovery")
struct RecoveryTests {
  static let first = RotationTests.journal + "/0000000000000001.segment"
  let host = SimulatedHost()

  /// Opens on a storage whose `call`-th call fails, and if `forever` all later ones, as if the process died
  /// there. Returns false if that call was not reached. After a single failure the process continues: for
  /// half of the calls it reopens the store, which must succeed.
  static func fails(
    at call: Int, forever: Bool, opening host: SimulatedHost, rescuedAtOnce: Int = 1 << 30
  ) throws -> Bool {
    let plan = FaultPlan()
    plan.fail(number: call, forever: forever)
    var environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    environment.salvageBatchBytes = rescuedAtOnce
    let opened = try? Store.open(
      at: "/store", configuration: host.configured(RotationTests.relaxed), environment: environment)
    let isMet = plan.calls >= call
    if !isMet { #expect(opened != nil) }
    if !forever, opened == nil, call % 4 < 2 {
      plan.clear()
      let configuration = host.configured(RotationTests.relaxed)
      #expect(throws: Never.self, "call \(call)") {
        try Store.open(at: "/store", configuration: configuration, environment: environment)
      }
    }
    return isMet
  }

  @Test("from a failed sync is still pending after a reader has opened the store (F30, F31, R4)")
  func readerAfterPoison() throws {
    let store = try Store.create(on: host)
    host.storage.failSync(of: Self.first)
    #expect(throws: StoreError.self) { try store.put("a", "1") }
    let actor = try store.actor
    try store.close()
    try Store.open(on: host, configuration: Configuration(mode: .readOnly)).close()
    let again = try Store.open(on: host)
    #expect(try again.actor != actor)
    try again.put("b", "2")
    RotationTests.losePower(host)
    let after = try Store.open(on: host)
    #expect(try after.text("a") == "1")
    #expect(try after.text("b") == "2")
  }

  @Test("from a failed sync is done by a writer that opens the store next to a reader (F31)")
  func writerJoinsReaderAfterPoison() throws {
    let store = try Store.create(on: host, configuration: SharedModeTests.shared)
    host.storage.failSync(of: Self.first)
    #expect(throws: StoreError.self) { try store.put("a", "1") }
    try store.close()
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    let writer = try Store.openSecond(on: host, configuration: SharedModeTests.shared)
    try writer.put("b", "2")
    #expect(try reader.text("a") == "1")
    #expect(try reader.text("b") == "2")
    RotationTests.losePower(host)
    let after = try Store.open(on: host)
    #expect(try after.text("a") == "1")
    #expect(try after.text("b") == "2")
  }

  @Test(
    "from a failed sync, killed at any call or failing once there, loses nothing acknowledged (F8, F31)",
    arguments: [(20, false), (150, false), (150, true)], [true, false])
  func failingRescue(_ load: (writes: Int, isBesideReader: Bool), forever: Bool) throws {
    let (writes, isBesideReader) = load
    var call = 1
    var dies = true
    while dies {
      let host = SimulatedHost(seed: UInt64(call))
      let store = try Store.create(on: host, configuration: RotationTests.relaxed)
      try store.put("durable", "x", durability: .full)
      try RotationTests.fill(store, writes)
      host.storage.failSync(of: Self.first)
      #expect(throws: StoreError.self) { try store.sync() }
      host.killProcesses()
      // It writes in two steps, across several segments every other time.
      let isWhole = writes > 100 && call.isMultiple(of: 2)
      dies = try Self.fails(
        at: call, forever: forever, opening: host, rescuedAtOnce: isWhole ? 1 << 30 : 64 << 10)
      host.killProcesses()
      let shared = host.configured(SharedModeTests.shared)
      var reader =
        isBesideReader ? try Store.open(on: host, configuration: Configuration(mode: .readOnly)) : nil
      var opened = try? Store.open(at: "/store", configuration: shared, environment: host.otherProcess)
      if opened == nil {
        // The reader does not read the result of the recovery.
        try reader?.close()
        reader = nil
        opened = try Store.open(at: "/store", configuration: shared, environment: host.otherProcess)
      }
      let again = try #require(opened)
      #expect(try again.status().keys == writes + 1, "call \(call)")
      if let reader { #expect(try reader.status().keys == writes + 1, "call \(call)") }
      try again.sync()
      RotationTests.losePower(host)
      #expect(try Store.open(on: host).status().keys == writes + 1, "call \(call)")
      // Alternately in one step and in two.
      call = writes > 100 ? EachCall.longAfter(call) : EachCall.after(call)
    }
    #expect(call > 10)
  }

  @Test(
    "from a loss of power, interrupted by another or failing once at any call, leaves a whole journal (F8)",
    arguments: 0..<3, [true, false])
  func interrupted(seed: UInt64, forever: Bool) throws {
    var call = 1 + Int(seed)
    var dies = true
    while dies {
      let host = SimulatedHost(seed: seed)
      let store = try Store.create(on: host, configuration: RotationTests.relaxed)
      try store.put("durable", "x", durability: .full)
      let actor = try store.actor
      try RotationTests.fill(store, 220)
      RotationTests.losePower(host, entries: true) { path, page in
        !(path.hasSuffix("2.segment") && page == 100)
      }
      dies = try Self.fails(at: call, forever: forever, opening: host)
      host.losePower(seed: seed + UInt64(call))
      let again = try Store.open(on: host)
      #expect(try again.text("durable") == "x")
      #expect(try again.actor != actor, "seed \(seed), call \(call)")
      var found = 0
      while try again.contains(Key("\(found)")) { found += 1 }
      #expect(found >= 60 && found < 140, "seed \(seed), call \(call)")
      #expect(try again.status().keys == found + 1, "seed \(seed), call \(call)")
      #expect(try again.verify().isClean)
      call = EachCall.longAfter(call)
    }
    #expect(call > 10)
  }

  @Test(
    "from a kill, killed again at any call or failing once there, loses nothing, with the index or not (F8)",
    arguments: [true, false], [true, false])
  func afterKill(forever: Bool, hasIndex: Bool) throws {
    var call = 1
    var fails = true
    while fails {
      let host = SimulatedHost(seed: UInt64(call))
      let store = try Store.create(on: host, configuration: RotationTests.relaxed)
      try RotationTests.fill(store, 150)
      let actor = try store.actor
      host.killProcesses()
      if !hasIndex { try OpeningTests.removeIndex(of: host) }
      fails = try Self.fails(at: call, forever: forever, opening: host)
      host.killProcesses()
      let again = try Store.open(on: host, configuration: RotationTests.relaxed)
      #expect(try again.status().keys == 150, "call \(call)")
      #expect(try again.actor == actor, "call \(call)")
      #expect(try again.verify().isClean, "call \(call)")
      try again.sync()
      RotationTests.losePower(host)
      #expect(try Store.open(on: host).status().keys == 150, "call \(call)")
      call = EachCall.longAfter(call)
    }
    #expect(call > 10)
  }

  @Test("by a writer hides the torn tail from readers that were open before (F15)")
  func withOpenReaders() throws {
    let store = try Store.create(on: host, configuration: RotationTests.relaxed)
    try RotationTests.fill(store, 220)
    RotationTests.losePower(host, entries: true) { path, page in !(path.hasSuffix("1.segment") && page == 100)
    }
    let read = Configuration(mode: .readOnly)
    let first = try Store.open(on: host, configuration: read)
    let second = try Store.openSecond(on: host, configuration: read)
    var third = host.otherProcess
    third.process += 1
    let found = try first.status().keys
    let writer = try Store.open(
      at: "/store", configuration: host.configured(SharedModeTests.shared), environment: third)
    try writer.put("after", "x")
    for store in [first, second, writer] {
      #expect(try store.text("after") == "x")
      #expect(try store.status().keys == found + 1)
      #expect(try store.digest() == writer.digest())
    }
  }

  @Test("refuses a journal whose first segment is missing (F22)")
  func firstSegmentLost() throws {
    let store = try Store.create(on: host, configuration: RotationTests.relaxed)
    try RotationTests.fill(store, 100)
    try store.close()
    _ = try host.storage.remove(Self.first)
    host.killProcesses()
    #expect(#expect(throws: StoreError.self) { try Store.open(on: host) }?.code == .damaged)
  }

  @Test("makes a new actor when the last segment is lost with durable records (F22, F59)")
  func lastSegmentLost() throws {
    let store = try Store.create(on: host, configuration: RotationTests.relaxed)
    try RotationTests.fill(store, 100)
    try store.sync()
    let actor = try store.actor
    host.killProcesses()
    _ = try host.storage.remove(RotationTests.journal + "/0000000000000002.segment")
    #expect(try Store.open(on: host).actor != actor)
  }

  @Test("begins a new actor when an intact journal does not define the present one")
  func undefinedActor() throws {
    let store = try Store.create(on: host)
    try store.close()
    for path in [Self.first, "/store/index", "/store/ledger"] { _ = try host.storage.remove(path) }
    var journal = Journal(
      directory: RotationTests.journal, environment: host.environment, store: store.id, writable: true,
      largestSegment: 1 << 20, keys: store.journalKeys)
    try journal.begin(after: 0, durable: 0, position: 0)
    host.killProcesses()
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(#expect(throws: StoreError.self) { try reader.actor }?.code == .damaged)
    try reader.close()
    let writer = try Store.open(on: host)
    try writer.put("a", "1")
    #expect(try writer.actor == writer.explain("a")?.winner.dot.actor)
  }

  @Test("recognises a failed sync though one bit of the poison word is flipped", arguments: [0, 17, 63])
  func flippedPoison(bit: Int) throws {
    let store = try Store.create(on: host)
    host.storage.failSync(of: Self.first)
    #expect(throws: StoreError.self) { try store.put("a", "1") }
    let actor = try store.actor
    try store.close()
    try host.storage.flipBit(of: "/store/control", at: 16 + bit / 8, bit: bit % 8)
    #expect(try Store.open(on: host).actor != actor)
  }
}
