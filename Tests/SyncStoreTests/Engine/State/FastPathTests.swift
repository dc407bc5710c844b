import SyncTestSupport
import Testing

@testable import SyncStore

/// Ordinary puts take the fast path, which encodes the record in place; all others go through
/// `TransactionBuilder` and `commit`. Both must behave alike.
@Suite("The fast path of a put")
struct FastPathTests {
  static let configuration = Configuration(
    mode: .shared, durability: .relaxed, blobThreshold: 4 << 10, segmentBytes: 1 << 20)

  let path = "/store"

  /// A copy that takes the fast path, or never does.
  func store(_ seed: UInt64, _ id: StoreID, takesShortWay: Bool) throws -> (SimulatedHost, Store) {
    let host = SimulatedHost(seed: seed)
    let store = try Store.create(on: host, id: id, configuration: Self.configuration)
    store.core.engine.withLock { $0.fastPath.isOn = takesShortWay }
    return (host, store)
  }

  /// A random operation, determined by the generator.
  func step(_ store: Store, _ host: SimulatedHost, _ peer: Store, _ random: inout SplitMix64) throws {
    let key = try Key("key \(random.next() % 40)")
    let value = random.bytes(Int(random.next() % (random.chance(5) ? 4097 : 200)))
    let deadline = random.chance(20) ? host.time + random.next() % 50 : nil
    switch random.next() % 20 {
    case 0: _ = try store.delete(key)
    case 1:
      try store.transaction { transaction in
        for number in 0..<3 { try transaction.put(Key("\(key) \(number)"), value) }
        _ = try transaction.delete(key)
        try transaction.put(key, value, expiration: deadline.map { .at($0) })
      }
    case 2: try store.receive(from: peer)
    case 3: _ = try store.digest()
    case 4: try store.sync()
    // The clock may also be set back.
    case 5: host.time = host.time + 40 - random.next() % 60
    default:
      try store.put(
        key, value, type: ValueType(rawValue: UInt8(random.next() % 7)), expiration: deadline.map { .at($0) })
    }
  }

  func journal(_ host: SimulatedHost) throws -> [[UInt8]] {
    let directory = path + "/" + StoreLayout.journal
    return try host.storage.list(directory).filter { $0.hasSuffix(".segment") }.map { name in
      let file = try host.storage.open(directory + "/" + name, .readOnly)
      return try file.read(file.status().size, at: 0)
    }
  }

  @Test("writes the same bytes as the general path, and leaves the same state", arguments: 0..<8)
  func sameBytes(seed: UInt64) throws {
    let peerHost = SimulatedHost(seed: 99, machine: "peer")
    let peer = try Store.create(on: peerHost)
    let (shortHost, short) = try store(seed, peer.id, takesShortWay: true)
    let (longHost, long) = try store(seed, peer.id, takesShortWay: false)
    var (random, other) = (SplitMix64(seed: seed), SplitMix64(seed: seed))
    for number in 0..<(seed == 0 ? 4000 : 500) {
      if number % 50 == 0 {
        // Some records are ahead of the copies' clocks, and are parked.
        if number % 100 == 0 { peerHost.time += 30_000 }
        for key in 0..<5 { try peer.put(Key("key \(number % 40 + key)"), "peer \(number)") }
      }
      try step(short, shortHost, peer, &random)
      try step(long, longHost, peer, &other)
      guard short.control.tail == long.control.tail else {
        Issue.record("seed \(seed): step \(number) ended elsewhere")
        return
      }
    }
    #expect(try journal(shortHost) == journal(longHost), "seed \(seed)")
    #expect(try short.digest() == long.digest())
    #expect(try short.status() == long.status())
    #expect(try short.versionVector() == long.versionVector())
    // The state built while writing equals that of the journal.
    let again = try Store.open(
      at: path, configuration: shortHost.configured(Self.configuration), environment: shortHost.otherProcess)
    #expect(try again.digest() == short.digest())
    #expect(try again.status() == short.status())
    #expect(try again.versionVector() == short.versionVector())
    #expect(try again.list() == short.list())
    #expect(try again.verify().isClean)
  }
}
