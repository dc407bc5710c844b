import SyncTestSupport
import Testing

@testable import SyncStore

/// A process that creates or places a store may die before the names are durable: a restarted service must
/// still find the store, and write.
@Suite("A write to a store whose creator was killed")
struct FirstOpeningTests {
  /// Opens the store, if any, that a killed process has left at `path`, writes durably, and checks that write
  /// after a power loss that drops all unsynced data. Returns whether there was a store.
  private static func isKept(_ path: String, on host: SimulatedHost, _ place: String) throws -> Bool {
    host.killProcesses()
    let store: Store
    do throws(StoreError) { store = try Store.open(path, on: host) } catch {
      #expect(error.code == .notAStore, "\(place): \(error)")
      return false
    }
    try store.put("acknowledged", "yes", durability: .full)
    RotationTests.losePower(host)
    let again = try? Store.open(path, on: host)
    #expect(try again?.text("acknowledged") == "yes", "\(place)")
    return true
  }

  @Test("at any call of its creation survives a loss of power (F5, F20)", arguments: [false, true])
  func creation(sealed: Bool) throws {
    var call = 1
    var found = 0
    while true {
      let host = SimulatedHost(seed: UInt64(call), encrypted: sealed)
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      _ = try? Store.create(
        at: "/store", name: nil, id: nil, configuration: host.configured(),
        environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
      let isOver = plan.calls < call
      if try Self.isKept("/store", on: host, "call \(call)") { found += 1 }
      if isOver { break }
      call += 1
    }
    #expect(call > 20 && found > 2, "\(found) of \(call)")
  }

  @Test("at any call of its restore survives a loss of power (F5)", arguments: [false, true])
  func restoring(replacing: Bool) throws {
    var call = 1
    var found = 0
    while true {
      let host = try BackupCrashTests.filled(seed: UInt64(call), sealed: call % 2 == 1, backedUp: true)
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      let path = replacing ? "/store" : "/restored"
      _ = try? Store.restore(
        from: BackupCrashTests.file, to: path, state: nil, replacing: replacing,
        environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
      let isOver = plan.calls < call
      if try Self.isKept(path, on: host, "call \(call)") { found += 1 }
      if isOver { break }
      call += 1
    }
    #expect(call > 20 && found > 2, "\(found) of \(call)")
  }

  @Test(
    "at any call of its move survives a loss of power, wherever it was written (F5)",
    arguments: [false, true])
  func moving(sealed: Bool) throws {
    var call = 1
    while true {
      let host = SimulatedHost(seed: UInt64(call), encrypted: sealed)
      try Store.create("/store", on: host).close()
      _ = try host.storage.createDirectory("/shelf")
      try host.storage.syncDirectory("/")
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      try? Store.move(from: "/store", to: "/shelf/store", FaultingStorage(host.storage, plan: plan))
      let isOver = plan.calls < call
      let isMoved = try Store.exists(at: "/shelf/store", host.storage)
      let isKept = try Self.isKept(isMoved ? "/shelf/store" : "/store", on: host, "call \(call)")
      #expect(isKept, "call \(call)")
      if isOver { break }
      call += 1
    }
    #expect(call > 8)
  }

  @Test("by another program, which did not sync the new name, survives a loss of power (F5)")
  func movedByOthers() throws {
    let host = SimulatedHost()
    try Store.create("/store", on: host).close()
    #expect(try host.storage.renameUnlessPresent("/store", to: "/moved"))
    #expect(try Self.isKept("/moved", on: host, "moved"))
  }

  @Test("by another program, which synced nothing that it copied, survives a loss of power (F5, F104)")
  func copiedByOthers() throws {
    let host = SimulatedHost()
    let store = try Store.create("/store", on: host, configuration: Configuration(segmentBytes: 64 << 10))
    // One in a file of its own, one in a pack; and closed segments.
    let large = pattern(5_000_000, seed: 1)
    try store.put("large", large)
    try store.put("packed", Array(large.prefix(50_000)))
    for number in 0..<30 { try store.put(Key("\(number)"), Array(large.prefix(5000))) }
    try store.put("small", "value")
    try store.close()
    func copy(_ path: String, to target: String) throws {
      _ = try host.storage.createDirectory(target)
      for name in try host.storage.list(path) {
        let (from, to) = (path + "/" + name, target + "/" + name)
        guard try host.storage.status(from)?.kind == .file else {
          try copy(from, to: to)
          continue
        }
        let bytes = try host.storage.contents(of: from, limit: 1 << 30) ?? []
        try host.storage.open(to, .create).write(bytes, at: 0)
      }
    }
    try copy("/store", to: "/copy")
    #expect(try Self.isKept("/copy", on: host, "copied"))
    let again = try Store.open("/copy", on: host)
    #expect(try again.text("small") == "value")
    #expect(try again.get("large")?.bytes == large)
    #expect(try again.get("packed")?.bytes == Array(large.prefix(50_000)))
    for number in 0..<30 { #expect(try again.get(Key("\(number)"))?.bytes == Array(large.prefix(5000))) }
    #expect(try again.verify().isClean)
  }

  @Test("in a root directory created for its first store survives a loss of power (F5)")
  func root() throws {
    for call in 1...4 {
      let host = SimulatedHost(seed: UInt64(call))
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      func root(_ storage: any Storage) -> StoreRoot {
        StoreRoot("/stores", configuration: host.configured(), environment: host.environment(over: storage))
      }
      try? root(FaultingStorage(host.storage, plan: plan)).store().close()
      host.killProcesses()
      try root(host.storage).store().withStore { try $0.put("acknowledged", "yes", durability: .full) }
      RotationTests.losePower(host)
      #expect(try Store.open("/stores/default", on: host).text("acknowledged") == "yes", "call \(call)")
    }
  }

  @Test("on a file system that never syncs directories by itself survives a loss of power (F5)")
  func withoutDirectorySync() throws {
    let synced = Locked<[String]>([])
    for isRefused in [false, true] {
      let host = SimulatedHost()
      let plan = FaultPlan { call, path in
        if call == .syncDirectory { synced.withLock { $0.append(path) } }
      }
      if isRefused {
        for (index, path) in synced.withLock({ $0 }).enumerated() where path == "/shelf" {
          plan.fail(.syncDirectory, number: index + 1, errno: SystemCall.invalidArgument)
        }
        synced.withLock { $0 = [] }
      }
      _ = try host.storage.createDirectory("/shelf")
      try host.storage.syncDirectory("/")
      try Store.create(
        at: "/shelf/store", name: nil, id: nil, configuration: host.configured(),
        environment: host.environment(over: FaultingStorage(host.storage, plan: plan))
      ).close()
      #expect(synced.withLock { $0.contains("/shelf") })
      #expect(try Self.isKept("/shelf/store", on: host, "refused: \(isRefused)"))
    }
  }

  @Test("uses one name, however its path ends")
  func oneName() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let store = try Store.create(at: path + "/")
    #expect(store.name == "store" && store.path == path)
    for end in ["/", "//", "/.", "/./", "/journal/.."] {
      #expect(try Store.open(at: path + end) === store, "\(end)")
    }
    try store.put("k", "v")
    let backup = directory.path + "/backup"
    try store.backUp(to: backup)
    try store.close()
    try Store.restore(from: backup, to: path + "/./", replacing: true)
    try Store.move(from: path + "/", to: directory.path + "/moved/")
    #expect(try DiskStorage().list(directory.path) == ["backup", "moved"])
    #expect(try Store.remove(at: directory.path + "/moved/."))
    #expect(try DiskStorage().list(directory.path) == ["backup"])
  }
}
