import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// No data is encrypted under keys whose only file a power loss could take.
@Suite("New keys whose file is renamed and not yet durable")
struct KeyRingDurabilityTests {
  static let directory = "/store/keys"
  let host = SimulatedHost(compacting: .onRequest, encrypted: true)

  /// State after a power loss that drops all unsynced data.
  private static func values(
    of host: SimulatedHost, _ passphrase: Passphrase = SimulatedHost.passphrase
  ) throws -> [String: [UInt8]] {
    RotationTests.losePower(host)
    return try CompactionTests.Picture(RekeyTests.open(host, passphrase)).values
  }

  /// An encrypted store with some segments, opened in this environment.
  private func filled(_ environment: Environment) throws -> Store {
    try RekeyTests.filled(host, writes: 30).close()
    return try RekeyTests.open(host, SimulatedHost.passphrase, environment)
  }

  /// Writes that start a segment or two, durably. Returns false if the store is poisoned.
  private static func fill(_ store: Store) throws -> Bool {
    do throws(StoreError) {
      for number in 0..<50 { try store.put(Key("more \(number)"), [UInt8](repeating: 5, count: 3000)) }
      try store.sync()
      return true
    } catch {
      #expect(error.code == .poisoned)
      return false
    }
  }

  @Test("end the writes of the process that made them, and are made durable by the next one (R4, F12)")
  func failedSync() throws {
    let plan = FaultPlan()
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    let store = try filled(environment)
    plan.fail(.syncDirectory, on: Self.directory)
    #expect(throws: StoreError.self) { try store.renewKeys() }
    #expect(try !Self.fill(store))
    try store.close()
    let again = try RekeyTests.open(host, SimulatedHost.passphrase, environment)
    #expect(try Self.fill(again))
    #expect(try RekeyTests.generations(again).count == 2)
    #expect(try Self.values(of: host)["more 49"] != nil)
  }

  @Test(
    "of a killed process are made durable by the next one before it writes under them (F12)",
    arguments: [false, true])
  func killed(encrypting: Bool) throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: !encrypting)
    let plan = FaultPlan()
    try RekeyTests.filled(host, writes: 30).close()
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    let store = try RekeyTests.open(host, encrypting ? nil : SimulatedHost.passphrase, environment)
    plan.before(.syncDirectory, of: Self.directory) { plan.fail(forever: true) }
    #expect(throws: StoreError.self) {
      if encrypting { try store.encrypt(with: RekeyTests.another) } else { try store.renewKeys() }
    }
    host.killProcesses()
    let passphrase = encrypting ? RekeyTests.another : SimulatedHost.passphrase
    let again = try RekeyTests.open(host, passphrase)
    #expect(try Self.fill(again))
    #expect(try Self.values(of: host, passphrase)["more 49"] != nil)
  }

  @Test("of another process are made durable by a process that begins a segment under them (F12)")
  func otherProcess() throws {
    let plan = FaultPlan()
    let other = try RekeyTests.filled(host, writes: 5)
    let environment = host.environment(over: FaultingStorage(host.storage, plan: plan))
    let store = try RekeyTests.open(host, SimulatedHost.passphrase, environment)
    // Stopped there for good, not killed: nothing else shows that the operation is incomplete.
    plan.before(.syncDirectory, of: Self.directory) { plan.fail(forever: true) }
    #expect(throws: StoreError.self) { try store.renewKeys() }
    if try Self.fill(other) { #expect(try Self.values(of: host)["more 49"] != nil) }
  }

  @Test(
    "of a killed process, with another passphrase or none, are made durable before any acknowledgement (F12)",
    arguments: [false, true])
  func killedAtPassphrase(decrypting: Bool) throws {
    let plan = FaultPlan()
    let store = try filled(host.environment(over: FaultingStorage(host.storage, plan: plan)))
    plan.before(decrypting ? .remove : .rename, of: Self.directory + "/ring") {
      plan.fail(.syncDirectory, forever: true)
    }
    #expect(throws: StoreError.self) {
      if decrypting { try store.decrypt() } else { try store.changePassphrase(to: RekeyTests.another) }
    }
    host.killProcesses()
    let passphrase = decrypting ? nil : RekeyTests.another
    let again = try RekeyTests.open(host, passphrase)
    #expect(try Self.fill(again))
    RotationTests.losePower(host)
    #expect(try CompactionTests.Picture(RekeyTests.open(host, passphrase)).values["more 49"] != nil)
  }

  @Test("that could not be written, for want of descriptors, change nothing and poison nothing (F33)")
  func withoutDescriptors() throws {
    let plan = FaultPlan()
    let store = try filled(host.environment(over: FaultingStorage(host.storage, plan: plan)))
    plan.fail(.open, on: Self.directory, forever: true, errno: EMFILE)
    #expect(throws: StoreError.self) { try store.changePassphrase(to: RekeyTests.another) }
    try store.put("after", "x", durability: .full)
    plan.clear()
    try store.changePassphrase(to: RekeyTests.another)
  }
}
