import SyncTestSupport
import Testing

@testable import SyncStore

/// Behaviour of a copy that finds a fork using its actor (rule R9; decision 32).
@Suite("A copy that retracts an actor which may be forked")
struct RetractedActorTests {
  private let hosts = (0..<3).map { SimulatedHost(seed: UInt64($0), machine: "host \($0)") }

  private func copies() throws -> [Store] {
    let first = try Store.create(on: hosts[0])
    return [first] + (try hosts.dropFirst().map { try Store.create(on: $0, id: first.id) })
  }

  private static func kept(_ store: Store) throws -> Set<String> {
    Set(try store.conflicts().map { String(decoding: $0.value ?? [], as: UTF8.self) })
  }

  @Test("keeps its last values that others replaced, and none that it replaced or deleted itself")
  func looksBack() throws {
    let copies = try copies()
    for (key, value) in [("a", "first"), ("a", "second"), ("b", "own"), ("c", "gone"), ("d", "stays")] {
      try copies[0].put(try Key(key), value)
    }
    try copies[1].receive(from: copies[0])
    try copies[0].delete("c")
    try copies[0].put("b", "own, again")
    try copies[1].put("a", "third")
    try copies[0].receive(from: copies[1])
    #expect(try Self.kept(copies[0]) == [])
    try copies[0].becomeNewActor()
    #expect(try Self.kept(copies[0]) == ["second"])
    // Once is enough.
    try copies[0].becomeNewActor()
    #expect(try copies[0].conflicts().count == 1)
    #expect(try copies[0].text("a") == "third")
  }

  @Test("does not restore values older than the conflict retention")
  func forgets() throws {
    let copies = try copies()
    try copies[0].put("a", "old")
    try copies[1].receive(from: copies[0])
    try copies[1].put("a", "new")
    try copies[0].receive(from: copies[1])
    for host in hosts { host.time += Limits.conflictMilliseconds + 1000 }
    try copies[0].becomeNewActor()
    #expect(try Self.kept(copies[0]) == [])
  }

  @Test("reissues an unconfirmed write with the base before it, not with the unconfirmed dot")
  func basesOfWhatIsIssuedAgain() throws {
    let copies = try copies()
    try copies[1].put("k", "of another")
    try copies[0].receive(from: copies[1])
    let base = try #require(try copies[0].explain("k")).winner.dot
    try copies[0].put("k", "in doubt")
    try copies[0].put("new", "in doubt, too")
    try copies[0].becomeNewActor()
    try copies[0].receive(from: copies[1])
    for (key, base) in [("k", base), ("new", nil)] as [(Key, Dot?)] {
      let winner = try #require(try copies[0].explain(key)).winner
      #expect(try winner.dot.actor == copies[0].actor)
      #expect(winner.base == base)
    }
  }

  @Test("keeps as a conflict a value that a later write of the forked actor beats")
  func laterWrites() throws {
    let copies = try copies()
    try copies[0].put("k", "before")
    let former = try copies[0].actor
    try copies[1].receive(from: copies[0])
    try copies[0].becomeNewActor()
    try copies[0].receive(from: copies[1])
    #expect(try copies[0].replicaSummary().health == .healthy)
    let held = try #require(try copies[0].explain("k")).winner
    #expect(held.dot.actor == former)
    // The next write of the former actor: the fork's.
    let record = Record(
      version: Version(
        stamp: Stamp(milliseconds: held.stamp.milliseconds + 1),
        dot: Dot(actor: former, sequence: held.dot.sequence + 1)),
      key: Array("k".utf8), content: .inline(Array("of the other life".utf8)))
    let batch = IncomingBatch(
      sender: try copies[1].actor, mark: RoundMark(high: 0, low: 1), position: 100,
      records: [PositionedRecord(position: 100, record: record)])
    _ = try copies[0].apply(batch)
    #expect(try copies[0].text("k") == "of the other life")
    #expect(try Self.kept(copies[0]) == ["before"])
  }

  @Test("gives no full state while it withholds records below tombstones that it has purged")
  func coverage() throws {
    let copies = try copies()
    try copies[0].put("given", "1")
    try copies[1].receive(from: copies[0])
    let former = try copies[0].actor
    try copies[0].put("in doubt", "2")
    try copies[0].delete("given")
    for host in hosts { host.time += Limits.retirementMilliseconds + 1000 }
    #expect(try copies[0].purge() == 1)
    try copies[0].becomeNewActor()
    #expect(try copies[0].replicaSummary().vector[former] == 3)
    // Its receiver would cover the withheld records, or not cover its own floor.
    #expect(
      #expect(throws: StoreError.self) { try copies[2].receive(from: copies[0]) }?.code == .unsettled)
    #expect(try copies[2].versionVector()[former] == 0)
    // After its recovery the unconfirmed records are new.
    try copies[0].receive(from: copies[1])
    try copies[2].receive(from: copies[0])
    #expect(try copies[2].text("in doubt") == "2")
    #expect(try copies[2].versionVector()[former] == 3)
  }

  @Test("discards its cursors if its directory is a copy: their marks may be unknown by now")
  func cursors() throws {
    let copies = try copies()
    try copies[1].put("k", "v")
    try copies[0].receive(from: copies[1])
    let sender = try copies[1].actor
    #expect(try copies[0].cursor(for: sender) != nil)
    let host = SimulatedHost(seed: 9, machine: "another")
    try host.storage.install(
      try hosts[0].storage.files(below: copies[0].path), from: copies[0].path, at: "/copied")
    let copied = try Store.open("/copied", on: host)
    #expect(try copied.text("k") == "v" && copied.cursor(for: sender) == nil)
    try copied.receive(from: copies[1])
    #expect(try copied.cursor(for: sender)?.closed == true)
  }

  @Test("remembers the retracted actor across a restart")
  func survives() throws {
    let store = try copies()[0]
    let former = try store.actor
    try store.becomeNewActor()
    try store.close()
    let again = try Store.open(store.path, on: hosts[0])
    #expect(try again.replicaSummary().abandonedActors == [former])
  }
}
