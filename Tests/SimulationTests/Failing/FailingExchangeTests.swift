import Replication
import SyncStore
import SyncTestSupport
import Testing

/// One disk call fails, or all from one on, while its store takes part in a session: records are applied,
/// rounds closed, large values stored, full state received, actors changed, deletes purged. Then the process
/// continues, is killed, or loses power.
@Suite("A failing call in an exchange")
struct FailingExchangeTests {
  /// The aftermath of the failing call.
  enum End: String, CaseIterable {
    case goesOn, isKilled, losesPower
  }

  /// Every call with `make exchanges`; otherwise every n-th, starting differently in each story.
  private static let step = Setting.given("EXCHANGES") == nil ? 17 : 1

  @Test(
    "loses nothing that was acknowledged, and the copies converge afterwards (F9, F10, F11, F29, F30)",
    arguments: Pair.Story.allCases, [0, 1])
  func failing(story: Pair.Story, side: Int) throws {
    let pair = try Pair(story)
    var (failed, last) = (0, 0)
    for end in End.allCases {
      for isForever in end == .goesOn ? [false] : [false, true] {
        var call = 1 + (last + side) % Self.step
        while true {
          var run = try Run(
            pair, side,
            "\(story.rawValue), side \(side), \(isForever ? "from" : "only") call \(call), \(end.rawValue)")
          if try !run.fail(call, isForever) { break }
          failed += run.hasFailed ? 1 : 0
          do {
            try run.end(end, seed: UInt64(call))
            try run.comeIntoStep()
          } catch {
            Issue.record("\(run.place): \(error)")
          }
          call += Self.step
        }
        last = call
      }
    }
    #expect(last > 40 && failed > 8, "\(failed) of \(last) calls")
  }
}

/// One session with a failing disk, and its aftermath.
private struct Run {
  private let side: Int
  let place: String
  private let hosts: [SimulatedHost]
  private var stores: [Store]
  private var oracle: Oracle
  private let promised: [ActorID: UInt64]
  private let plan = FaultPlan()
  /// Whether the store reported a failure.
  private(set) var hasFailed = false

  init(_ pair: Pair, _ side: Int, _ place: String) throws {
    (self.side, self.place, oracle, promised) = (side, place, pair.oracle, pair.promised)
    hosts = try pair.hosts.map { try $0.cloned() }
    let plan = plan
    stores = try hosts.enumerated().map { number, host in
      number == side
        ? try Store.open(on: host, configuration: Pair.configuration, failing: plan)
        : try Store.open(on: host, configuration: Pair.configuration)
    }
  }

  /// Runs sessions in which that call fails. Returns false if there were fewer calls.
  mutating func fail(_ call: Int, _ isForever: Bool) throws -> Bool {
    let opening = plan.calls
    plan.fail(number: call, forever: isForever)
    let isDone = try Pair.meet(stores, seed: UInt64(call), sessions: isForever ? 2 : 3)
    let store = stores[side]
    func attempt(_ body: () throws(StoreError) -> Void) { if (try? body()) == nil { hasFailed = true } }
    attempt { () throws(StoreError) in try store.acknowledge(as: Simulation.device(side)) }
    attempt { () throws(StoreError) in _ = try store.purge() }
    attempt { () throws(StoreError) in try store.compact() }
    hasFailed = hasFailed || !isDone
    let isReached = plan.calls - opening >= call
    plan.clear()
    return isReached
  }

  mutating func end(_ end: FailingExchangeTests.End, seed: UInt64) throws {
    let host = hosts[side]
    switch end {
    case .goesOn:
      // After a failed sync has ended the writes of a store (R4), the user reopens it.
      do throws(StoreError) {
        try stores[side].setLocal(Array("x".utf8), [1])
        try stores[side].blobs.sync()
      } catch {
        guard error.code == .poisoned else { throw error }
        try stores[side].close()
        try reopen()
      }
    case .isKilled:
      host.killProcesses()
      try reopen()
    case .losesPower:
      host.losePower(seed: seed)
      try reopen()
    }
    try look()
  }

  private mutating func reopen() throws {
    stores[side] = try Store.open(on: hosts[side], configuration: Pair.configuration)
  }

  /// Checks that both stores hold what the oracle knows, and cover what they claim.
  private mutating func look() throws {
    for (number, store) in stores.enumerated() {
      let name = "\(place): copy \(number)"
      var seen = Oracle.Seen()
      for entry in try store.log(from: 1, limit: .max) {
        try oracle.see(entry, at: name)
        seen.add(entry)
      }
      try oracle.judgeReturns(to: store, name, at: hosts[number].time, &seen)
      try oracle.check(store, name, clocks)
    }
    // The other journal has not failed: it must hold all records it received, whatever happened to their
    // sender.
    let own = try stores[side].actor
    for (actor, sequence) in promised where actor == own {
      #expect(try stores[side].versionVector()[own] >= sequence, "\(place)")
    }
  }

  private var clocks: Oracle.Clocks {
    Oracle.Clocks(own: hosts[side].time, latest: hosts.map(\.time).max() ?? 0)
  }

  /// Runs sessions on a repaired disk.
  mutating func comeIntoStep() throws {
    #expect(try Pair.meet(stores), "\(place): they do not come into step")
    try look()
    let copies = stores.enumerated().map { ("\(place): copy \($0)", $1) }
    try oracle.checkInStep(copies, clocks, promised: promised)
  }
}
