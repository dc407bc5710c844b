import Foundation
import SyncStore
import SyncTestSupport
import Testing

/// Whole networks of real copies on virtual time: a sample of what `make sim` runs.
@Suite("A network of machines on virtual time")
struct NetworkTests {
  private static let seeds = UInt64(Setting.number("SIM_SEEDS", 4))
  private static let first = UInt64(Setting.number("SIM_FIRST", 0))
  /// Number of processes that run histories in parallel, single-threaded: threads of one process would block
  /// each other whenever one unmaps pages of a simulated disk.
  private static let lanes: UInt64 = 2
  /// Number of histories per lane after which every kind of event must have occurred.
  private static let enough = 500

  /// Each lane also plays one history that this process plays too. No other test of this suite starts
  /// processes, and none are read from while they run: waiting for one occupies a thread, and there are only
  /// two.
  @Test(
    """
    keeps the invariants in every history, deterministically in every process, and converges (F3, F15, F18, \
    F19, F24, F25, F30, F31, F47, F50, F55, F56, F59, F63, F65, F66, F68, F69, F72)
    """, arguments: 0..<lanes)
  func seeds(lane: UInt64) async throws {
    let directory = TemporaryDirectory()
    let (figures, told) = (directory.path + "/figures", directory.path + "/told")
    await #expect(processExitsWith: .success) { [lane, figures = figures as String, told = told as String] in
      Patience.limitProcess(minutes: 60)
      try Self.told(Self.alike(lane)).write(toFile: told, atomically: true, encoding: .utf8)
      try Self.run(lane, telling: figures)
    }
    if let text = try? String(contentsOfFile: figures, encoding: .utf8) { print(text) }
    let (own, others) = (try Self.told(Self.alike(lane)), try String(contentsOfFile: told, encoding: .utf8))
    #expect(own.split(separator: "\n").count > 30)
    for line in own.split(separator: "\n") { #expect(others.contains(line), "\(line)") }
    withExtendedLifetime(directory) {}
  }

  /// The history that a lane and this process both play.
  private static func alike(_ lane: UInt64) -> UInt64 { 3 + 4 * lane }

  private static func run(_ lane: UInt64, telling file: String) throws {
    var total = Simulation.Counts()
    let seeds =
      Setting.given("SIM_SEED").map { lane == 0 ? [UInt64($0)] : [] }
      ?? Array((first + lane * self.seeds / lanes)..<(first + (lane + 1) * self.seeds / lanes))
    for seed in seeds {
      var options = Simulation.Options(
        seed: seed, copies: Setting.given("SIM_COPIES"), rollsBack: seed % 8 == 7)
      options.hours = Setting.number("SIM_HOURS", options.hours)
      options.checksAlways = Setting.number("SIM_CHECKS", 0) > 0
      do {
        let simulation = try Simulation(options)
        defer { total.add(simulation.counts) }
        try simulation.run()
      } catch {
        Issue.record(
          "\(error)\nrun again: make sim SEED=\(seed)\(Setting.given("SIM_COPIES").map { " COPIES=\($0)" } ?? "") HOURS=\(options.hours)"
        )
      }
    }
    guard !seeds.isEmpty else { return }
    // Everything that can happen must happen in that many: a count of zero means something was not tested.
    if seeds.count >= enough, Setting.given("SIM_COPIES") == nil, !total.missing.isEmpty {
      Issue.record("in \(seeds.count) histories there are no \(total.missing.joined(separator: ", no "))")
    }
    if Setting.given("SIM_SEEDS") != nil || Setting.given("SIM_SEED") != nil {
      try total.text.write(toFile: file, atomically: true, encoding: .utf8)
    }
  }

  /// Bytes of all disks after a history, and its events; compared across processes, because each seeds its
  /// hash tables differently.
  private static func told(_ seed: UInt64) throws -> String {
    let simulation = try Simulation(Simulation.Options(seed: seed, copies: 3, rollsBack: true))
    try simulation.run()
    var text = simulation.counts.text
    for machine in simulation.machines {
      for (path, bytes) in try machine.host.storage.files(below: "").sorted(by: { $0.key < $1.key }) {
        text += "\n\(machine.number) \(path) \(XXH3.hash64(bytes, seed: 0))"
      }
    }
    return text
  }

  /// Kept because a member was restored from a backup with the mark of a live round that its sender had since
  /// forgotten.
  @Test("keeps the invariants in a history in which it once did not")
  func kept() throws {
    let simulation = try Simulation(
      Simulation.Options(seed: 591, isExtended: false, hasRights: false, pingSeconds: 60))
    try simulation.run()
    #expect(simulation.counts.restores > 0 && simulation.counts.live > 0)
  }

  @Test("treats a machine restored to a state that it had lost since as one with unconfirmed dots (F20)")
  func revived() throws {
    let simulation = try Simulation(
      Simulation.Options(seed: 6519, rollsBack: true, hasRights: false, pingSeconds: 60))
    try simulation.run()
    #expect(simulation.revivals > 0)
  }

  /// A copy had reissued it, for the sake of dots that it did not cover, before it received the writes that
  /// had replaced it.
  @Test("allows a copy to reissue a record that came back to it, recognised by its stamp")
  func comeback() throws {
    let simulation = try Simulation(Simulation.Options(seed: 8907, hasRights: false, pingSeconds: 60))
    try simulation.run()
    #expect(simulation.oracle.past.comebacks > 0)
  }
}

extension Simulation.Counts {
  mutating func add(_ other: Self) {
    events += other.events
    writes += other.writes
    sessions += other.sessions
    finished += other.finished
    cuts += other.cuts
    crashes += other.crashes
    kills += other.kills
    fullDisks += other.fullDisks
    failedSyncs += other.failedSyncs
    clones += other.clones
    restores += other.restores
    rollbacks += other.rollbacks
    compactions += other.compactions
    clockJumps += other.clockJumps
    checks += other.checks
    rebirths += other.rebirths
    refused += other.refused
    records += other.records
    blobs += other.blobs
    revocations += other.revocations
    purged += other.purged
    live += other.live
    old += other.old
    late += other.late
    lost += other.lost
    doubled += other.doubled
    reordered += other.reordered
    fullStates += other.fullStates
    returns += other.returns
    revokedReturns += other.revokedReturns
    partitions += other.partitions
    restrictions += other.restrictions
    restricted += other.restricted
  }

  /// Kinds of events that did not occur.
  var missing: [String] {
    Mirror(reflecting: self).children.compactMap { $0.value as? Int == 0 ? $0.label : nil }
  }

  var text: String {
    """
    \(operations) operations: \(writes) writes, \(events) events; \(sessions) sessions begun, \(finished) sides finished, \
    \(refused) refused or broken, \(rebirths) asked to connect again, \(cuts) links cut, \(partitions) times a network in two parts
    \(crashes) losses of power, \(kills) kills, \(fullDisks) times no room, \(failedSyncs) failed syncs, \(clockJumps) clock jumps, \
    \(clones) clones, \(restores) restored backups, \(rollbacks) roll-backs, \(compactions) compactions
    \(records) records and \(blobs) blobs received, \(live) times live, \(old) sessions with the first version, \(revocations) \
    members revoked, \(restrictions) that might only read and \(restricted) sessions with them, \(purged) keys purged, \(fullStates) full states taken, \(returns) of them after purging, \(revokedReturns) by members that had been revoked, \(checks) copies looked at in whole
    \(late) pieces late, sent again; \(lost) frames lost, \(doubled) doubled, \(reordered) put in another order
    """
  }
}
