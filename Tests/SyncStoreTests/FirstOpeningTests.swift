import SyncTestSupport
import Testing

@testable import SyncStore

/// Who makes a store, or gives one its place, may die before its names are durable: a restarted service finds the store all the
/// same, and writes.
@Suite("What is written into a store whose maker was killed")
struct FirstOpeningTests {
  /// Opens what a killed process has left at `path`, if it is a store, writes durably, and looks for that behind a loss of
  /// power that takes all that was not synced. True if there was a store.
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

  @Test("at any call of its creation outlives a loss of power (F5, F20)", arguments: [false, true])
  func creation(sealed: Bool) throws {
    var call = 1
    var found = 0
    while true {
      let host = SimulatedHost(seed: UInt64(call), sealed: sealed)
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

  @Test("at any call of its restoring outlives a loss of power (F5)", arguments: [false, true])
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
}
