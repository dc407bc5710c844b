import SyncTestSupport
import Testing

@testable import SyncStore

/// A disk that fails one call and works again: the process continues with its open store. The tests of each
/// step cover what a process leaves that dies of the failure.
@Suite("A call that fails once")
struct FailingOnceTests {
  typealias Picture = CompactionTests.Picture

  /// Writes durably. After a failed sync has ended the writes of a store (R4), the user reopens it with
  /// `reopening`.
  private static func put(
    _ key: Key, in store: inout Store, _ place: String, reopening: () throws -> Store
  ) throws {
    do throws(StoreError) {
      try store.put(key, "x", durability: .full)
    } catch {
      #expect(error.code == .poisoned, "\(place): \(error)")
      try store.close()
      store = try reopening()
      try store.put(key, "x", durability: .full)
    }
  }

  @Test(
    "in a compaction loses nothing, and the next one completes the work (F29)",
    arguments: [false, true])
  func compaction(sealed: Bool) throws {
    var call = 1
    var failed = 0
    while true {
      let place = "call \(call)"
      let host = SimulatedHost(seed: UInt64(call), compacting: .onRequest, encrypted: sealed)
      let made = try Store.create(on: host, configuration: CompactionTests.small)
      try CompactionTests.churnUnpurged(made, writes: 90)
      let before = try Picture(made).values
      try made.close()
      let plan = FaultPlan()
      func open() throws -> Store {
        try Store.open(on: host, configuration: CompactionTests.small, failing: plan)
      }
      var store = try open()
      let opening = plan.calls
      plan.fail(number: call)
      if (try? store.compact()) == nil { failed += 1 }
      let isOver = plan.calls - opening < call
      plan.clear()
      try Self.put("meanwhile", in: &store, place, reopening: open)
      try store.compact()
      let files = try host.storage.list("/store/journal").filter { $0.hasSuffix(".segment") }
      #expect(files.count == (try store.status().segments), "\(place): \(files)")
      try store.delete("meanwhile", durability: .full)
      #expect(try Picture(store).values == before, "\(place)")
      if call % 2 == 0 { host.killProcesses() } else { host.losePower(seed: UInt64(call)) }
      let again = try Store.open(on: host, configuration: CompactionTests.small)
      #expect(try Picture(again).values == before, "\(place)")
      #expect(try again.verify().isClean, "\(place)")
      if isOver { break }
      call = EachCall.after(call)
    }
    #expect(call > 25 && failed > 10, "\(failed) of \(call)")
  }

  @Test(
    "in a rekey loses nothing, and the rekey is completed or never happened (F12)",
    arguments: RekeyTests.Change.allCases)
  func rekeying(change: RekeyTests.Change) throws {
    var call = 1
    var failed = 0
    while true {
      let place = "call \(call)"
      let host = SimulatedHost(seed: UInt64(call), compacting: .onRequest, encrypted: change.isSealedBefore)
      let made = try RekeyTests.filled(host, writes: 30)
      let before = try Picture(made).values
      try made.close()
      let plan = FaultPlan()
      let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
      var store = try RekeyTests.open(
        host, change.isSealedBefore ? SimulatedHost.passphrase : nil, environment)
      let opening = plan.calls
      plan.fail(number: call)
      if (try? change.run(store)) == nil { failed += 1 }
      let isOver = plan.calls - opening < call
      plan.clear()
      try Self.put("meanwhile", in: &store, place) {
        try #require(change.passphrases.compactMap { try? RekeyTests.open(host, $0, environment) }.first)
      }
      #expect(try store.finishRekeying().isComplete, "\(place)")
      #expect(!store.isRekeying, "\(place)")
      try store.delete("meanwhile", durability: .full)
      #expect(try Picture(store).values == before, "\(place)")
      if call % 2 == 0 { host.killProcesses() } else { host.losePower(seed: UInt64(call)) }
      let opened = change.passphrases.compactMap { try? RekeyTests.open(host, $0) }
      #expect(opened.count == 1, "\(place)")
      let again = try #require(opened.first)
      #expect(try Picture(again).values == before, "\(place)")
      #expect(try RekeyTests.generations(again).count == 1, "\(place)")
      #expect(try again.verify().isClean, "\(place)")
      if isOver { break }
      call = change == .passphrase ? call + 1 : EachCall.longAfter(call)
    }
    #expect(call > (change == .passphrase ? 10 : 60) && failed > 2, "\(failed) of \(call)")
  }

