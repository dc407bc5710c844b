import SyncTestSupport
import Testing

@testable import SyncStore

/// The clock was years ahead, and is corrected: writes made before that and not sent yet get the present time
/// (F49).
@Suite("Writes stamped while the clock ran ahead")
struct RestampTests {
  static let present: UInt64 = 1_800_000_000_000
  static let ahead: UInt64 = 3 * 365 * 86_400_000

  let host = SimulatedHost(seed: 1, time: present, machine: "ahead")
  let other = SimulatedHost(seed: 2, time: present, machine: "other")

  /// Two converged copies, each with a write of the other.
  func copies() throws -> (Store, Store) {
    let first = try Store.create(on: host, configuration: Configuration(blobThreshold: 2000))
    let second = try Store.create(on: other, id: first.id)
    try first.put("before", "by one")
    try first.put("shared", "by one")
    try first.put("gone", "by one")
    try second.put("theirs", "by two")
    try first.synchronize(with: second)
    try first.synchronize(with: second)
    return (first, second)
  }

  /// Runs `body` with the clock ahead.
  func ahead(_ body: () throws -> Void) rethrows {
    host.time += Self.ahead
    try body()
    host.time -= Self.ahead - 1000
    other.time = host.time
  }

  @Test("are accepted by peers at once after restamping, in order and with their contents (F49)")
  func restamping() throws {
    let (a, b) = try copies()
    let deadline = Self.present + 10 * Self.ahead
    try ahead {
      try a.put("shared", "ahead 1")
      try a.put("shared", "ahead 2")
      try a.put("large", [UInt8](repeating: 7, count: 5000))
      try a.put("typed", [1], type: .bool, expiration: .at(deadline))
      try a.delete("gone")
      try a.transaction { transaction in
        try transaction.put("pair/1", Array("1".utf8))
        try transaction.put("pair/2", Array("2".utf8))
      }
    }
    #expect(try a.clockLead() > Limits.clockDriftMilliseconds)
    let former = try a.actor
    let report = try a.restampUnsent()
    #expect(report.writes == 6)
    #expect(report.aheadMilliseconds == Self.ahead - 1000)
    #expect(try a.actor != former)
    #expect(try a.clockLead() <= Limits.clockDriftMilliseconds)
    let actor = try a.actor
    let mine = try a.log(from: 0, limit: .max).filter { $0.isCurrent && $0.dot.actor == actor }
    #expect(
      mine.map { $0.key.map { String(decoding: $0.bytes, as: UTF8.self) } } == [
        "shared", "large", "typed", "gone", "pair/1", "pair/2",
      ])
    #expect(mine.map(\.dot.sequence) == [1, 2, 3, 4, 5, 6])

