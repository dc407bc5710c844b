import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The live record bitmap")
struct LiveRecordBitmapTests {
  /// A store of several segments, and the record refs of its keys in order.
  private static func setting(_ seed: UInt64) throws -> (places: LiveRecordBitmap, expected: [UInt64]) {
    let store = try Store.create(
      on: SimulatedHost(seed: seed),
      configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    var random = SplitMix64(seed: seed)
    for _ in 0..<600 { try store.put(Key("k\(random.next() % 300)"), random.bytes(Int(random.next() % 900))) }
    return try store.reading { engine throws(StoreError) in
      var expected: [UInt64] = []
      try engine.index.hashIndex.forEachRef { expected.append($0) }
      guard let places = try engine.liveRecordBitmap(isExclusive: true) else {
        throw StoreError(.damaged, "a place is in no segment")
      }
      return (places, expected.sorted())
    }
  }

  @Test(
    "yields the records that the index names, and no others, in journal order",
    arguments: 1...5 as ClosedRange<UInt64>)
  func found(seed: UInt64) throws {
    let (places, expected) = try Self.setting(seed)
    #expect(places.isComplete && places.count == expected.count)
    for count in [1, 2, 3, 7] {
      var visited: [UInt64] = []
      var largest = 0
      for share in places.shares(count) {
        let before = visited.count
        places.forEach(in: share) { visited.append($0) }
        largest = max(largest, visited.count - before)
      }
      #expect(visited == expected)
      // A word has 64 bits.
      #expect(largest <= expected.count / count + 64)
    }
    let taken = Set(expected)
    for place in expected {
      for near in place - 1...place + 2 { #expect(places.contains(near) == taken.contains(near)) }
    }
  }

  @Test(
    "is searched from any location to the end of its segment", arguments: 6...8 as ClosedRange<UInt64>)
  func first(seed: UInt64) throws {
    let (places, expected) = try Self.setting(seed)
    for (index, place) in expected.enumerated() {
      let next = index + 1 < expected.count ? expected[index + 1] : nil
      let slot = SegmentTable.slot(ofRef: place)
      #expect(places.first(from: place) == place)
      #expect(
        places.first(from: place + 1) == next.flatMap { SegmentTable.slot(ofRef: $0) == slot ? $0 : nil })
    }
    #expect(places.first(from: SegmentTable.ref(slot: 1000, offset: 64)) == nil)
  }

  @Test("detects locations in unknown segments")
  func incomplete() throws {
    var (places, _) = try Self.setting(9)
    places.insert(SegmentTable.ref(slot: 1000, offset: 64))
    #expect(!places.isComplete && !places.contains(SegmentTable.ref(slot: 1000, offset: 64)))
  }
}