  @Test("in a backup is made up for by the next one, of the same process (F5)", arguments: [false, true])
  func backup(backedUp: Bool) throws {
    var call = 1
    var failed = 0
    while true {
      let place = "call \(call)"
      let host = try BackupCrashTests.filled(seed: UInt64(call), sealed: call % 2 == 1, backedUp: backedUp)
      let plan = FaultPlan()
      func open() throws -> Store {
        try Store.open(on: host, configuration: Configuration(blobThreshold: 2000), failing: plan)
      }
      var store = try open()
      let opening = plan.calls
      plan.fail(number: call)
      if (try? store.backUp(to: BackupCrashTests.file)) == nil { failed += 1 }
      let isOver = plan.calls - opening < call
      plan.clear()
      try Self.put("more", in: &store, place, reopening: open)
      #expect(
        try store.backUp(to: BackupCrashTests.file).position == store.status().position, "\(place)")
      host.losePower(seed: UInt64(call))
      #expect(try BackupCrashTests.keys(host, "/store") == 16, "\(place)")
      _ = try Store.restore(
        from: BackupCrashTests.file, to: "/restored", state: nil, replacing: false,
        environment: host.environment)
      #expect(try BackupCrashTests.keys(host, "/restored") == 16, "\(place)")
      if isOver { break }
      call = EachCall.after(call)
    }
    #expect(call > 20 && failed > 10, "\(failed) of \(call)")
  }

  @Test(
    "in a restore leaves the old state or the restored store, and does not block the next one (F5)",
    arguments: [false, true])
  func restoring(replacing: Bool) throws {
    var call = 1
    var failed = 0
    while true {
      let place = "call \(call)"
      let host = try BackupCrashTests.filled(seed: UInt64(call), sealed: call % 2 == 1, backedUp: true)
      let path = replacing ? "/store" : "/restored"
      let plan = FaultPlan()
      let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
      plan.fail(number: call)
      let report = try? Store.restore(
        from: BackupCrashTests.file, to: path, state: nil, replacing: replacing, environment: environment)
      let isOver = plan.calls < call
      plan.clear()
      let keys = try BackupCrashTests.keys(host, path)
      #expect(keys == 10 || report == nil && keys == (replacing ? 15 : nil), "\(place): \(keys as Any)")
      if report == nil { failed += 1 }
      // Every other time the power is lost before the retry, even where the call may have taken effect.
      let isPowerLost = call % 2 == 0
      if isPowerLost {
        host.losePower(seed: UInt64(call))
        let found = try BackupCrashTests.keys(host, path)
        let isAsBefore = report == nil && found == (replacing ? 15 : nil)
        #expect(found == 10 || isAsBefore, "\(place): \(found as Any)")
      }
      if try BackupCrashTests.keys(host, path) != 10 || replacing {
        _ = try Store.restore(
          from: BackupCrashTests.file, to: path, state: nil, replacing: replacing, environment: environment)
      }
      #expect(try BackupCrashTests.keys(host, path) == 10, "\(place)")
      #expect(try host.storage.status(path + ".restoring") == nil || isPowerLost, "\(place)")
      if isOver { break }
      call = EachCall.after(call)
    }
    #expect(call > 20 && failed > 10, "\(failed) of \(call)")
  }

  @Test(
    "in a restore that replaces a store leaves one of the two, whatever the next one removes (F5)"
  )
  func replaced() throws {
    let host = try BackupCrashTests.filled(seed: 1, sealed: false, backedUp: true)
    let plan = FaultPlan()
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    func restore() throws {
      _ = try Store.restore(
        from: BackupCrashTests.file, to: "/store", state: nil, replacing: true, environment: environment)
    }
    plan.before(.rename, of: "/store") { plan.fail(.syncDirectory) }
    #expect(throws: StoreError.self) { try restore() }
    #expect(try BackupCrashTests.keys(host, "/store") == 10)
    // The next one removes leftovers, and dies.
    plan.before(.createDirectory, of: "/store.restoring") { plan.fail(forever: true) }
    #expect(throws: StoreError.self) { try restore() }
    RotationTests.losePower(host)
    #expect(try BackupCrashTests.keys(host, "/store") == 10)
  }

  @Test(
    "in a transaction rolls back all of it or nothing, and affects no other (F29)", arguments: [false, true])
  func transactions(sealed: Bool) throws {
    let configuration = Configuration(
      mode: .exclusive, durability: .full, blobThreshold: 8 << 10, segmentBytes: 64 << 10)
    var call = 1
    var unknown = 0
    while true {
      let place = "call \(call)"
      let host = SimulatedHost(seed: UInt64(call), encrypted: sealed)
      try Store.create(on: host, configuration: configuration).close()
      let plan = FaultPlan()
      let store = try Store.open(on: host, configuration: configuration, failing: plan)
      let opening = plan.calls
      plan.fail(number: call)
      var acknowledged: Set<Int> = []
      // Some 170 KB, every eighth value in a file of its own.
      for number in 0..<24 {
        let value = [UInt8](repeating: UInt8(number), count: number % 8 == 7 ? 9000 : 3000)
        let isDone: Void? = try? store.transaction { transaction in
          try transaction.put(Key("first \(number)"), value)
          try transaction.put(Key("second \(number)"), value)
        }
        if isDone != nil { acknowledged.insert(number) }
      }
      let isOver = plan.calls - opening < call
      plan.clear()
      unknown += 24 - acknowledged.count
      func look(_ store: Store, _ moment: String) throws {
        for number in 0..<24 {
          let (first, second) = (
            try store.get(Key("first \(number)"))?.bytes, try store.get(Key("second \(number)"))?.bytes
          )
          #expect(first == second, "\(place), \(moment): half of \(number)")
          #expect(
            first?.first == UInt8(number) || first == nil && !acknowledged.contains(number),
            "\(place), \(moment)")
        }
      }
      try look(store, "in the same process")
      RotationTests.losePower(host)
      let again = try Store.open(on: host, configuration: configuration)
      try look(again, "behind a loss of power")
      #expect(try again.verify().isClean, "\(place)")
      if isOver {
        #expect(acknowledged.count == 24)
        break
      }
      call = EachCall.after(call)
    }
    #expect(call > 25 && unknown > 10, "\(unknown) behind \(call)")
  }
}