    try a.synchronize(with: b)
    for store in [a, b] {
      #expect(try store.text("shared") == "ahead 2")
      #expect(try store.text("before") == "by one")
      #expect(try store.get("gone") == nil)
      #expect(try store.get("typed")?.type == .bool)
      #expect(try store.deadline(of: "typed") == deadline)
      #expect(try store.text("pair/1") == "1" && store.text("pair/2") == "2")
      #expect(try store.conflicts().isEmpty)
    }
    #expect(try a.get("large")?.bytes.count == 5000)
    #expect(try b.missingBlobs().count == 1)
    #expect(try a.digest(at: host.time) == b.digest(at: host.time))
    #expect(try a.versionVector() == b.versionVector())
    // The peer overwrites the value stamped ahead, and that wins.
    other.time += 10
    try b.put("shared", "by two")
    host.time += 20
    try a.synchronize(with: b)
    try a.put("before", "again")
    #expect(try a.text("shared") == "by two")
    try b.synchronize(with: a)
    #expect(try b.text("before") == "again")
    #expect(try a.digest(at: host.time) == b.digest(at: host.time))
  }

  @Test("are the same after reopening, and after the index was lost and the journal compacted")
  func reopening() throws {
    let (a, b) = try copies()
    try ahead {
      try a.put("shared", "ahead")
      for number in 0..<50 { try a.put(Key("many \(number % 20)"), "\(number)") }
    }
    try a.restampUnsent()
    let (actor, vector) = (try a.actor, try a.versionVector())
    try a.close()
    for step in 0..<3 {
      if step == 1 { try JournalIndexFiles.remove(host) }
      if step == 2 { host.losePower(seed: 3) }
      let again = try Store.open(on: host)
      #expect(try again.actor == actor && again.versionVector() == vector)
      #expect(try again.text("shared") == "ahead" && again.text("many 9") == "49")
      #expect(try again.clockLead() <= Limits.clockDriftMilliseconds)
      try again.compact()
      try again.close()
    }
    let again = try Store.open(on: host)
    try again.synchronize(with: b)
    #expect(try b.text("shared") == "ahead" && b.text("many 9") == "49")
    #expect(try again.digest(at: host.time) == b.digest(at: host.time))
  }

  @Test("that may have reached a member or a backup stay unchanged, and their number is reported")
  func refusal() throws {
    let (a, b) = try copies()
    try ahead {
      try a.put("1", "ahead")
      try a.put("2", "ahead")
      // Started and broken off: its records may have arrived.
      _ = try a.openRound(since: nil, covered: VersionVector())
      try a.put("3", "ahead")
    }
    let (actor, position) = (try a.actor, try a.status().position)
    let error = try #require(throws: StoreError.self) { try a.restampUnsent() }
    #expect(error.code == .clock)
    #expect(error.description.contains("2 writes"), "\(error)")
    #expect(try a.actor == actor && a.status().position == position)
    #expect(try a.text("3") == "ahead")
    try a.synchronize(with: b)
    #expect(try b.text("3") == nil)

    // One that was sent and overwritten is parked elsewhere, though nothing of it remains here.
    let (c, d) = (SimulatedHost(seed: 5, time: Self.present), SimulatedHost(seed: 6, time: Self.present))
    let one = try Store.create(on: c)
    let two = try Store.create(on: d, id: one.id)
    c.time += Self.ahead
    try one.put("k", "sent")
    try two.receive(from: one)
    try one.put("k", "not sent")
    for number in 0..<200 { try one.put("fill", "\(number)") }
    try one.compact()
    c.time -= Self.ahead
    #expect(throws: StoreError.self) { try one.restampUnsent() }
    // The content of a backup, too.
    let e = SimulatedHost(seed: 7, time: Self.present + Self.ahead)
    let kept = try Store.create(on: e)
    try kept.put("k", "backed up")
    _ = try kept.backUp(to: "/backup")
    e.time -= Self.ahead
    #expect(throws: StoreError.self) { try kept.restampUnsent() }
  }

  @Test("are not restamped by a clock that was never set, or if nothing is ahead")
  func nothingToDo() throws {
    let (a, _) = try copies()
    let actor = try a.actor
    #expect(try a.restampUnsent() == Store.RestampReport())
    #expect(try a.actor == actor)
    host.time = 5000
    let error = try #require(throws: StoreError.self) { try a.restampUnsent() }
    #expect(error.code == .clock)
  }

  @Test("and purged, because all members seemed retired, do not advance the clocks of others")
  func purgedDeletes() throws {
    let (a, b) = try copies()
    try ahead {
      try a.put("more", "ahead")
      try a.delete("more")
      try a.delete("gone")
      #expect(try a.purge() == 2)
    }
    #expect(try a.restampUnsent().writes == 0)
    // A second member was away all the time: the full state tells it of the deletes.
    try b.receive(from: a)
    #expect(try b.get("gone") == nil)
    try a.receive(from: b)
    #expect(try b.clockLead() <= Limits.clockDriftMilliseconds)
    #expect(try a.clockLead() <= Limits.clockDriftMilliseconds)
    try b.put("after", "x")
    try a.synchronize(with: b)
    #expect(try a.digest(at: host.time) == b.digest(at: host.time))
    #expect(try a.versionVector() == b.versionVector())
    #expect(try a.text("after") == "x")
  }

  @Test("and received back from an earlier copy of the directory are parked there and here alike (R9)")
  func copiedDirectory() throws {
    let (a, b) = try copies()
    try ahead {
      try a.put("shared", "ahead")
      try a.sync()
      try a.put("last", "ahead")
      try a.sync()
    }
    try host.storage.copyTree(from: "/store", to: "/clone")
    try a.restampUnsent()
    let clone = try Store.open("/clone", on: host)
    #expect(throws: StoreError.self) { try clone.restampUnsent() }
    try b.receive(from: clone)
    try a.synchronize(with: b)
    try a.synchronize(with: b)
    #expect(try a.text("shared") == "ahead" && b.text("shared") == "ahead")
    other.time += 10
    host.time += 10
    try b.put("shared", "newer")
    try a.synchronize(with: b)
    #expect(try a.text("shared") == "newer")
    #expect(try a.clockLead() <= Limits.clockDriftMilliseconds)
    #expect(try a.digest(at: host.time) == b.digest(at: host.time))
    // The same from the journal alone.
    try a.close()
    try JournalIndexFiles.remove(host)
    let again = try Store.open(on: host)
    #expect(try again.text("shared") == "newer")
    #expect(try again.clockLead() <= Limits.clockDriftMilliseconds)
  }

  @Test("are restamped while another process, which continues with the same actor, has the store open")
  func shared() throws {
    let shared = Configuration(mode: .shared)
    let first = try Store.create(on: host, configuration: shared)
    let second = try Store.openSecond(on: host, configuration: shared)
    try ahead {
      try first.put("1", "ahead")
      try second.put("2", "ahead")
    }
    #expect(try second.restampUnsent().writes == 2)
    #expect(try first.actor == second.actor)
    #expect(try first.text("2") == "ahead")
    try first.put("3", "now")
    let entry = try #require(try second.explain("3"))
    #expect(entry.winner.stamp.milliseconds <= host.time + 1)
    #expect(try first.versionVector() == second.versionVector())
  }

  @Test(
    "are all stamped as before or all anew, whichever call fails or precedes a loss of power (F49, F15)",
    arguments: [false, true])
  func failing(sealed: Bool) throws {
    var call = 1
    var outcomes: Set<Bool> = []
    while true {
      let host = SimulatedHost(seed: UInt64(call), time: Self.present, encrypted: sealed)
      let created = try Store.create(on: host, configuration: Configuration(blobThreshold: 2000))
      try created.put("kept", "before")
      try created.put("twice", "before")
      host.time += Self.ahead
      try created.transaction { transaction in
        try transaction.put("pair/1", Array("1".utf8))
        try transaction.put("pair/2", Array("2".utf8))
      }
      try created.put("twice", "ahead")
      try created.put("large", [UInt8](repeating: 7, count: 3000))
      try created.close()
      host.time -= Self.ahead
      let plan = FaultPlan()
      let store = try Store.open(on: host, failing: plan)
      let before = plan.calls
      plan.fail(number: call, forever: true)
      let report = try? store.restampUnsent()
      let isDone = plan.calls - before < call
      // With a reboot: within the same boot a failed sync is remembered, and the store continues with another
      // actor.
      host.losePower(seed: UInt64(3 * call + 1))
      let again = try Store.open(on: host)
      #expect(try again.text("kept") == "before" && again.text("twice") == "ahead")
      #expect(try again.text("pair/1") == "1" && again.text("pair/2") == "2")
      #expect(try again.get("large")?.bytes.count == 3000)
      let isRight = try again.clockLead() <= Limits.clockDriftMilliseconds
      #expect(isRight || report == nil, "call \(call)")
      outcomes.insert(isRight)
      let stamps = try again.log(from: 0, limit: .max).filter(\.isCurrent).map(\.stamp.milliseconds)
      #expect(
        stamps.allSatisfy { ($0 <= host.time + 1000) == isRight || $0 < Self.present + 1000 }, "call \(call)")
      // Whatever was left, it can be done now, and a peer accepts all of it.
      try again.restampUnsent()
      let peer = try Store.create("/peer", on: host, id: again.id)
      try peer.synchronize(with: again)
      #expect(try peer.text("pair/2") == "2" && peer.text("twice") == "ahead")
      #expect(try peer.digest(at: host.time) == again.digest(at: host.time))
      try again.close()
      if isDone { break }
      call = EachCall.after(call)
    }
    #expect(call > 5)
    #expect(outcomes == [false, true])
  }
}

/// The index of a simulated store.
enum JournalIndexFiles {
  static func remove(_ host: SimulatedHost) throws {
    for name in ["/store/index", "/store/ledger"] { _ = try host.storage.remove(name) }
  }
}
