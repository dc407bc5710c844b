import SyncStore
import SyncTestSupport
import Testing

/// Acknowledged writes survive the death of the process and a power loss.
@Suite("After a crash")
struct CrashTests {
  static let configuration = Configuration(mode: .exclusive, durability: .full, blobThreshold: 4096)

  @Test(
    "a killed process loses nothing, in any durability mode",
    arguments: [Durability.full, .interval(milliseconds: 1000), .relaxed])
  func killed(durability: Durability) throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Configuration(durability: durability))
    for number in 0..<50 { try store.put(Key("\(number)"), "value \(number)") }
    host.killProcesses()
    let again = try Store.open(on: host)
    for number in 0..<50 { #expect(try again.text(Key("\(number)")) == "value \(number)") }
    #expect(try again.verify().isClean)
  }

  @Test(
    "a put killed at any call is complete or absent, and can be repeated (F1, F3, F4)",
    arguments: [Durability.full, .relaxed], [false, true])
  func killedWithinPut(durability: Durability, writesTail: Bool) throws {
    var call = 1
    var outcomes: Set<String> = []
    while true {
      let host = SimulatedHost(seed: UInt64(call))
      if writesTail { host.storage.type = 0x9123_683E }
      let configuration = Configuration(durability: durability, segmentBytes: 1 << 20)
      let store = try Store.create(on: host, configuration: configuration)
      // The next one does not fit into the segment.
      for number in 0..<69 { try store.put(Key("\(number)"), [UInt8](repeating: 7, count: 15_000)) }
      try store.close()
      let plan = FaultPlan()
      let dying = try Store.open(on: host, configuration: configuration, failing: plan)
      let before = plan.calls
      plan.fail(number: call, forever: true)
      let value = [UInt8](repeating: 9, count: 15_000)
      let isAcknowledged = (try? dying.put("last", value)) != nil
      let isOver = plan.calls - before < call
      host.killProcesses()
      let again = try Store.open(on: host, configuration: configuration)
      let found = try again.get("last")?.bytes
      #expect(found == value || found == nil && !isAcknowledged, "call \(call)")
      let answer = isAcknowledged ? "acknowledged" : "unknown"
      outcomes.insert("\(found == nil ? "absent" : "present"), \(answer)")
      #expect(try again.status().keys == (found == nil ? 69 : 70), "call \(call)")
      #expect(try again.verify().isClean, "call \(call)")
      try again.put("last", value)
      #expect(try again.get("last")?.bytes == value)
      #expect(try again.status().keys == 70, "call \(call)")
      if isOver {
        #expect(isAcknowledged)
        break
      }
      call = EachCall.after(call)
    }
    #expect(outcomes.isSuperset(of: ["absent, unknown", "present, acknowledged"]), "\(outcomes)")
    // Only a writer that syncs can have written everything when it is killed before the acknowledgement.
    if durability == .full { #expect(outcomes.contains("present, unknown"), "\(outcomes)") }
    #expect(call > 5)
  }

  @Test(
    "a loss of power loses no durable write, tears no transaction, reorders none (F15, F16, F18, F19, F24)",
    arguments: EachCall.seeds(150, usually: 60))
  func powerLoss(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
    var store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
    var written = 0
    var durable = 0
    for _ in 0..<3 {
      for _ in 0..<Int(random.next() % 40) {
        let size = Int(random.next() % 30_000 % (random.next() % 4 == 0 ? 19_000 : 300))
        let number = written
        try store.transaction { transaction in
          try transaction.put(Key("first \(number)"), [UInt8](repeating: UInt8(number % 251), count: size))
          try transaction.put(Key("second \(number)"), [UInt8](repeating: UInt8(number % 251), count: size))
        }
        written += 1
        if random.next() % 5 == 0 {
          try store.sync()
          durable = written
        }
      }
      host.losePower(seed: random.next())
      store = try Store.open(
        on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20))
      var found = 0
      while try store.contains(Key("first \(found)")) { found += 1 }
      #expect(found >= durable, "seed \(seed): \(durable) were durable, \(found) are there")
      for number in 0..<written {
        let first = try store.get(Key("first \(number)"))?.bytes
        #expect(first == (try store.get(Key("second \(number)"))?.bytes), "seed \(seed)")
        #expect((first != nil) == (number < found), "seed \(seed): \(number) of \(found)")
        if let first { #expect(first.allSatisfy { $0 == UInt8(number % 251) }) }
      }
      #expect(try store.verify().isClean, "seed \(seed)")
      (written, durable) = (found, found)
      try store.sync()
    }
  }

  @Test(
    "recovery interrupted repeatedly ends in the same state (F8)", arguments: 0..<40 as Range<UInt64>)
  func recoveryIsIdempotent(seed: UInt64) throws {
    let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
    let store = try Store.create(on: host, configuration: Configuration(durability: .relaxed))
    for number in 0..<20 { try store.put(Key("\(number)"), "\(number)") }
    try store.sync()
    for number in 20..<60 { try store.put(Key("\(number)"), "\(number)") }
    host.losePower(seed: seed)
    var counts: [Int] = []
    for round in 0..<4 {
      let again = try Store.open(on: host)
      counts.append(try again.status().keys)
      #expect(try again.verify().isClean)
      if round % 2 == 0 { host.killProcesses() } else { host.losePower(seed: seed + UInt64(round)) }
    }
    #expect(counts.allSatisfy { $0 == counts[0] && $0 >= 20 }, "seed \(seed): \(counts)")
  }

  @Test(
    "creation interrupted by a loss of power leaves a store or none, and can be repeated (F5, F20)",
    arguments: EachCall.seeds(24, usually: 9))
  func creation(seed: UInt64) throws {
    var call = 1
    while true {
      let host = SimulatedHost(seed: seed, encrypted: seed % 2 == 1)
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      let failing = host.environment(over: FaultingStorage(host.storage, plan: plan))
      let failed: Bool
      do {
        _ = try Store.create(
          at: "/store", name: nil, id: nil, configuration: host.configured(), environment: failing)
        failed = plan.calls >= call
      } catch { failed = true }
      host.losePower(seed: seed &+ UInt64(call))
      do {
        _ = try Store.open(on: host)
      } catch {
        #expect(error.code == .notAStore, "seed \(seed), call \(call): \(error)")
        _ = try Store.create(on: host)
      }
      if !failed { break }
      call += Int(seed % 3) + 1
    }
  }

  @Test(
    "a failed sync poisons the store until it is reopened, which keeps what was there (F30, F31, R4)"
  )
  func failedSync() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host)
    try store.put("durable", "yes")
    let actor = try store.actor
    host.storage.failSync(of: "/store/journal/0000000000000001.segment")
    #expect(#expect(throws: StoreError.self) { try store.put("a", "1") }?.code == .poisoned)
    #expect(#expect(throws: StoreError.self) { try store.put("b", "2") }?.code == .poisoned)
    #expect(try store.text("durable") == "yes")
    try store.close()
    let again = try Store.open(on: host)
    #expect(try again.text("a") == "1")
    #expect(try again.actor != actor)
    try again.put("b", "2")
    host.losePower(seed: 0)
    let after = try Store.open(on: host)
    for (key, value) in [("durable", "yes"), ("a", "1"), ("b", "2")] {
      #expect(try after.text(Key(key)) == value)
    }
  }

  @Test("a full disk causes an error and nothing else (F25)")
  func fullDisk() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Configuration(segmentBytes: 1 << 20))
    host.storage.free = 3 << 20
    var count = 0
    let value = [UInt8](repeating: 1, count: 15_000)
    let error = #expect(throws: StoreError.self) {
      while true {
        try store.put(Key("\(count)"), value)
        count += 1
      }
    }
    #expect(error?.code == .diskFull)
    for number in 0..<count { #expect(try store.get(Key("\(number)"))?.bytes == value) }
    host.storage.free = nil
    try store.put("more", "now")
    try store.close()
    #expect(try Store.open(on: host).status().keys == count + 1)
  }

  @Test(
    "any call failing once or for ever keeps acknowledged writes, also with only synced data left (F29, F30)",
    arguments: [false, true], [false, true])
  func failingCalls(forever: Bool, isPowerLost: Bool) throws {
    var call = 1
    var finished = false
    while !finished {
      let host = SimulatedHost(seed: UInt64(call))
      // Three segments with few calls.
      let configuration = Configuration(blobThreshold: 200_000, segmentBytes: 1 << 20)
      try Store.create(on: host, configuration: configuration).close()
      let plan = FaultPlan()
      plan.fail(number: call, forever: forever)
      var acknowledged: [Int] = []
      do {
        let store = try Store.open(on: host, configuration: configuration, failing: plan)
        for number in 0..<25 {
          do {
            try store.put(Key("\(number)"), [UInt8](repeating: UInt8(number), count: 100_000))
            acknowledged.append(number)
          } catch { continue }
        }
        try store.close()
      } catch {}
      finished = plan.calls < call
      // Data written by a process outlives it: only a power loss shows whether it was made durable.
      if isPowerLost { RotationTests.losePower(host) } else { host.killProcesses() }
      let again = try Store.open(on: host, configuration: configuration)
      for number in acknowledged {
        #expect(try again.get(Key("\(number)"))?.bytes.first == UInt8(number), "call \(call), key \(number)")
      }
      call = isPowerLost ? EachCall.after(call) : call + 1
    }
    #expect(call > 10)
  }
}
