import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("One write with two contents (F61)")
struct RepairTests {
  let left = SimulatedHost(seed: 1, machine: "left")
  let right = SimulatedHost(seed: 2, machine: "right")

  /// Two copies that cover the same writes of a machine that was cloned while it ran, and have different contents of some.
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
            dot: Dot(actor: actor, sequence: number + 1), stamp: Stamp(milliseconds: left.time + number),
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

  @Test("is found by the digests of buckets, whose sum is the digest")
  func finding() throws {
    let (a, b) = try forked()
    #expect(try a.versionVector() == b.versionVector() && a.digest() != b.digest())
    let (ours, theirs) = (try a.bucketDigests(at: left.time), try b.bucketDigests(at: left.time))
    let differing = ours.indices.filter { ours[$0] != theirs[$0] }
    #expect(differing.count == 10)
    let found = try a.records(in: differing.map { UInt16($0) }, maximumBytes: 1 << 20)
    #expect(Set(found.records.map(\.key)).isSuperset(of: (0..<10).map { Array("key \($0 * 10 + 3)".utf8) }))
    let (some, _) = try a.records(in: differing.map { UInt16($0) }, maximumBytes: 100)
    #expect(some.count < 10 && !some.isEmpty)
  }

  @Test("is put right: both values are kept, and the copies are equal again")
  func repairing() throws {
    let (a, b) = try forked()
    let (ours, theirs) = (try a.bucketDigests(at: left.time), try b.bucketDigests(at: left.time))
    let buckets = ours.indices.filter { ours[$0] != theirs[$0] }.map { UInt16($0) }
    let (mine, others) = (
      try a.records(in: buckets, maximumBytes: 1 << 20).records,
      try b.records(in: buckets, maximumBytes: 1 << 20).records
    )
    #expect(try a.repair(buckets, against: others, at: left.time).count == 10)
    #expect(try b.repair(buckets, against: mine, at: left.time).count == 10)
    for _ in 0..<2 { try a.synchronize(with: b) }
    #expect(try a.digest() == b.digest())
    #expect(try a.text("key 13") == "there" && b.text("key 13") == "there")
    #expect(try a.text("key 14") == "same")
    #expect(try a.conflicts().map(\.value) == [[UInt8]](repeating: Array("here".utf8), count: 10))
    #expect(
      try a.repair(buckets, against: b.records(in: buckets, maximumBytes: 1 << 20).records, at: left.time)
        == [])
  }

  @Test("makes its author a new actor")
  func renewing() throws {
    let a = try Store.create(on: left)
    try a.put("k", "mine")
    let actor = try a.actor
    var other = try #require(
      try a.records(in: (0...UInt16.max).map { $0 }, maximumBytes: 1 << 20).records.first)
    other.content = .inline(Array("other".utf8))
    #expect(try a.repair((0...UInt16.max).map { $0 }, against: [other], at: left.time).count == 1)
    #expect(try a.actor != actor)
    #expect(try a.conflicts().count == 1 || a.text("k") == "mine")
  }
}
