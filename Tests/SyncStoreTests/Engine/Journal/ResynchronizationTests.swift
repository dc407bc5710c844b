import Synchronization
import SyncTestSupport
import Testing

@testable import SyncStore

/// After damage the next record is found at a cost linear in the damaged bytes, even if an attacker chose
/// them.
@Suite("Finding the next record after damage")
struct ResynchronizationTests {
  private let host = SimulatedHost(encrypted: false)

  /// A store whose second segment has a value of 1 MiB between others.
  private func store() throws -> Store {
    let store = try Store.create(
      on: host,
      configuration: Configuration(durability: .relaxed, blobThreshold: 1 << 20, segmentBytes: 8 << 20))
    return try fill(store)
  }

  private func fill(_ store: Store) throws -> Store {
    // The first segment has 1 MiB and no space for both of these, the second one has 2 MiB.
    for key in ["first", "before"] as [Key] { try store.put(key, [UInt8](repeating: 1, count: 600_000)) }
    try store.put("large", [UInt8](repeating: 1, count: 1 << 20))
    for number in 0..<10 { try store.put(Key("behind \(number)"), "y") }
    return store
  }

  /// Overwrites the value of 1 MiB with garbage, and scans the segment. Returns the bytes hashed for it, and
  /// the keys found.
  private func walk(_ store: Store, garbage word: (_ offset: Int) -> UInt64) throws -> (
    hashed: Int, keys: [String]
  ) {
    let found = store.core.engine.withLock { engine in
      engine.find(Array("large".utf8)).map { (place: $0.offset, segment: engine.journal.segment($0.segment)) }
    }
    let place = try #require(found?.place)
    let segment = try #require(found?.segment)
    let name = segment.header.name.text
    var bytes: [UInt8] = []
    for offset in stride(from: place, to: place + (1 << 20), by: 8) {
      let word = word(offset)
      bytes += (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) }
    }
    try host.storage.open("/store/journal/" + name, .readWrite).write(bytes, at: place)
    let end = store.core.engine.withLock { $0.applied.offset }
    var walker = ResyncingRecordIterator(segment, limit: end)
    var (keys, gaps): ([String], [Range<Int>]) = ([], [])
    while let step = walker.next() {
      switch step {
      case .record(let view):
        if view.isWrite, let key = view.keyBytes { keys.append(String(decoding: key, as: UTF8.self)) }
      case .gap(let range): gaps.append(range)
      }
    }
    #expect(gaps.map(\.lowerBound) == [place])
    return (segment.searchCost.hashed.load(ordering: .relaxed), keys)
  }

  private static let found = ["before"] + (0..<10).map { "behind \($0)" }

  @Test("hashes almost none of random bytes")
  func plain() throws {
    var random = SplitMix64(seed: 1)
    let (hashed, keys) = try walk(store()) { _ in random.next() }
    #expect(keys == Self.found && hashed < 8 << 20, "\(hashed) bytes")
  }

  @Test("hashes nothing of zeros")
  func blank() throws {
    let zeros = try walk(store()) { _ in 0 }
    #expect(zeros.keys == Self.found && zeros.hashed < 4096, "\(zeros.hashed) bytes")
  }

  @Test(
    "hashes at most some tens of bytes per damaged one where every eight seem to begin a large record"
  )
  func adversarial() throws {
    // Length and kind, flags, type in the upper half; durable offset, actor and key length in the lower one.
    let word: UInt64 = 0x000F_0001_0000_1000
    let (hashed, keys) = try walk(store()) { _ in word }
    #expect(keys == Self.found)
    #expect(hashed > 1 << 20 && hashed <= (32 + 64 + 1) << 20, "\(hashed) bytes")
  }

  @Test(
    "hashes nothing if lengths are impossible",
    arguments: [0xFFFF_FFFF, 0x0100_0001, 0x7FFF_FF03] as [UInt64])
  func impossible(length: UInt64) throws {
    let (hashed, keys) = try walk(store()) { _ in length << 32 }
    #expect(keys == Self.found && hashed < 4096, "\(hashed) bytes")
  }

  @Test(
    "checks each key once, not once per damaged place, with the same result as checking all places"
  )
  func possiblyLostKeys() throws {
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    for number in 0..<3000 { try store.put(Key("k\(number % 500)"), [UInt8](repeating: 1, count: 60)) }
    let journal = store.core.engine.withLock { $0.journal }
    var random = SplitMix64(seed: 7)
    func place() -> Location {
      let segment = journal.segments[Int(random.next() % UInt64(journal.segments.count))]
      return Location(segment: segment.number, offset: 4096 + Int(random.next() % 60_000))
    }
    for _ in 0..<200 {
      let unattributed = (0..<Int(random.next() % 3)).map { _ in place() }
      let keys = [Array("a".utf8): place()]
      let doubts = PossiblyLostKeys(unattributed: unattributed, keys: keys, in: journal)
      for key in ["a", "b"] {
        let found = random.chance(30) ? nil : place()
        let all = unattributed + (key == "a" ? keys.values.map { $0 } : [])
        let isDoubtful = all.contains { gap in found.map { journal.precedes($0, gap) } ?? true }
        var isRefused = false
        do throws(StoreError) { try doubts?.check(Array(key.utf8), found: found) } catch { isRefused = true }
        #expect(isRefused == isDoubtful)
      }
    }
  }
}
