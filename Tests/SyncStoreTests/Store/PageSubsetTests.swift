import SyncStore
import SyncTestSupport
import Testing

/// Every possible outcome of a power loss: any subset of the unsynced pages reaches the disk, each whole or
/// torn at 512 bytes, with the old or the new size of the files.
@Suite("Any subset of unsynced pages")
struct PageSubsetTests {
  /// A page of a file.
  struct Page: Hashable {
    var path: String
    var number: Int
  }

  /// A store whose last writes are not synced; deterministic.
  private static func prepare(_ kind: Int) throws -> (host: SimulatedHost, durable: Int, written: Int) {
    let host = SimulatedHost(seed: 3, encrypted: kind % 2 == 1)
    let store = try Store.create(
      on: host, configuration: Configuration(durability: .relaxed, segmentBytes: 64 << 10))
    var written = 0
    func write(_ size: Int) throws {
      try store.transaction { transaction in
        for half in ["a", "b"] {
          try transaction.put(Key("\(half) \(written)"), [UInt8](repeating: UInt8(written), count: size))
        }
      }
      written += 1
    }
    for _ in 0..<5 { try write(500) }
    try store.sync()
    let durable = written
    // Some pages of the tail; or, with the other kinds, a tail that continues in the next segment.
    if kind >= 2 {
      for _ in 0..<3 { try write(8000) }
      try store.sync()
      return (host, written, try more(3, 2500))
    }
    return (host, durable, try more(4, 1700))

    func more(_ count: Int, _ size: Int) throws -> Int {
      for _ in 0..<count { try write(size) }
      return written
    }
  }

  @Test(
    "keeps all durable writes, whole transactions, and none without earlier ones (F15, F16, F18, F19)",
    arguments: 0..<4)
  func everySubset(kind: Int) throws {
    // The pages that can be lost: deterministic.
    var pages: [Page] = []
    let (first, _, _) = try Self.prepare(kind)
    first.storage.crash(keeping: { path, page in
      if path.contains("/journal/") { pages.append(Page(path: path, number: page)) }
      return .survives
    })
    let count = pages.count
    #expect((4...12).contains(count), "\(count) pages")
    var random = SplitMix64(seed: UInt64(kind))
    for subset in 0..<(1 << count) {
      let (host, durable, written) = try Self.prepare(kind)
      let numbers = Dictionary(uniqueKeysWithValues: zip(pages, 0...))
      // One more page is torn in most of them.
      let torn = Int(random.next() % UInt64(count + 1))
      let sectors = UInt8(truncatingIfNeeded: random.next())
      let keepsSizes = random.chance(80)
      host.losePower(
        keeping: { path, page in
          guard let number = numbers[Page(path: path, number: page)] else {
            return subset.isMultiple(of: 2) ? .survives : .lost
          }
          if number == torn { return .torn(sectors: sectors) }
          return subset >> number & 1 == 1 ? .survives : .lost
        }, sizes: { _ in keepsSizes })
      let place = "subset \(subset) of \(count) pages, page \(torn) torn"
      let store = try Store.open(on: host, configuration: Configuration(segmentBytes: 64 << 10))
      var found = 0
      while try store.contains(Key("a \(found)")) { found += 1 }
      #expect(found >= durable, "\(place): \(found) are there, \(durable) were durable")
      for number in 0..<written {
        for half in ["a", "b"] {
          let value = try store.get(Key("\(half) \(number)"))?.bytes
          #expect((value != nil) == (number < found), "\(place): \(half) \(number) of \(found)")
          if let value { #expect(value.allSatisfy { $0 == UInt8(number) }, "\(place)") }
        }
      }
      let damage = try store.verify().damage
      #expect(damage.isEmpty, "\(place): \(damage)")
      try store.close()
    }
  }
}
