import SyncTestSupport
import Testing

@testable import SyncStore

/// Copied results of a scan, for comparison.
struct Scanned: Equatable {
  var key: [UInt8]
  var value: [UInt8]
}

extension ReadableStore {
  /// Results of a scan in pages of `limit` entries, each continuing after the last.
  func scanned(_ range: KeyRange = .all, reversed: Bool = false, limit: Int = .max) throws -> [Scanned] {
    var all: [Scanned] = []
    var after: Key?
    repeat {
      var count = 0
      after = try scan(range, after: after, reversed: reversed, limit: limit) { key, value in
        count += 1
        all.append(Scanned(key: [UInt8](copying: key), value: [UInt8](copying: value)))
      }
      #expect(count <= limit)
    } while after != nil
    return all
  }
}

@Suite("A scan")
struct ScanTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 64 << 10)

  /// Bounds prone to errors: around existing keys, prefixes of them, and bytes at the end of the alphabet.
  static func bound(_ keys: [[UInt8]], _ random: inout SplitMix64) -> [UInt8] {
    var key = keys.isEmpty ? [1] : keys[Int(random.next() % UInt64(keys.count))]
    switch random.next() % 6 {
    case 0: key.append(0)
    case 1: key.append(255)
    case 2: key.removeLast()
    case 3: key[key.count - 1] &+= 1
    case 4: key = [255, 255]
    default: break
    }
    return key.isEmpty || key[0] == 0 ? [1] : key
  }

  static func range(_ keys: [[UInt8]], _ random: inout SplitMix64) throws -> (KeyRange, ([UInt8]) -> Bool) {
    let low = try Key(bytes: bound(keys, &random))
    let high = try Key(bytes: bound(keys, &random))
    let (first, last) = low < high ? (low, high) : (high, low)
    switch random.next() % 8 {
    case 0: return (.all, { _ in true })
    case 1: return (KeyRange(prefix: low.bytes), { $0.starts(with: low.bytes) })
    case 2: return (KeyRange(first..<last), { Key(unchecked: $0) >= first && Key(unchecked: $0) < last })
    case 3: return (KeyRange(first...last), { Key(unchecked: $0) >= first && Key(unchecked: $0) <= last })
    case 4: return (KeyRange(low...), { Key(unchecked: $0) >= low })
    case 5: return (KeyRange(..<low), { Key(unchecked: $0) < low })
    case 6: return (KeyRange(...low), { Key(unchecked: $0) <= low })
    default:
      let prefix = Array(low.bytes.prefix(1))
      return (
        KeyRange(prefix: prefix).intersection(KeyRange(high...)),
        { $0.starts(with: prefix) && Key(unchecked: $0) >= high }
      )
    }
  }

  @Test(
    "gives the same as a sorted dictionary, both ways, for every kind of range, limit and continuation",
    arguments: 0..<8 as Range<UInt64>)
  func model(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    let host = SimulatedHost(seed: seed, compacting: .onRequest)
    let store = try Store.create(on: host, configuration: Self.small)
    var model: [[UInt8]: [UInt8]] = [:]
    for round in 0..<4 {
      for key in SortedKeyIndexTests.keys(round == 0 ? 500 : Int(random.next() % 200), &random) {
        if random.next() % 5 == 0 {
          try store.delete(Key(bytes: key))
          model[key] = nil
        } else {
          let value = random.bytes(Int(random.next() % 40))
          // A deadline and other optional fields shift the key within the record.
          let deadline = random.next() % 7 == 0 ? host.time + 1_000_000 : nil
          try store.put(Key(bytes: key), value, expiration: deadline.map { .at($0) })
          model[key] = value
        }
      }
      if round == 2 { try store.compact() }
      let keys = Array(model.keys)
      for _ in 0..<20 {
        let (range, isIn) = try Self.range(keys, &random)
        let expected = keys.filter(isIn).sorted(by: SortedKeyIndexTests.precedes)
          .map { Scanned(key: $0, value: model[$0] ?? []) }
        let limit = random.next() % 2 == 0 ? Int.max : Int(random.next() % 90) + 10
        #expect(try store.scanned(range, limit: limit) == expected, "seed \(seed), round \(round), \(range)")
        #expect(
          try store.scanned(range, reversed: true, limit: limit) == expected.reversed(),
          "seed \(seed), round \(round), \(range)")
        #expect(try store.list(range).map(\.key.bytes) == expected.map(\.key))
        #expect(try store.list(range, reversed: true).map(\.key.bytes) == expected.reversed().map(\.key))
        for key in keys.prefix(20) { #expect(range.contains(Key(unchecked: key)) == isIn(key)) }
      }
      let snapshot = try store.snapshot()
      #expect(try snapshot.count == model.count)
      for key in SortedKeyIndexTests.keys(60, &random) + keys.prefix(60) {
        #expect(try snapshot.get(Key(bytes: key))?.bytes == model[key], "seed \(seed), \(key)")
      }
    }
  }

  @Test("stops when its body asks for it, and resumes after the last key")
  func stops() throws {
    let store = try Store.create(on: SimulatedHost())
    for key in ["a", "b", "c", "d"] as [Key] { try store.put(key, key.description) }
    var seen: [String] = []
    let last = try store.scan { key, value in
      seen.append(String(decoding: [UInt8](copying: value), as: UTF8.self))
      return seen.count < 2 ? .next : .stop
    }
    #expect(last == "b")
    #expect(try store.scan(after: last) { key, _ in seen.append("\([UInt8](copying: key))") } == nil)
    #expect(seen == ["a", "b", "[99]", "[100]"])
    #expect(try store.scan(limit: 0) { _, _ in Issue.record("nothing was asked for") } == nil)
    #expect(try store.scan(limit: 3, { _, _ in }) == "c")
    #expect(try store.scan(reversed: true, limit: 3, { _, _ in }) == "b")
    #expect(try store.scan(after: "d", { _, _ in Issue.record("there is nothing behind it") }) == nil)
    struct Refusal: Error {}
    #expect(throws: Refusal.self) { try store.scan { _, _ in throw Refusal() } }
    #expect(try store.scan(KeyRange(prefix: "x")) { _, _ in Issue.record("no key begins so") } == nil)
  }

  @Test("gives type, deadline and version; evaluates deadlines at its own time; and reads blobs")
  func details() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host)
    let large = [UInt8](repeating: 7, count: 100_000)
    try store.put("json", Array("{}".utf8), type: .json)
    try store.put("large", large)
    try store.put("soon", [1], expiration: .at(host.time + 10))
    var types: [ValueType] = []
    var versions: [Dot] = []
    var deadlines: [UInt64?] = []
    var bytes = 0
    try store.scan { _, value, details in
      types.append(details.type)
      versions.append(details.dot)
      deadlines.append(details.deadline)
      bytes += value.byteCount
    }
    #expect(types == [.json, .bytes, .bytes])
    #expect(deadlines == [nil, nil, host.time + 10])
    #expect(bytes == 2 + 100_000 + 1)
    #expect(try versions == store.list().map(\.dot))
    let snapshot = try store.snapshot()
    host.time += 10
    #expect(try store.list().map(\.key) == ["json", "large"])
    #expect(try snapshot.list().map(\.key) == ["json", "large", "soon"])
    #expect(try snapshot.get("soon")?.bytes == [1])
    #expect(try snapshot.get("large")?.bytes == large)
    #expect(try snapshot.withValue("large") { $0.byteCount } == 100_000)
    #expect(try snapshot.entry("large")?.size == 100_000)
  }

  @Test("lets its body use the store, also to write: those writes are not visible to it")
  func writing() throws {
    let store = try Store.create(on: SimulatedHost(compacting: .byNextWriter), configuration: Self.small)
    for number in 0..<300 { try store.put(Key("\(number)"), "old") }
    var count = 0
    try store.scan { key, value in
      count += 1
      #expect([UInt8](copying: value) == Array("old".utf8))
      try store.put(Key(bytes: [UInt8](copying: key)), [UInt8](repeating: 1, count: 900))
      try store.put(Key("new \(count)"), "x")
    }
    #expect(count == 300)
    #expect(try store.scanned().count == 600)
  }

  @Test("of a key damaged while the store is open never omits it silently (F37)", arguments: 0..<5)
  func damage(bit: Int) throws {
    for number in [0, 150, 299] {
      let host = SimulatedHost(encrypted: false)
      let store = try Store.create(on: host)
      for number in 0..<300 { try store.put(Key("key \(number + 1000)"), "value \(number)") }
      let snapshot = bit % 2 == 0 ? try store.snapshot() : nil
      let text = "key \(number + 1000)"
      let place = try #require(
        try host.storage.open(DamageInUseTests.path, .readOnly).read(1 << 20, at: 0).firstRange(
          of: Array(text.utf8))?.lowerBound)
      try host.storage.flipBit(of: DamageInUseTests.path, at: place + bit, bit: bit)
      #expect(#expect(throws: StoreError.self) { try store.scanned() }?.code == .damaged)
      let key = try Key(text)
      #expect(
        #expect(throws: StoreError.self) { try store.scanned(KeyRange(key...key)) }?.code == .damaged,
        "\(key), bit \(bit)")
      if let snapshot {
        #expect(#expect(throws: StoreError.self) { try snapshot.get(key) }?.code == .damaged)
        // A lookup misled by the damaged key must not report absence.
        for other in stride(from: 0, to: 300, by: 7) where other != number {
          let key = try Key("key \(other + 1000)")
          do { #expect(try snapshot.get(key)?.bytes == Array("value \(other)".utf8)) } catch {
            #expect(error.code == .damaged)
          }
        }
      }
    }
  }

  @Test("fails where a lost record may have been a newer one, until it is repaired (F37)")
  func lost() throws {
    let host = SimulatedHost(encrypted: false)
    let store = try Store.create(on: host)
    try store.put("a", "1")
    try store.put("b", "older")
    try store.put("b", "newer value")
    try store.put("c", "1")
    try store.close()
    let bytes = try host.storage.open(DamageInUseTests.path, .readOnly).read(1 << 20, at: 0)
    let place = try #require(bytes.firstRange(of: Array("newer value".utf8))?.lowerBound)
    try host.storage.flipBit(of: DamageInUseTests.path, at: place, bit: 0)
    // An open from the index learns only that a record is damaged; a replay of the journal also learns its
    // key.
    try OpeningTests.removeIndex(of: host)
    let again = try Store.open(on: host)
    #expect(#expect(throws: StoreError.self) { try again.scanned() }?.code == .damaged)
    #expect(#expect(throws: StoreError.self) { try again.snapshot().get("b") }?.code == .damaged)
    #expect(try again.scanned(KeyRange(..<"b")).map(\.key) == [Array("a".utf8)])
    #expect(try again.snapshot().get("c")?.bytes == Array("1".utf8))
    try again.put("b", "again")
    #expect(try again.scanned().map(\.value) == ["1", "again", "1"].map { Array($0.utf8) })
  }
}
