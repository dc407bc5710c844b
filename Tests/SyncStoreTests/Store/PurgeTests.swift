import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Deleted values never come back (R8)")
struct PurgeTests {
  let left = SimulatedHost(seed: 1, machine: "left")
  let right = SimulatedHost(seed: 2, machine: "right")
  let third = SimulatedHost(seed: 3, machine: "third")
  static let device = (1...3).map { DeviceID(bytes: [UInt8](repeating: UInt8($0), count: 32))! }

  /// Three copies that have all synced and acknowledged it.
  func copies() throws -> [Store] {
    let first = try Store.create(on: left)
    let copies = [
      first, try Store.create(on: right, id: first.id), try Store.create(on: third, id: first.id),
    ]
    try copies[0].put("kept", "1")
    try copies[0].put("doomed", "2")
    try meet(copies)
    return copies
  }

  /// Two copies that have neither synced nor acknowledged.
  func silentCopies() throws -> [Store] {
    let first = try Store.create(on: left)
    return [first, try Store.create(on: right, id: first.id)]
  }

  /// All sync, acknowledge, and sync again.
  func meet(_ copies: [Store]) throws {
    for _ in 0..<2 {
      for host in [left, right, third] { host.time += 1 }
      for (index, copy) in copies.enumerated() { try copy.acknowledge(as: Self.device[index]) }
      for copy in copies { for other in copies where other !== copy { try copy.receive(from: other) } }
    }
  }

