import SyncTestSupport
import Testing

@testable import SyncStore

/// The digest is computed from the journal's bytes where possible; `StateDigest` over decoded records is
/// authoritative.
@Suite("The digest computed from journal bytes")
struct SimpleRecordDigestTests {
  /// Over all held records, one by one.
  func expected(_ store: Store) throws -> StateDigest {
    let now = store.environment.now()
    return try store.reading { engine throws(StoreError) in
      var digest = StateDigest()
      for place in try engine.locations() {
        let record = try engine.record(at: place)
        if !record.isReserved, record.isLive(at: now) { digest.add(record) }
      }
      return digest
    }
  }

  @Test(
    "equals that of the decoded records, both running and recomputed",
    arguments: 1...12 as ClosedRange<UInt64>)
  func isThatOfTheRecords(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let (host, other) = (SimulatedHost(seed: seed), SimulatedHost(seed: seed + 100))
    // Large enough for values that exceed the first buffer.
    let configuration = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 1 << 20)
    let store = try Store.create(on: host, id: StoreID(high: 1, low: seed), configuration: configuration)
    let peer = try Store.create(on: other, id: store.id, configuration: configuration)
    for round in 0..<4 {
      for side in [store, peer] {
        for _ in 0..<40 {
          let isLong = random.chance(10)
          let key = try Key(isLong ? String(repeating: "k", count: 300) : "key \(random.next() % 60)")
          switch random.next() % 10 {
          case 0: _ = try side.delete(key)
          case 1: try side.put(key, [], expiration: random.chance(50) ? .at(host.time + 1_000_000) : .at(1))
          case 2: try side.put(key, random.bytes(Int(random.next() % 18_000)), type: .string)
          default: try side.put(key, random.bytes(Int(random.next() % 300)))
          }
        }
      }
      // Maintained from its first use on.
      if round > 0 { #expect(try store.digest() == expected(store)) }
      try store.receive(from: peer)
      try peer.receive(from: store)
      #expect(try store.digest() == expected(store))
      #expect(try store.digest() == peer.digest())
    }
  }
}
