import Replication
import SyncTestSupport
import Testing

@testable import SyncStore

/// A machine whose clock was years ahead, among others: real sessions over real stores, with events in seeded
/// random order.
@Suite("A clock that ran ahead, in a network (F49)")
struct RestampSimulationTests {
  private static let ring = GroupKeyRing(key: [UInt8](repeating: 7, count: GroupKeyRing.keyBytes))
  private static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)
  private static let ahead: UInt64 = 4 * 365 * 86_400_000

  /// Three machines; the first one's clock runs ahead for a while.
  private final class Fleet {
    var random: SplitMix64
    let hosts: [SimulatedHost]
    var stores: [Store] = []
    /// The last value that machine wrote to each key while its clock ran ahead; nil if it deleted the key.
    var meanwhile: [String: String?] = [:]

    init(seed: UInt64) throws {
      random = SplitMix64(seed: seed)
      hosts = (0..<3).map {
        SimulatedHost(seed: seed * 10 + UInt64($0), time: 1_800_000_000_000, machine: "machine \($0)")
      }
      for host in hosts {
        let store = try Store.create(on: host, id: stores.first?.id, configuration: configuration)
        try StoreKeys(store).replaceGroupKeys(with: ring)
        stores.append(store)
      }
    }

    func pass(_ milliseconds: UInt64) { for host in hosts { host.time += milliseconds } }

    /// One session, which breaks after `steps` steps if given.
    func session(_ client: Int, _ server: Int, steps: Int = .max) throws -> SessionOutcome? {
      let one = SessionSide(.client(.sync), stores[client], peerName: "machine \(server)")
      let other = SessionSide(.server, stores[server], peerName: "machine \(client)")
      try SessionPair.run(one, other, &random, steps: steps)
      for side in [one, other] { if let failure = side.failure { throw failure } }
      return one.outcome
    }

    func meet(_ client: Int, _ server: Int) throws {
      for _ in 0..<8 {
        let outcome = try session(client, server)
        if outcome == .done { return }
        guard case .reconnect = outcome else {
          throw StoreError(.inputOutput, "\(client) and \(server): \(String(describing: outcome))")
        }
      }
      throw StoreError(.inputOutput, "they never come into step")
    }

    /// Every pair meets.
    func settle() throws {
      for _ in 0..<3 {
        pass(1000)
        for (client, server) in [(0, 1), (1, 2), (2, 0)] { try meet(client, server) }
      }
    }

    func write(_ number: Int) throws {
      pass(1 + random.next() % 40)
      let key = "\(random.next() % 12)"
      let value = random.chance(25) ? nil : "by \(number): \(random.next() % 1000)"
      if let value {
        try stores[number].put(Key(key), value)
      } else if try !stores[number].delete(Key(key)) {
        // Nothing is promised about keys that are not held here.
        return
      }
      if number == 0, hosts[0].time > hosts[1].time { meanwhile[key] = .some(value) }
    }

    /// The machine is killed, or loses power; all its writes are durable.
    func restart(_ number: Int) throws {
      if random.chance(50) {
        hosts[number].killProcesses()
      } else {
        hosts[number].losePower(seed: random.next())
      }
      stores[number] = try Store.open(on: hosts[number], configuration: configuration)
    }
  }

  @Test(
    "writes stamped ahead reach every copy and take effect once restamped and synced",
    arguments: Setting.seeds("RESTAMP", first: 1, count: 8))
  func restamp(seed: Int) throws {
    let fleet = try Fleet(seed: UInt64(seed))
    for _ in 0..<30 {
      try fleet.write(Int(fleet.random.next() % 3))
      if fleet.random.chance(20) {
        _ = try fleet.session(Int(fleet.random.next() % 3), 1, steps: Int(fleet.random.next() % 80))
      }
    }
    if fleet.random.chance(70) { try fleet.settle() }
    fleet.hosts[0].time += Self.ahead
    for _ in 0..<Int(1 + fleet.random.next() % 25) {
      try fleet.write(fleet.random.chance(80) ? 0 : 1)
      switch fleet.random.next() % 12 {
      case 0: try fleet.restart(0)
      case 1: try fleet.stores[0].compact()
      case 2:
        // Refused, naming both times: nothing is sent.
        guard case .failed(.clockSkew, _) = try fleet.session(0, 1) else {
          Issue.record("a clock that is years ahead was not refused")
          break
        }
      default: break
      }
    }
    fleet.hosts[0].time -= Self.ahead
    // Stamped later than all writes the others made in that time.
    fleet.pass(1000)
    if fleet.random.chance(30) { try fleet.restart(0) }
    try fleet.stores[0].restampUnsent()
    #expect(try fleet.stores[0].clockLead() <= Limits.clockDriftMilliseconds)
    if fleet.random.chance(30) { try fleet.restart(0) }
    if fleet.random.chance(30) { try fleet.stores[0].compact() }
    try fleet.settle()
    for (number, store) in fleet.stores.enumerated() {
      for (key, value) in fleet.meanwhile {
        #expect(try store.text(Key(key)) == value, "machine \(number), key \(key)")
      }
      #expect(try store.digest(at: fleet.hosts[0].time) == fleet.stores[0].digest(at: fleet.hosts[0].time))
      #expect(try store.versionVector() == fleet.stores[0].versionVector())
      #expect(try store.clockLead() <= Limits.clockDriftMilliseconds)
      #expect(try store.verify().isClean)
    }
    // The next write of any copy wins everywhere.
    try fleet.stores[1].put("0", "the last word")
    try fleet.settle()
    for store in fleet.stores { #expect(try store.text("0") == "the last word") }
  }
}