  @Test("a store without peers purges at once, and compaction frees the space")
  func alone() throws {
    let store = try Store.create(on: left, configuration: Configuration(segmentBytes: 64 << 10))
    for number in 0..<200 { try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 1000)) }
    for number in 0..<200 { try store.delete(Key("\(number)")) }
    try store.put("last", "x")
    #expect(try store.purge() == 200)
    #expect(try store.purge() == 0)
    #expect(try store.status().keys == 1)
    #expect(try store.replicaSummary().floor == VersionVector([store.actor: 400]))
    try store.put("another", "x")
    while try store.compact() > 0 {}
    #expect(try store.status().journalBytes < 3 * (64 << 10))
  }

  @Test(
    "purged keys stay absent, whatever survives of the index and the journal",
    arguments: 0..<20 as Range<UInt64>)
  func rebuilding(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let host = SimulatedHost(seed: seed)
    let configuration = Configuration(segmentBytes: 64 << 10)
    var store = try Store.create(on: host, configuration: configuration)
    var model: [Int: UInt8] = [:]
    for step in 0..<600 {
      let number = Int(random.next() % 60)
      let key = try Key("\(number)")
      if random.chance(60) {
        let byte = UInt8(step % 251)
        try store.put(key, [byte] + [UInt8](repeating: 7, count: Int(random.next() % 900)))
        model[number] = byte
      } else {
        #expect(try store.delete(key) == (model[number] != nil))
        model[number] = nil
      }
      if random.chance(4) { try store.purge() }
      if random.chance(3) { try store.compact() }
      if random.chance(2) {
        if random.chance(50) { try store.close() } else { host.losePower(seed: seed + UInt64(step)) }
        store = try Store.open(on: host, configuration: configuration)
        for number in 0..<60 {
          #expect(try store.get(Key("\(number)"))?.bytes.first == model[number], "seed \(seed), step \(step)")
        }
      }
    }
    var keys: Set<String> = []
    try store.scan { key, _ in keys.insert(String(decoding: [UInt8](copying: key), as: UTF8.self)) }
    #expect(keys == Set(model.keys.map { "\($0)" }))
  }

  @Test("a tombstone waits until each active member has seen it")
  func waiting() throws {
    let copies = try copies()
    try copies[0].delete("doomed")
    #expect(try copies[0].purge() == 0)
    try copies[1].receive(from: copies[0])
    try copies[1].acknowledge(as: Self.device[1])
    try copies[0].receive(from: copies[1])
    #expect(try copies[0].purge() == 0)
    try meet(copies)
    #expect(try copies[0].purge() == 1)
    #expect(try copies[1].purge() == 1)
    #expect(try copies[0].replicaSummary().horizon == copies[1].replicaSummary().horizon)
    try meet(copies)
    for copy in copies { #expect(try copy.get("doomed") == nil) }
    #expect(try copies[0].digest() == copies[2].digest())
  }

  @Test("compaction purges only what no member would need a full state for")
  func beforeCompaction() throws {
    let store = try Store.create(on: left)
    for (number, device) in Self.device.enumerated() {
      try store.putReserved(ReservedKey.member(device), [UInt8(number)])
    }
    try store.put("a", "1")
    try store.delete("a")
    try store.compactor.purgeBeforeCompaction(always: true, sparing: 0)
    #expect(try store.replicaSummary().floor.isEmpty)
    // A member silent for longer than that receives full state on its return.
    left.time += Limits.retirementMilliseconds + 1000
    try store.compactor.purgeBeforeCompaction(always: true, sparing: 0)
    #expect(try !store.replicaSummary().floor.isEmpty)
  }

  @Test("compaction keeps the last writes, for readers of changes")
  func spared() throws {
    let store = try Store.create(on: left)
    for number in 0..<10 {
      try store.put(Key("\(number)"), "x")
      try store.delete(Key("\(number)"))
    }
    #expect(try store.purge(sparing: 4) == 8)
    #expect(try store.purge() == 2)
  }

  @Test("a member acknowledges when there are tombstones, and not too often")
  func acknowledging() throws {
    let copies = try silentCopies()
    func say(_ copy: Int) throws -> Bool { try copies[copy].acknowledgeIfDue(as: Self.device[copy]) }
    try copies[0].put("live", "1")
    try copies[1].receive(from: copies[0])
    #expect(try !say(0) && !say(1))
    try copies[0].put("doomed", "1")
    try copies[0].delete("doomed")
    #expect(try say(0))
    #expect(try !say(0))
    try copies[1].receive(from: copies[0])
    #expect(try say(1))
    // The others' acknowledgement is not a delete.
    for host in [left, right] { host.time += 2 * Limits.acknowledgementMilliseconds }
    try copies[0].receive(from: copies[1])
    #expect(try !say(0) && !say(1))
    #expect(try copies[0].purge() == 1)
    try copies[1].put("short", "1", expiration: .at(right.time + 1000))
    #expect(try say(1))
    try copies[1].delete("short")
    #expect(try !say(1))
    right.time += Limits.acknowledgementMilliseconds + 1000
    #expect(try say(1))
    // An idle member acknowledges before it counts as retired.
    right.time += Limits.retirementMilliseconds / 2 + 1000
    #expect(try say(1))
    #expect(try !say(1))
  }

  @Test("records of an unfinished round are acknowledged once they are covered")
  func acknowledgingAfterRound() throws {
    let copies = try silentCopies()
    try copies[0].put("doomed", "1")
    try copies[0].delete("doomed")
    let round = try copies[0].openRound(
      for: RoundReceiver(cursor: nil, covered: VersionVector()))
    while let batch = try round.next(maximumBytes: 1) { _ = try copies[1].apply(batch) }
    #expect(try copies[1].acknowledgeIfDue(as: Self.device[1]))
    try copies[1].finish(round.close)
    right.time += Limits.acknowledgementMilliseconds + 1000
    #expect(try copies[1].acknowledgeIfDue(as: Self.device[1]))
    right.time += Limits.acknowledgementMilliseconds + 1000
    #expect(try !copies[1].acknowledgeIfDue(as: Self.device[1]))
  }

  @Test("a member unseen for the retirement period does not delay it")
  func retirement() throws {
    let copies = try copies()
    try copies[0].delete("doomed")
    for host in [left, right] { host.time += Limits.retirementMilliseconds + 1000 }
    try meet(Array(copies[0...1]))
    #expect(try copies[0].purge() == 1)
  }

  @Test(
    "a member returning after a purge revives nothing, and its own writes are not lost (F63)"
  )
  func returning() throws {
    let copies = try copies()
    try copies[2].put("unsent", "written while away")
    try copies[2].put("kept", "changed while away")
    try copies[0].delete("doomed")
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 1000 }
    try meet(Array(copies[0...1]))
    for copy in copies[0...1] { #expect(try copy.purge() == 1) }
    #expect(try copies[2].text("doomed") == "2")
    // It lags behind: it receives first.
    try copies[2].receive(from: copies[1])
    try meet(copies)
    for copy in copies {
      #expect(try copy.get("doomed") == nil)
      #expect(try copy.text("unsent") == "written while away")
      #expect(try copy.text("kept") == "changed while away")
      #expect(try copy.digest() == copies[0].digest())
    }
    #expect(try copies[2].replicaSummary().floor == copies[0].replicaSummary().floor)
  }

  @Test("the reissued records of a returning member can be sent, however many there are")
  func returningWithMuch() throws {
    var copies = try copies()
    try copies[2].close()
    copies[2] = try Store.open(on: third, configuration: Configuration(blobThreshold: 1 << 20))
    for number in 0..<20 { try copies[2].put(Key("\(number)"), [UInt8](repeating: 1, count: 900_000)) }
    for host in [left, right, third] { host.time += 10 }
    try copies[0].delete("doomed")
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 1000 }
    try meet(Array(copies[0...1]))
    for copy in copies[0...1] { #expect(try copy.purge() == 1) }
    try copies[2].receive(from: copies[1])
    let round = try copies[2].openRound(
      for: RoundReceiver(cursor: nil, covered: VersionVector()))
    var count = 0
    while let batch = try round.next(maximumBytes: 1 << 20) {
      let sizes = batch.records.list.map(\.record.transferSize)
      #expect(sizes.reduce(0, +) < Limits.batchBytes)
      count += sizes.count { $0 > 900_000 }
    }
    #expect(count == 20)
  }

  @Test(
    "a late record at a copy that has purged is reissued if a purged tombstone may have beaten it elsewhere"
  )
  func lateWrite() throws {
    let copies = try copies()
    try copies[2].put("late", "older than the horizon")
    left.time += 60_000
    right.time += 60_000
    try copies[0].delete("doomed")
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 1000 }
    try meet(Array(copies[0...1]))
    #expect(try copies[0].purge() == 1)
    let before = try #require(try version(of: "late", in: copies[2]))
    try copies[0].receive(from: copies[2])
    let after = try #require(try version(of: "late", in: copies[0]))
    #expect(try after > before && after.dot.actor == copies[0].actor)
    #expect(try copies[0].text("late") == "older than the horizon")
  }

  private func version(of key: String, in store: Store) throws -> Version? {
    try store.core.engine.withLock { engine in try engine.held(Array(key.utf8))?.version }
  }

  @Test("an interrupted full state resumes where it stopped", arguments: 1..<6)
  func resuming(batches: Int) throws {
    let copies = try copies()
    for number in 0..<50 { try copies[0].put(Key("\(number)"), [UInt8](repeating: 1, count: 500)) }
    try copies[0].delete("doomed")
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 1000 }
    try copies[0].acknowledge(as: Self.device[0])
    #expect(try copies[0].purge() == 1)
    try copies[2].receive(from: copies[0], batches: batches, maximumBytes: 4000)
    let held = try copies[2].status().keys
    let round = try copies[0].openRound(
      for: RoundReceiver(
        cursor: try copies[2].cursor(for: copies[0].actor), covered: try copies[2].versionVector()))
    #expect(round.close.isFull)
    #expect(try round.count <= copies[0].status().keys - (held - 2) + 1)
    #expect(try copies[2].text("doomed") == "2")
    try copies[2].receive(from: copies[0])
    #expect(try copies[2].get("doomed") == nil)
    #expect(try copies[2].digest() == copies[0].digest())
  }

  @Test("an expired value is purged, too, once it is past on every clock")
  func expired() throws {
    let store = try Store.create(on: left)
    try store.put("brief", Array("x".utf8), expiration: .at(left.time + 1000))
    left.time += 2000
    #expect(try store.get("brief") == nil)
    #expect(try store.purge() == 0)
    left.time += Limits.clockDriftMilliseconds
    #expect(try store.purge() == 1)
  }

  @Test("a reader of changes is told that tombstones are gone, unless it has seen them")
  func followers() throws {
    let store = try Store.create(on: left)
    try store.put("a", "1")
    let before = try store.changePosition()
    try store.delete("a")
    let behind = try store.changePosition()
    try store.put("b", "1")
    try store.purge()
    var early = ChangeReader(before, .all)
    #expect(throws: StoreError.self) { try early.poll(store) }
    var late = ChangeReader(behind, .all)
    guard case .found(let changes) = try late.poll(store) else {
      Issue.record("nothing was found")
      return
    }
    #expect(changes.count == 1)
  }

  @Test("a parked record beaten by a purged tombstone stays absent after a loss of power")
  func beatenBeforeItsTime() throws {
    let first = try Store.create(on: left)
    let second = try Store.create(on: right, id: first.id)
    left.time += 3_600_000
    try first.put("k", "ahead")
    left.time -= 3_600_000
    try second.receive(from: first)
    #expect(try second.text("k") == nil)
    // Its own clock runs ahead as well: the value is due, and it is deleted.
    right.time += 3_700_000
    #expect(try second.text("k") == "ahead")
    try second.delete("k")
    right.time -= 3_700_000
    #expect(try second.purge() == 1)
    try second.sync()
    right.losePower(seed: 1)
    let again = try Store.open(second.path, on: right)
    #expect(try again.explain("k") == nil)
    right.time += 7_200_000
    #expect(try again.text("k") == nil)
  }

  @Test(
    "a parked record applied, deleted and purged stays absent when the store is opened again (R8)"
  )
  func appliedBeforeItWasDeleted() throws {
    let first = try Store.create(on: left)
    let second = try Store.create(on: right, id: first.id)
    left.time += 3_600_000
    try first.put("k", "ahead")
    left.time -= 3_600_000
    try second.receive(from: first)
    right.time += 3_700_000
    #expect(try second.text("k") == "ahead")
    try second.delete("k")
    #expect(try second.purge() == 1)
    for isPowerLost in [false, true] {
      if isPowerLost {
        try Store.open(second.path, on: right).sync()
        right.losePower(seed: 1)
      } else {
        right.killProcesses()
      }
      let again = try Store.open(second.path, on: right)
      #expect(try again.text("k") == nil)
      #expect(try again.explain("k") == nil)
      try again.put("other", "x")
      #expect(try again.text("k") == nil)
    }
  }

  @Test("an unconfirmed copy gives no full state, and purges nothing")
  func unconfirmed() throws {
    let copies = try copies()
    try copies[0].delete("doomed")
    for host in [left, right, third] { host.time += Limits.retirementMilliseconds + 1000 }
    try copies[0].acknowledge(as: Self.device[0])
    #expect(try copies[0].purge() == 1)
    try copies[1].becomeNewActor()
    #expect(try copies[1].replicaSummary().health == .unconfirmed)
    #expect(try !copies[1].acknowledge(as: Self.device[1]))
    try copies[1].receive(from: copies[0])
    #expect(try copies[1].replicaSummary().health == .healthy)
    #expect(try copies[1].digest() == copies[0].digest())
  }
}
