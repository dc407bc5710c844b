import SyncTestSupport
import Testing

@testable import SyncStore

/// Everything a copy has sent must be on its disk (rules R3, R7 and R9): all unsynced data is lost here.
@Suite("Durability of what a peer was told")
struct RoundDurabilityTests {
  let left = SimulatedHost(seed: 1, machine: "left")
  let right = SimulatedHost(seed: 2, machine: "right")

  /// Only synced data survives.
  private func losePower(_ host: SimulatedHost) throws -> Store {
    host.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    return try Store.open(on: host)
  }

  @Test("an acknowledged batch is durable, with its cursor (F72)")
  func batch() throws {
    let a = try Store.create(on: left)
    let receiver = try Store.create(on: right, id: a.id)
    try a.put("key", "value")
    let round = try a.openRound(since: nil, covered: VersionVector())
    let batch = try #require(try round.next(maximumBytes: 1000))
    _ = try receiver.apply(batch)
    let again = try losePower(right)
    #expect(try again.text("key") == "value")
    #expect(try again.cursor(for: a.actor)?.position == batch.position)
  }

  @Test("a round's mark and all its records are durable before anything of the round is sent (F59)")
  func mark() throws {
    let a = try Store.create(on: left)
    let b = try Store.create(on: right, id: a.id)
    for number in 0..<5 { try a.put(Key("\(number)"), "value", durability: .relaxed) }
    try b.receive(from: a)
    let actor = try a.actor
    let again = try losePower(left)
    let cursor = try #require(try b.cursor(for: actor))
    let round = try again.openRound(since: cursor, covered: b.versionVector())
    #expect(round.count == 0)
    for number in 0..<5 { #expect(try again.text(Key("\(number)")) == "value") }
  }

  @Test("a cursor of a round unknown to this copy proves a rollback (F57)")
  func unknownMark() throws {
    let a = try Store.create(on: left)
    try a.put("key", "value")
    let foreign = Cursor(position: 1, mark: RoundMark(bytes: [UInt8](repeating: 9, count: 16))!, closed: true)
    let error = #expect(throws: StoreError.self) {
      _ = try a.openRound(for: RoundReceiver(cursor: foreign, covered: VersionVector()))
    }
    #expect(error?.code == .rolledBack)
  }

  @Test("a copied directory drops writes whose dots may yet get other contents (F55)")
  func copied() throws {
    let a = try Store.create(on: left)
    try a.put("vouched for", "1")
    try a.put("last", "2", durability: .relaxed)
    try left.storage.copyTree(from: "/store", to: "/copy")
    let copy = try Store.open("/copy", on: left)
    #expect(try copy.text("vouched for") == "1")
    #expect(try copy.get("last") == nil)
    // The original continues with its actor.
    try copy.synchronize(with: a)
    try copy.synchronize(with: a)
    #expect(try copy.text("last") == "2")
    #expect(try copy.digest() == a.digest())
  }

  @Test("a copy that finds damage below its watermark begins a new actor and covers nothing (F17)")
  func damaged() throws {
    let a = try Store.create(on: left)
    for number in 0..<20 { try a.put(Key("\(number)"), [UInt8](repeating: 0x5A, count: 100)) }
    let actor = try a.actor
    try a.close()
    let path = "/store/journal/0000000000000001.segment"
    let bytes = try left.storage.open(path, .readOnly).read(20_000, at: 0)
    let place = try #require(bytes.firstIndex(of: 0x5A))
    try left.storage.flipBit(of: path, at: place, bit: 1)
    // The journal is read from its beginning.
    for name in ["index", "ledger"] { _ = try left.storage.remove("/store/" + name) }
    left.killProcesses()
    let again = try Store.open(on: left)
    #expect(try again.actor != actor)
    #expect(try again.versionVector()[actor] == 0)
    #expect(try again.replicaSummary().health == .recovering)
  }

  @Test(
    "a batch makes durable the large values it refers to that were present and not durable (R7)",
    arguments: [5 << 20, 50_000])
  func valuesThatWereHere(bytes: Int) throws {
    let (left, right) = (SimulatedHost(seed: 1, machine: "left"), SimulatedHost(seed: 2, machine: "right"))
    let store = try Store.create(on: left)
    let peer = try Store.create(on: right, id: store.id)
    let value = pattern(bytes)
    try peer.put("large", value)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) {
      try store.transaction { transaction in
        try transaction.put("own", value)
        throw Refusal()
      }
    }
    try store.receive(from: peer)
    #expect(try store.absentValues() == AbsentValues())
    left.losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    #expect(try Store.open(on: left).get("large")?.bytes == value)
  }
}
