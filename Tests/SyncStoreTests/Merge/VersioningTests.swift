import SyncStore
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Resolution")
struct ResolutionTests {
  static let actors = (1...3).map { ActorID(high: 0, low: UInt64($0)) }

  /// Records of one key that differ in every input of resolution.
  static func records(_ random: inout SplitMix64, _ count: Int) -> [Record] {
    (0..<count).map { number in
      Record(
        version: Version(
          stamp: Stamp(milliseconds: random.next() % 3, counter: UInt16(random.next() % 2)),
          dot: Dot(actor: actors[Int(random.next() % 3)], sequence: UInt64(number + 1))), key: [1],
        content: random.next() % 3 == 0 ? .tombstone : .inline([UInt8(number)]))
    }
  }

  static func outcome(_ records: [Record]) -> Record? {
    records.reduce(nil) { held, record in
      switch Resolution.apply(record, held: held) {
      case .win: record
      case .lose, .ignore, .park: held
      }
    }
  }

  @Test("is total, commutative, associative and idempotent", arguments: 0..<200 as Range<UInt64>)
  func laws(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let records = Self.records(&random, 6)
    let expected = records.max { $0.version < $1.version }
    #expect(Self.outcome(records) == expected, "seed \(seed)")
    for _ in 0..<5 { #expect(Self.outcome(records.shuffled(using: &random)) == expected, "seed \(seed)") }
    #expect(Self.outcome(records + records) == expected, "seed \(seed)")
    let halves = [Self.outcome(Array(records[..<3])), Self.outcome(Array(records[3...]))].compactMap { $0 }
    #expect(Self.outcome(halves) == expected, "seed \(seed)")
    for one in records {
      for other in records where one != other {
        #expect((one.version < other.version) != (other.version < one.version))
      }
    }
  }

  /// Two records of one key, and the result of resolving them in either order.
  struct Case: CustomTestStringConvertible {
    var testDescription: String
    var winner: Record
    var loser: Record
    var isConflict: Bool
  }

  static func record(
    _ actor: Int, _ sequence: UInt64, at time: UInt64, base: Dot? = nil, dead: Bool = false,
    key: [UInt8] = [1]
  ) -> Record {
    Record(
      version: Version(stamp: Stamp(milliseconds: time), dot: Dot(actor: actors[actor], sequence: sequence)),
      context: CausalContext(base: base), key: key, content: dead ? .tombstone : .inline([1]))
  }

  static let cases = [
    Case(
      testDescription: "the later stamp wins over the greater actor", winner: record(0, 1, at: 2),
      loser: record(2, 1, at: 1), isConflict: true),
    Case(
      testDescription: "at equal stamps the greater actor wins", winner: record(1, 1, at: 1),
      loser: record(0, 1, at: 1), isConflict: true),
    Case(
      testDescription: "at equal stamps of one actor the later write wins", winner: record(0, 2, at: 1),
      loser: record(0, 1, at: 1), isConflict: false),
    Case(
      testDescription: "an overwrite of what was seen is no conflict",
      winner: record(0, 1, at: 2, base: Dot(actor: actors[1], sequence: 1)), loser: record(1, 1, at: 1),
      isConflict: false),
    Case(
      testDescription: "an overwrite of something older is one",
      winner: record(0, 1, at: 2, base: Dot(actor: actors[1], sequence: 1)), loser: record(1, 2, at: 1),
      isConflict: true),
    Case(
      testDescription: "a delete that beats a write unseen is one", winner: record(0, 1, at: 2, dead: true),
      loser: record(1, 1, at: 1), isConflict: true),
    Case(
      testDescription: "a write that beats a delete loses nobody's value", winner: record(0, 1, at: 2),
      loser: record(1, 1, at: 1, dead: true), isConflict: false),
    Case(
      testDescription: "the store's own keys have no conflicts", winner: record(0, 1, at: 2, key: [0, 1]),
      loser: record(1, 1, at: 1, key: [0, 1]), isConflict: false),
  ]

  @Test("gives the verdicts of the table, in both directions", arguments: cases)
  func table(row: Case) {
    #expect(Resolution.apply(row.winner, held: row.loser) == .win(conflict: row.isConflict))
    #expect(Resolution.apply(row.loser, held: row.winner) == .lose(conflict: row.isConflict))
    #expect(Resolution.apply(row.winner, held: row.winner) == .ignore)
    #expect(Resolution.apply(row.winner, held: nil) == .win(conflict: false))
  }

  @Test("ignores covered records, and parks those stamped too far ahead")
  func receiving() {
    let record = Self.record(0, 5, at: 100)
    let covered = VersionVector([Self.actors[0]: 5])
    let limit = Stamp(milliseconds: 99)
    #expect(Resolution.receive(record, held: nil, limit: limit, covers: covered.covers) == .ignore)
    #expect(Resolution.receive(record, held: nil, limit: limit, covers: VersionVector().covers) == .park)
    #expect(
      Resolution.receive(record, held: nil, limit: Stamp(milliseconds: 100), covers: VersionVector().covers)
        == .win(conflict: false))
  }

