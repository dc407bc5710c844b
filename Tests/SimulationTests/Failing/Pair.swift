import Replication
import SyncStore
import SyncTestSupport

/// Two machines with a history, all durable, prepared so that the next session has much to do.
struct Pair {
  /// The kind of session.
  enum Story: String, CaseIterable {
    /// Values, deletes, transactions and large values travel both ways; some are concurrent, and one side
    /// loses.
    case increment
    /// The second machine does not cover deletes that the first one purged: it receives full state, drops
    /// dead records and reissues its unknown ones.
    case fullState
    /// The second machine was rolled back in place and reuses dots.
    case putBack
  }

  /// The machines, without open stores.
  let hosts: [SimulatedHost]
  var oracle = Oracle()
  var promised: [ActorID: UInt64] = [:]

  static let configuration = Configuration(blobThreshold: 2048, segmentBytes: 64 << 10)
  private static let keys = 10

  init(_ story: Story) throws {
    hosts = (0..<2).map { SimulatedHost(seed: UInt64($0), machine: "machine \($0)") }
    let first = try Store.create(on: hosts[0], configuration: Self.configuration)
    let second = try Store.create(on: hosts[1], id: first.id, configuration: Self.configuration)
    let ring = GroupKeyRing(key: [UInt8](repeating: 7, count: GroupKeyRing.keyBytes))
    for store in [first, second] { try StoreKeys(store).replaceGroupKeys(with: ring) }
    var stores = [first, second]
    for number in 0..<Self.keys { try put(stores[number % 2], number, number % 4 == 3 ? 5000 : 20) }
    try Self.meet(stores)
    pass()
    switch story {
    case .increment: break
    case .fullState:
      for number in [0, 1, 3] { try delete(first, number) }
      try first.acknowledge(as: Simulation.device(0))
      guard try first.purge() > 0 else { throw Oracle.Violation("nothing was purged") }
    case .putBack:
      let image = try hosts[1].storage.files(below: "/store")
      for number in 0..<3 { try put(second, number, 30) }
      try Self.meet(stores)
      stores[1] = try putBack(image)
      pass()
    }
    for number in 2..<6 { try put(stores[0], number, 4000 * (number % 2) + 25) }
    for number in 4..<9 { try put(stores[1], number, 3500 * (number % 2) + 22) }
    try transact(stores[1], [7, 8, 9])
    try delete(stores[1], 5)
    try delete(stores[0], 9)
    pass()
    for store in stores {
      try store.sync()
      let actor = try store.actor
      promised[actor] = try store.versionVector()[actor]
      try store.close()
    }
    for host in hosts { host.killProcesses() }
  }

  private func pass() { for host in hosts { host.time += 10_000 } }

  /// Rolls the second machine back under the same inodes: no check at opening can detect it.
  private mutating func putBack(_ image: [String: [UInt8]]) throws -> Store {
    let host = hosts[1]
    host.killProcesses()
    for path in try host.storage.files(below: "/store").keys.sorted() where image[path] == nil {
      _ = try host.storage.remove(path)
    }
    try host.storage.restore(image)
    let store = try Store.open(on: host, configuration: Self.configuration)
    let actor = try store.actor
    oracle.doubt(actor, above: try store.versionVector()[actor])
    return store
  }

  // MARK: Events reported to the oracle

  private var written = 0

  private static func key(_ number: Int) throws -> Key { try Key("key/\(number)") }

  private mutating func bytes(_ size: Int) -> [UInt8] {
    written += 1
    return Array("\(written)/".utf8) + [UInt8](repeating: UInt8(written), count: size)
  }

  private mutating func put(_ store: Store, _ number: Int, _ size: Int) throws {
    let (key, bytes) = (try Self.key(number), bytes(size))
    let content = Oracle.Content(bytes: bytes)
    oracle.ask(key, content)
    try store.put(key, bytes, durability: .full)
    try confirm(store, [Oracle.Asked(key: key, content: content)])
  }

  private mutating func delete(_ store: Store, _ number: Int) throws {
    let key = try Self.key(number)
    oracle.ask(key, .deleted)
    guard try store.delete(key, durability: .full) else { throw Oracle.Violation("\(key) was there") }
    try confirm(store, [Oracle.Asked(key: key, content: .deleted)])
  }

  private mutating func transact(_ store: Store, _ numbers: [Int]) throws {
    let asked = try numbers.map {
      Oracle.Asked(key: try Self.key($0), content: Oracle.Content(bytes: bytes(15)))
    }
    let number = oracle.ask(together: asked)
    try store.transaction(durability: .full) { transaction in
      for item in asked { try transaction.put(item.key, item.content.bytes ?? []) }
    }
    oracle.join(all: try confirm(store, asked), to: number)
  }

  @discardableResult
  private mutating func confirm(_ store: Store, _ asked: [Oracle.Asked]) throws -> [Dot] {
    let last = try store.log(from: 1, limit: .max).suffix(asked.count)
    return try oracle.see(Array(last), at: "set-up", for: asked, by: try store.actor)
  }

  // MARK: Sessions

  /// Runs sessions until one completes, each followed by a node's usual work. Failures are ignored. Returns
  /// whether the copies have converged.
  @discardableResult
  static func meet(_ stores: [Store], seed: UInt64 = 1, sessions: Int = 8) throws -> Bool {
    var random = SplitMix64(seed: seed)
    for _ in 0..<sessions {
      let one = SessionSide(.client(.sync), stores[0], peerName: "machine 1", capabilities: .chunks)
      let other = SessionSide(.server, stores[1], peerName: "machine 0", capabilities: .chunks)
      try SessionPair.run(one, other, &random)
      if case .done = one.outcome, case .done = other.outcome, try areInStep(stores) { return true }
    }
    return false
  }

  private static func areInStep(_ stores: [Store]) throws -> Bool {
    try Oracle.Coverage(stores[0].versionVector()) == Oracle.Coverage(stores[1].versionVector())
      && stores.allSatisfy { try $0.missingBlobs().isEmpty }
  }
}
