import SyncTestSupport
import Testing

@testable import SyncStore

/// An open resumes from the index checkpoint. The result must equal that of a full replay.
@Suite("An opening without reading the journal")
struct OpeningTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  let host = SimulatedHost()

  /// All state of a view, whatever it was made from: its kind, and its parts as text.
  struct Knowledge {
    var parts: [String: Set<String>] = [:]
    var live: [Int] = []

    init(_ store: Store) throws {
      let digest = try store.digest()
      self = try store.reading { engine throws(StoreError) in try Knowledge(engine) }
      parts["digest"] = ["\(digest)"]
    }

    private init(_ engine: Engine) throws(StoreError) {
      let state = engine.state
      parts["locals"] = Set(engine.localMetadata.all().map { "\($0.key) \($0.value)" })
      parts["places of locals"] = Set(
        engine.localMetadata.all().map {
          "\($0.key) \(String(describing: engine.localMetadata.location(of: $0.key)))"
        })
      parts["parked"] = Set(engine.parked.keys.map { "\($0) \(Set(engine.parked[$0] ?? []).sorted())" })
      parts["losers"] = Set(engine.losers.locations.map { "\($0)" })
      parts["kept losers"] = Set(engine.losers.digests.map { "\($0)" })
      parts["reserved"] = Set(engine.reserved.map { "\($0)" })
      parts["places"] = Set(try engine.locations().map { "\($0)" })
      parts["actor"] = ["\(String(describing: state.actor)) \(state.sequence)"]
      parts["position"] = ["\(engine.position)"]
      parts["vector"] = ["\(state.vector)"]
      parts["incarnations"] = Set(state.incarnations.all.map { "\($0)" })
      parts["cursors"] = Set(state.cursors.map { "\($0.key) \($0.value)" })
      parts["marks"] = Set(state.marks.map { "\($0.key) \($0.value)" })
      parts["last mark"] = ["\(String(describing: state.marks.last))"]
      live = engine.journal.segments.map(\.liveBytes)
    }

    /// State that only one of them has.
    func differences(from other: Knowledge, but ignored: Set<String> = []) -> [String] {
      parts.keys.filter { !ignored.contains($0) }.sorted().flatMap { name in
        let (mine, others) = (parts[name] ?? [], other.parts[name] ?? [])
        return mine.subtracting(others).map { "\(name): + \($0)" }
          + others.subtracting(mine).map { "\(name): - \($0)" }
      }
    }
  }

  /// Writes records of every kind: deadlines, conflicts, parked records, reserved keys.
  static func churn(_ store: Store, _ other: Store, _ hosts: [SimulatedHost], seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    for round in 0..<4 {
      hosts[0].time += random.next() % 150_000
      try CompactionTests.churn(store, writes: 40, seed: random.next())
      try CompactionTests.churn(other, writes: 15, seed: random.next())
      let time = hosts[0].time
      try store.put(Key("expires \(round)"), [1], expiration: .at(time + random.next() % 100_000))
      try store.putReserved([0] + Array("member \(random.next() % 3)".utf8), [UInt8(round)])
      // The other one's clock is ahead: its next write must be parked.
      hosts[1].time = time + 200_000
      if round.isMultiple(of: 2) { try other.put(Key("early \(random.next() % 3)"), [2]) }
      if random.chance(50) {
        try other.putReserved([0] + Array("member \(random.next() % 3)".utf8), [UInt8(100 + round)])
      }
      hosts[1].time = time
      try store.synchronize(with: other)
      if random.next() % 3 == 0 { try store.compact() }
      if random.next() % 3 == 0 { _ = try store.digest() }
    }
    // Applies due parked records.
    try store.put("last", [9])
  }

  /// Removes the files from which an open could resume.
  static func removeIndex(of host: SimulatedHost) throws {
    for name in ["index", "ledger"] { _ = try host.storage.remove("/store/" + name) }
  }

  @Test(
    "finds what a full replay finds, after a kill and after a close", arguments: 0..<12 as Range<UInt64>)
  func equality(seed: UInt64) throws {
    let right = SimulatedHost(seed: 77, machine: "other")
    let store = try Store.create(on: host, configuration: Self.small)
    let other = try Store.create(on: right, id: store.id, configuration: Self.small)
    try Self.churn(store, other, [host, right], seed: seed)
    let before = try Knowledge(store)
    if seed.isMultiple(of: 2) { try store.close() }
    host.killProcesses()
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(again.core.engine.withLock { $0.index.isShared && $0.status.isRestored })
    let after = try Knowledge(again)
    #expect(after.differences(from: before) == [], "seed \(seed)")
    #expect(after.live == before.live, "seed \(seed)")
    #expect(try again.verify().isClean)
    let settled = try Self.settled(again)
    host.killProcesses()
    try Self.removeIndex(of: host)
    let read = try Self.settled(Store.open(on: host, configuration: Self.small))
    #expect(settled.differences(from: read, but: ["places"]) == [], "seed \(seed)")
    for (one, other) in zip(read.live, settled.live) { #expect(abs(one - other) < 1000, "seed \(seed)") }
  }

  /// The state after the next write: due parked records are applied only by it, even after a full replay.
  private static func settled(_ store: Store) throws -> Knowledge {
    try store.setLocal(Array("nothing".utf8), nil)
    return try Knowledge(store)
  }

  @Test("resumes from the index after compactions, too, alone and with other processes")
  func afterCompactions() throws {
    let host = SimulatedHost(compacting: .onRequest)
    let shared = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)
    let store = try Store.create(on: host, configuration: shared)
    let secret = store.core.engine.withLock { $0.index.hashIndex.secret }
    for _ in 0..<4 {
      try CompactionTests.churn(store, writes: 100)
      try store.compact()
      let other = try Store.openSecond(on: host, configuration: shared)
      #expect(other.core.engine.withLock { $0.index.isShared })
      try other.put("other", "x")
      #expect(try store.text("other") == "x")
      try store.delete("other")
      #expect(try other.get("other") == nil)
      try other.close()
    }
    host.killProcesses()
    let again = try Store.open(on: host, configuration: shared)
    #expect(again.core.engine.withLock { $0.index.hashIndex.secret } == secret)
    #expect(try again.verify().isClean)
  }

  @Test(
    "does not read records that are not requested; damage is reported on read, and repaired (F17, F37)")
  func damage() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host, configuration: Self.small)
    try store.put("a", "value of a")
    try store.put("b", "value of b")
    try store.close()
    let file = "/store/journal/0000000000000001.segment"
    let bytes = try host.storage.open(file, .readOnly).read(64 << 10, at: 0)
    let place = try #require(bytes.firstRange(of: Array("value of a".utf8))?.lowerBound)
    try host.storage.flipBit(of: file, at: place, bit: 2)
    let again = try Store.open(on: host, configuration: Self.small)
    let actor = try again.actor
    #expect(try again.status().damagedPlaces == 0)
    #expect(try again.text("b") == "value of b")
    #expect(#expect(throws: StoreError.self) { try again.get("a") }?.code == .damaged)
    #expect(#expect(throws: StoreError.self) { try again.withValue("a") { _ in } }?.code == .damaged)
    // The next one replays everything, and does what rule R9 requires.
    host.killProcesses()
    let later = try Store.open(on: host, configuration: Self.small)
    #expect(try later.status().damagedPlaces == 1)
    #expect(try later.actor != actor)
    #expect(#expect(throws: StoreError.self) { try later.get("a") }?.code == .damaged)
    #expect(try later.text("b") == "value of b")
    try later.put("a", "again")
    #expect(try later.text("a") == "again")
  }

  @Test(
    "does not use an index made doubtful by a loss of power, a copy or a flipped bit (F37, F42, F55)"
  )
  func distrust() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<500 { try store.put(Key("key \(number)"), "value \(number)") }
    try store.sync()
    try store.put("last", "one")
    let files = try host.storage.files(below: "/store")
    func expectAll(_ what: String) throws {
      let opened = try Store.open(on: host, configuration: Self.small)
      for number in 0..<500 {
        #expect(try opened.text(Key("key \(number)")) == "value \(number)", "\(what)")
      }
      #expect(try opened.verify().isClean, "\(what)")
      host.killProcesses()
    }
    host.killProcesses()
    for name in ["index", "ledger"] {
      let bytes = try #require(files["/store/" + name])
      var random = SplitMix64(seed: 5)
      // Words in use, and any others.
      let used = bytes.indices.filter { bytes[$0] != 0 }
      for round in 0..<60 {
        let offset = used[Int(random.next() % UInt64(used.count))]
        try host.storage.flipBit(of: "/store/" + name, at: offset, bit: round % 8)
        try expectAll("\(name), byte \(offset)")
        try host.storage.restore(files)
      }
      for size in [0, 100, 4096, 8192, 60_000] {
        try host.storage.open("/store/" + name, .readWrite).resize(to: size)
        try expectAll("\(name) of \(size) bytes")
        try host.storage.restore(files)
      }
      try host.storage.restore(["/store/" + name: [UInt8](repeating: 0xA7, count: 70_000)])
      try expectAll("\(name) of garbage")
      try host.storage.restore(files)
      _ = try host.storage.remove("/store/" + name)
      try expectAll("no \(name)")
      try host.storage.restore(files)
    }
    host.losePower(seed: 3)
    try expectAll("power")
  }

  @Test("detects that the journal was replaced by an older one than that of the index (F56)")
  func olderJournal() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<50 { try store.put(Key("\(number)"), "old") }
    let journal = try host.storage.files(below: "/store/journal")
    for number in 0..<60 { try store.put(Key("\(number)"), "new") }
    host.killProcesses()
    try host.storage.restore(journal)
    let again = try Store.open(on: host, configuration: Self.small)
    #expect(try again.status().keys == 50)
    for number in 0..<50 { #expect(try again.text(Key("\(number)")) == "old") }
    #expect(try again.verify().isClean)
  }

  @Test("finds each transaction complete or not at all, at whatever call its process was killed (F2, F6)")
  func killedWhileIndexing() throws {
    // Transactions that fill segments and let the index grow; at the chosen call the process is gone,
    // whatever it would do next.
    let (transactions, keys) = (8, 400)
    var call = 1
    var calls: Set<String> = []
    while true {
      let host = SimulatedHost(seed: UInt64(call))
      let store = try Store.create(on: host, configuration: Self.small)
      try store.put("before", "x")
      try store.close()
      let seen = Locked<Set<String>>([])
      let plan = FaultPlan { call, path in
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        seen.withLock { _ = $0.insert("\(call) \(name)") }
      }
      let dying = try Store.open(on: host, configuration: Self.small, failing: plan)
      seen.withLock { $0 = [] }
      let before = plan.calls
      plan.fail(number: call, forever: true)
      var acknowledged = 0
      while acknowledged < transactions {
        let number = acknowledged
        let isDone: Void? = try? dying.transaction { transaction in
          for key in 0..<keys {
            try transaction.put(Key("\(number) \(key)"), [UInt8](repeating: UInt8(number), count: 100))
          }
        }
        guard isDone != nil, plan.calls - before < call else {
          if isDone != nil { acknowledged += 1 }
          break
        }
        acknowledged += 1
      }
      let isOver = plan.calls - before < call
      if isOver { calls = seen.withLock { $0 } }
      host.killProcesses()
      let again = try Store.open(on: host, configuration: Self.small)
      let found = try (0..<transactions).map { number in
        try (0..<keys).count { try again.get(Key("\(number) \($0)"))?.bytes.first == UInt8(number) }
      }
      let whole = found.prefix { $0 == keys }.count
      #expect(found.dropFirst(whole).allSatisfy { $0 == 0 }, "call \(call): \(found)")
      #expect(whole == acknowledged || whole == acknowledged + 1, "call \(call): \(found)")
      #expect(try again.status().keys == whole * keys + 1, "call \(call)")
      #expect(try again.verify().isClean, "call \(call)")
      if isOver {
        #expect(acknowledged == transactions)
        break
      }
      call = EachCall.after(call)
    }
    // Segments were made, and the index grew.
    #expect(call > 20)
    #expect(calls.contains { $0.hasSuffix(".segment") })
    #expect(calls.contains("allocate index"), "\(calls.sorted())")
  }

  @Test("finds everything committed, at whatever store to the index its process was killed (F2, F6)")
  func killedAtEachStore() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<20 { try store.put(Key("\(number)"), "old") }
    let before = try host.storage.files(below: "/store")
    for kind in ["put", "overwrite", "transaction"] {
      host.killProcesses()
      try host.storage.restore(before)
      let store = try Store.open(on: host, configuration: Self.small)
      // From now on it is kept.
      _ = try store.digest()
      let keys = store.core.engine.withLock { $0.index.hashIndex }
      var images: [[String: [UInt8]]] = []
      let storage = host.storage
      keys.observer = { if let image = try? storage.files(below: "/store") { images.append(image) } }
      switch kind {
      case "put": try store.put("fresh", "new")
      case "overwrite": try store.put("3", "new")
      default:
        try store.transaction { transaction in
          for number in 3..<8 { try transaction.put(Key("\(number)"), Array("new".utf8)) }
          try transaction.put("another", Array("new".utf8))
        }
      }
      keys.observer = nil
      #expect(images.count > 1, "\(kind)")
      for (moment, image) in images.enumerated() {
        try host.storage.restore(image)
        host.killProcesses()
        let again = try Store.open(on: host, configuration: Self.small)
        #expect(again.core.engine.withLock { $0.status.isRestored }, "\(kind), moment \(moment)")
        let expected: [Key: String] = kind == "put" ? ["fresh": "new"] : ["3": "new"]
        for (key, value) in expected { #expect(try again.text(key) == value, "\(kind), moment \(moment)") }
        if kind == "transaction" {
          for number in 3..<8 {
            #expect(try again.text(Key("\(number)")) == "new", "\(kind), moment \(moment), key \(number)")
          }
          #expect(try again.text("another") == "new", "\(kind), moment \(moment)")
        }
        #expect(try again.text("15") == "old")
        let digest = try again.core.engine.withLock { try $0.computeDigest(isExclusive: true).digest }
        #expect(try again.digest() == digest, "\(kind), moment \(moment)")
        try again.put("after", "x")
        #expect(try again.verify().isClean)
      }
    }
  }

  @Test("resumes where a process was killed while installing a compacted segment (F7)")
  func killedWhileInstalling() throws {
    let host = SimulatedHost(compacting: .onRequest)
    let other = SimulatedHost(seed: 3, machine: "other")
    let store = try Store.create(on: host, configuration: Self.small)
    try CompactionTests.churnUnpurged(store, writes: 150)
    let peer = try Store.create(on: other, id: store.id, configuration: Self.small)
    try CompactionTests.churn(peer, writes: 30, seed: 9)
    try store.synchronize(with: peer)
    try CompactionTests.churn(store, writes: 60, seed: 2)
    try store.sync()
    let before = try CompactionTests.Picture(store)
    var images: [[String: [UInt8]]] = []
    var stores = 0
    store.core.engine.withLock { $0.index.hashIndex }.observer = {
      stores += 1
      if stores % 7 == 1, let image = try? host.storage.files(below: "/store") { images.append(image) }
    }
    try store.compact()
    #expect(images.count > 3)
    for (moment, image) in images.enumerated() {
      host.killProcesses()
      for path in try host.storage.files(below: "/store").keys where image[path] == nil {
        _ = try host.storage.remove(path)
      }
      try host.storage.restore(image)
      let again = try Store.open(on: host, configuration: Self.small)
      #expect(again.core.engine.withLock { $0.status.isRestored }, "moment \(moment)")
      let after = try CompactionTests.Picture(again)
      #expect(after.values == before.values && after.digest == before.digest, "moment \(moment)")
      #expect(after.log == before.log && after.conflicts == before.conflicts, "moment \(moment)")
      #expect(again.core.engine.withLock { $0.status.isRestored }, "moment \(moment)")
      try again.compact()
      #expect(try CompactionTests.Picture(again).values == before.values, "moment \(moment)")
      #expect(try again.verify().isClean, "moment \(moment)")
      let files = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }
      #expect(files.count == (try again.status().segments), "moment \(moment): \(files)")
    }
  }

  @Test("read-only changes nothing, and finds what a writer left (R3)")
  func reader() throws {
    let store = try Store.create(on: host, configuration: Self.small)
    for number in 0..<300 { try store.put(Key("key \(number)"), "value") }
    host.killProcesses()
    var before = try host.storage.files(below: "/store")
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    #expect(try reader.status().keys == 300)
    #expect(try reader.text("key 7") == "value")
    try reader.close()
    var after = try host.storage.files(below: "/store")
    // Everything that processes share is in the control page.
    (before["/store/control"], after["/store/control"]) = (nil, nil)
    #expect(before == after)
  }
}