  @Test(
    "gives a write as base the one before its author's own overwrites, and the dots its author did not cover")
  func past() {
    let foreign = Self.record(1, 7, at: 1)
    let covering = VersionVector([Self.actors[1]: 7])
    let first = Resolution.causalContext(
      replacing: foreign.replaced, by: Self.actors[0], covers: covering.covers)
    #expect(first.base == foreign.dot)
    #expect(first.open.isEmpty)
    let uncovered = Resolution.causalContext(
      replacing: foreign.replaced, by: Self.actors[0], covers: VersionVector().covers)
    #expect(uncovered.open == [foreign.dot])
    var own = Self.record(0, 1, at: 2, base: foreign.dot)
    own.open = [foreign.dot]
    let second = Resolution.causalContext(
      replacing: own.replaced, by: Self.actors[0], covers: VersionVector([Self.actors[0]: 1]).covers)
    #expect(second.base == foreign.dot)
    #expect(second.open == [foreign.dot])
    #expect(Resolution.causalContext(replacing: nil, by: Self.actors[0], covers: covering.covers).base == nil)
  }
}

@Suite("A hybrid clock")
struct HybridClockTests {
  @Test("gives rising stamps whatever the wall clock does (F47, F48)", arguments: 0..<50 as Range<UInt64>)
  func rises(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    var clock = HybridClock()
    var last = Stamp.zero
    for _ in 0..<200 {
      if random.next() % 4 == 0 {
        clock.observe(
          Stamp(milliseconds: random.next() % 2000, counter: UInt16(random.next() % 70_000 % 65_536)))
      }
      let seen = max(last, clock.last)
      let tick = clock.tick(wall: random.next() % 1000)
      let stamp = try #require(tick)
      #expect(stamp > seen, "seed \(seed)")
      last = stamp
    }
  }

  @Test("carries a full counter into the milliseconds (F52), and stops before the last stamp (F51)")
  func overflow() {
    var clock = HybridClock(last: Stamp(milliseconds: 5, counter: .max))
    let carried = clock.tick(wall: 5)
    #expect(carried == Stamp(milliseconds: 6, counter: 0))
    var spent = HybridClock(last: Stamp(rawValue: Stamp.maximum.rawValue - 1))
    let none = spent.tick(wall: 0)
    #expect(none == nil)
    var far = HybridClock()
    let end = far.tick(wall: .max)
    #expect(end.map { $0 < Stamp.maximum } == true)
  }
}

@Suite("A version vector")
struct VersionVectorTests {
  @Test("merges to the least vector that covers both", arguments: 0..<50 as Range<UInt64>)
  func merging(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let vectors = (0..<3).map { _ in
      VersionVector(
        Dictionary(uniqueKeysWithValues: ResolutionTests.actors.map { ($0, random.next() % 4) }))
    }
    func merged(_ left: VersionVector, _ right: VersionVector) -> VersionVector {
      var result = left
      result.merge(right)
      return result
    }
    let (a, b, c) = (vectors[0], vectors[1], vectors[2])
    #expect(merged(a, b) == merged(b, a))
    #expect(merged(merged(a, b), c) == merged(a, merged(b, c)))
    #expect(merged(a, a) == a)
    #expect(merged(a, b).covers(a) && merged(a, b).covers(b))
    for actor in ResolutionTests.actors { #expect(merged(a, b)[actor] == max(a[actor], b[actor])) }
  }

  @Test("with many actors behaves like a dictionary", arguments: 0..<30 as Range<UInt64>)
  func dictionary(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let actors = (0..<Int(1 + random.next() % 200)).map { _ in
      ActorID(high: random.next() % 8, low: random.next())
    }
    func drawn(_ share: UInt64) -> [ActorID: UInt64] {
      var entries: [ActorID: UInt64] = [:]
      for actor in actors where random.next() % 100 < share { entries[actor] = random.next() % 3 }
      return entries
    }
    // Also few among many.
    let (one, other) = (drawn(90), drawn(seed % 2 == 0 ? 4 : 80))
    let (left, right) = (VersionVector(one), VersionVector(other))
    var merged = left
    merged.merge(right)
    var turned = right
    turned.merge(left)
    #expect(merged == turned && merged.hashValue == turned.hashValue)
    var set = VersionVector()
    for actor in actors.shuffled(using: &random) { set[actor] = max(one[actor] ?? 0, other[actor] ?? 0) }
    #expect(set == merged)
    for actor in actors {
      #expect(left[actor] == one[actor] ?? 0)
      #expect(merged[actor] == max(one[actor] ?? 0, other[actor] ?? 0))
    }
    #expect(merged.actors == merged.actors.sorted() && merged.count == merged.actors.count)
    #expect(left.covers(right) == actors.allSatisfy { one[$0] ?? 0 >= other[$0] ?? 0 })
    #expect(merged.covers(left) && merged.covers(right))
    let beyond = left.beyond(right)
    for actor in actors {
      #expect(beyond[actor] == ((one[actor] ?? 0) > (other[actor] ?? 0) ? one[actor] ?? 0 : 0))
    }
    for actor in actors { set[actor] = 0 }
    #expect(set.isEmpty && set == VersionVector())
  }

  @Test("round-trips, and refuses unordered bytes")
  func coding() throws {
    let vector = VersionVector([ResolutionTests.actors[0]: 1, ResolutionTests.actors[2]: 1 << 40])
    var writer = ByteWriter()
    writer.write(vector)
    var reader = ByteReader(writer.bytes)
    #expect(try reader.readVector() == vector)
    var swapped = ByteWriter()
    swapped.writeVariable(2)
    swapped.write(Dot(actor: ResolutionTests.actors[2], sequence: 1))
    swapped.write(Dot(actor: ResolutionTests.actors[0], sequence: 1))
    #expect(throws: DecodingFailure.self) {
      var reader = ByteReader(swapped.bytes)
      _ = try reader.readVector()
    }
  }
}
