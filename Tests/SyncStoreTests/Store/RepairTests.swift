import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Repair of one dot with two contents (F61)")
struct RepairTests {
  let left = SimulatedHost(seed: 1, machine: "left")
  let right = SimulatedHost(seed: 2, machine: "right")

  /// Two copies that cover the same writes of a machine that was cloned while it ran, with different contents
  /// of some.
  func forked() throws -> (Store, Store) {
    let a = try Store.create(on: left)
    let b = try Store.create(on: right, id: a.id)
    let actor = ActorID(high: 7, low: 7)
    for (store, text) in [(a, "here"), (b, "there")] {
      let records = (0..<100 as Range<UInt64>).map { number in
        let content = number % 10 == 3 ? text : "same"
        return PositionedRecord(
          position: number + 1,
          record: Record(
            version: Version(
              stamp: Stamp(milliseconds: left.time + number), dot: Dot(actor: actor, sequence: number + 1)),
            key: Array("key \(number)".utf8), content: .inline(Array(content.utf8))))
      }
      let mark = RoundMark(high: 1, low: 1)
      _ = try store.apply(IncomingBatch(sender: actor, mark: mark, position: 100, records: records))
      try store.finish(
        RoundClose(
          sender: actor, mark: mark, position: 100, vector: VersionVector([actor: 100]),
          floor: VersionVector(),
          horizon: .zero))
    }
    return (a, b)
  }

  /// The copies at this moment.
  func scopes(_ a: Store, _ b: Store) throws -> (RepairScope, RepairScope) {
    (
      RepairScope(time: left.time, position: try a.replicaSummary().position),
      RepairScope(time: left.time, position: try b.replicaSummary().position)
    )
  }

  static let everything = Array(0...UInt16.max)

  func differences(_ a: Store, _ b: Store, _ scopes: (RepairScope, RepairScope)) throws -> Set<[UInt8]> {
    let (mine, theirs) = (
      try a.fingerprints(in: Self.everything, scopes.0, most: 1000),
      try b.fingerprints(in: Self.everything, scopes.1, most: 1000)
    )
    let hashes = RecordFingerprint.differences(mine.prints, theirs.prints)
    return Set(hashes.flatMap { (mine.keys[$0] ?? []) + (theirs.keys[$0] ?? []) })
  }

  /// The steps of two sides, one after the other; the second may be cut off before it reissues anything.
  @discardableResult
  func repair(_ a: Store, _ b: Store, _ scopes: (RepairScope, RepairScope)) throws -> (
    RepairOutcome, RepairOutcome
  ) {
    let keys = try differences(a, b, scopes)
    let byKey = { (records: [Record]) in Dictionary(uniqueKeysWithValues: records.map { ($0.key, $0) }) }
    let (mine, theirs) = (byKey(try a.records(of: keys, scopes.0)), byKey(try b.records(of: keys, scopes.1)))
    let kept = try b.repair(keys, against: mine, scope: scopes.1, steps: .keep)
    let done = try a.repair(keys, against: theirs, scope: scopes.0, steps: [.keep, .issue])
    let issued = try b.repair(keys, against: mine, scope: scopes.1, steps: .issue)
    #expect(kept.keys == issued.keys && kept.keys == done.keys)
    return (done, issued)
  }

  @Test("finds it by the digests of buckets, whose sum is the digest, and by the fingerprints of their keys")
  func finding() throws {
    let (a, b) = try forked()
    #expect(try a.versionVector() == b.versionVector() && a.digest() != b.digest())
    let (ours, theirs) = (try a.bucketDigests(at: left.time), try b.bucketDigests(at: left.time))
    #expect(try ours.reduce(into: StateDigest()) { $0.add($1) } == a.digest(at: left.time))
    let differing = ours.indices.filter { ours[$0] != theirs[$0] }
    #expect(differing.count == 10)
    let expected = Set((0..<10).map { Array("key \($0 * 10 + 3)".utf8) })
    #expect(try differences(a, b, scopes(a, b)) == expected)
    let scope = try scopes(a, b).0
    let found = try a.fingerprints(in: differing.map { UInt16($0) }, scope, most: 1000)
    #expect(found.buckets == differing.map { UInt16($0) })
    #expect(Set(found.keys.values.joined()).isSuperset(of: expected))
    #expect(Set(try a.records(of: found.keys.values.joined(), scope).map(\.key)).isSuperset(of: expected))
  }

