import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("The sorted key index")
struct SortedKeyIndexTests {
  static func precedes(_ left: [UInt8], _ right: [UInt8]) -> Bool { left.lexicographicallyPrecedes(right) }

  /// Keys that share prefixes, are prefixes of each other, and contain zeros.
  static func keys(_ count: Int, _ random: inout SplitMix64) -> [[UInt8]] {
    let stems: [[UInt8]] = [
      [], Array("shared-prefix-of-20!".utf8), [1], [1, 0], [255, 255], Array("k".utf8),
    ]
    return (0..<count).map { _ in
      let stem = stems[Int(random.next() % UInt64(stems.count))]
      let length = Int(random.next() % 20) + (stem.isEmpty ? 1 : 0)
      let alphabet: [UInt8] = random.next() % 2 == 0 ? [0, 1, 255] : [97, 98]
      let rest = (0..<length).map { _ in alphabet[Int(random.next() % UInt64(alphabet.count))] }
      return stem.isEmpty ? [7] + rest : stem + rest
    }
  }

  @Test(
    "is in byte order of the keys, whatever prefixes they share, also after changes",
    arguments: 0..<12 as Range<UInt64>)
  func order(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let store = try Store.create(
      on: SimulatedHost(compacting: .onRequest),
      configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    var model: [[UInt8]: [UInt8]] = [:]
    for round in 0..<6 {
      for key in Self.keys(round == 0 ? 400 : Int(random.next() % 120), &random) {
        let value = [UInt8(truncatingIfNeeded: random.next())]
        if random.next() % 5 == 0 {
          try store.delete(Key(bytes: key))
          model[key] = nil
        } else {
          try store.put(Key(bytes: key), value)
          model[key] = value
        }
      }
      if round == 3 { try store.compact() }
      let listed = try store.list().map(\.key.bytes)
      #expect(listed == model.keys.sorted(by: Self.precedes), "seed \(seed), round \(round)")
      let prefix = Array("shared".utf8)
      #expect(
        try store.list(prefix: prefix).map(\.key.bytes)
          == model.keys.filter { $0.starts(with: prefix) }.sorted(by: Self.precedes))
      if let middle = listed.dropFirst(listed.count / 2).first {
        #expect(
          try store.list(after: Key(bytes: middle), limit: 7).map(\.key.bytes)
            == Array(listed.drop { !Self.precedes(middle, $0) }.prefix(7)))
      }
    }
  }

  @Test("shows a change of another process, and a value whose time has come")
  func elsewhere() throws {
    let host = SimulatedHost()
    let shared = Configuration(mode: .shared)
    let store = try Store.create(on: host, configuration: shared)
    let other = try Store.openSecond(on: host, configuration: shared)
    try store.put("a", "1")
    #expect(try other.list().map(\.key) == ["a"])
    try store.put("b", "1")
    try store.put("a", "2")
    #expect(try other.list().map(\.key) == ["a", "b"])
    let far = SimulatedHost(seed: 9, time: host.time + 100_000, machine: "fast")
    let fast = try Store.create(on: far, id: store.id)
    try fast.put("c", "early")
    try other.receive(from: fast)
    #expect(try other.list().map(\.key) == ["a", "b"])
    host.time += 200_000
    try other.put("d", "1")
    #expect(try other.list().map(\.key) == ["a", "b", "c", "d"])
  }
}