  @Test(
    "takes bounded memory: of too many buckets the first are compared, one that is too large is an error"
  )
  func bounds() throws {
    let (a, b) = try forked()
    let scope = try scopes(a, b).0
    let some = try a.fingerprints(in: Self.everything, scope, most: 20)
    #expect(some.prints.count <= 20 && !some.prints.isEmpty)
    let complete = try a.fingerprints(in: Self.everything, scope, most: 1000)
    #expect(some.prints == Array(complete.prints.prefix(some.prints.count)))
    let bucket = RecordFingerprint.bucket(of: try #require(some.prints.first).keyHash)
    #expect { try a.fingerprints(in: [bucket], scope, most: 0) } throws: {
      ($0 as? StoreError)?.code == .outOfBounds
    }
  }

  @Test("keeps both values, and the copies are equal again")
  func repairing() throws {
    let (a, b) = try forked()
    let (done, issued) = try repair(a, b, scopes(a, b))
    #expect(done.keys.count == 10 && !done.hasNewActor && !issued.hasNewActor)
    for _ in 0..<2 { try a.synchronize(with: b) }
    #expect(try a.digest() == b.digest())
    #expect(try a.text("key 13") == "there" && b.text("key 13") == "there")
    #expect(try a.text("key 14") == "same")
    #expect(try a.conflicts().map(\.value) == [[UInt8]](repeating: Array("here".utf8), count: 10))
    let again = try repair(a, b, scopes(a, b))
    #expect(again.0.keys == [] && again.1.keys == [])
  }

  @Test(
    "repairs the state compared: later writes win as usual"
  )
  func writtenSince() throws {
    let (a, b) = try forked()
    let scopes = try scopes(a, b)
    try a.put("key 13", "newer")
    try b.put("key 23", "newer")
    try b.put("another", "newer")
    let (done, _) = try repair(a, b, scopes)
    #expect(done.keys.count == 8)
    for _ in 0..<2 { try a.synchronize(with: b) }
    #expect(try a.digest() == b.digest())
    for key in ["key 13", "key 23", "another"] as [Key] { #expect(try a.text(key) == "newer") }
    #expect(try b.text("key 33") == "there")
  }

  @Test("works, too, where one side has a tombstone, or nothing")
  func deleted() throws {
    let (a, b) = try forked()
    let actor = ActorID(high: 9, low: 9)
    let mark = RoundMark(high: 2, low: 2)
    for (store, content) in [(a, Record.Content.tombstone), (b, .inline([1]))] {
      let record = Record(
        version: Version(stamp: Stamp(milliseconds: left.time), dot: Dot(actor: actor, sequence: 1)),
        key: Array("gone?".utf8), content: content)
      _ = try store.apply(
        IncomingBatch(
          sender: actor, mark: mark, position: 1, records: [PositionedRecord(position: 1, record: record)]))
    }
    let scopes = try scopes(a, b)
    #expect(try differences(a, b, scopes).contains(Array("gone?".utf8)))
    #expect(try repair(a, b, scopes).0.keys.count == 11)
    for _ in 0..<2 { try a.synchronize(with: b) }
    #expect(try a.digest() == b.digest())
    #expect(try a.get("gone?")?.bytes == [1])
  }

  @Test("makes its author a new actor before anything is reissued", arguments: ["aaa", "zzz"])
  func renewing(other: String) throws {
    let a = try Store.create(on: left)
    try a.put("k", "mine")
    let (actor, sequence) = (try a.actor, try a.replicaSummary().sequence)
    let scope = RepairScope(time: left.time, position: try a.replicaSummary().position)
    let key = Array("k".utf8)
    var theirs = try #require(try a.records(of: [key], scope).first)
    theirs.content = .inline(Array(other.utf8))
    let outcome = try a.repair([key], against: [key: theirs], scope: scope, steps: [.keep, .issue])
    #expect(outcome == RepairOutcome(keys: [key], isRenewed: true))
    #expect(try a.actor != actor && a.versionVector()[actor] == sequence)
    let isWinner = other < "mine"
    #expect(try a.replicaSummary().sequence == (isWinner ? 1 : 0))
    #expect(try a.conflicts().count == (isWinner ? 0 : 1))
    #expect(try a.text("k") == "mine")
    // A replay of the journal gives the same.
    try a.close()
    let again = try Store.open(on: left)
    #expect(try again.text("k") == "mine" && again.replicaSummary().sequence == (isWinner ? 1 : 0))
    #expect(try again.actor != actor)
  }
}
