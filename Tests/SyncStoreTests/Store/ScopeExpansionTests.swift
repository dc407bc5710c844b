import SyncTestSupport
import Testing

@testable import SyncStore

/// A selective copy expands its scope in parts, while early records are deleted and purged elsewhere.
@Suite("A partial copy that expands its scope")
struct ScopeExpansionTests {
  private let hosts = (0..<3).map { SimulatedHost(seed: UInt64($0 + 1), machine: "machine \($0)") }
  private let devices = (0..<3).map { DeviceID(bytes: [UInt8](repeating: UInt8($0 + 1), count: 32))! }

  /// A round of the receiver's missing keys; the connection breaks after that many batches of one record.
  private func passLacking(from sender: Store, to receiver: Store, batches: Int? = nil) throws {
    let expansion = try #require(try receiver.replicaSummary().scopeExpansion)
    try receiver.receive(
      from: sender, expansion: expansion.next(from: try sender.replicaSummary()), batches: batches,
      maximumBytes: 1)
  }

  @Test(
    "keeps no gaps when another session discards what the first one brought",
    arguments: [false, true])
  func twoAtOnce(isResumed: Bool) throws {
    for host in hosts { host.time += 1000 }
    let first = try Store.create(on: hosts[0])
    let stores = [first] + (try hosts[1...].map { try Store.create(on: $0, id: first.id) })
    let (other, some) = (stores[1], stores[2])
    try some.narrow(to: KeyScope(prefixes: ["a/"]))
    for number in 0..<4 { try first.put(Key("b/\(number)"), [UInt8(number)]) }
    try other.receive(from: first)
    // Marks that differ.
    try other.put("a/other", "x")
    for one in [first, other] { try some.receive(from: one) }
    try some.widen(to: KeyScope(prefixes: ["a/", "b/"]))
    if isResumed { try passLacking(from: first, to: some, batches: 1) }
    let expansion = try #require(try some.replicaSummary().scopeExpansion).next(
      from: try first.replicaSummary())
    #expect(throws: StoreError.self) {
      try some.receive(from: first, expansion: expansion, maximumBytes: 1) {
        try? passLacking(from: other, to: some, batches: 1)
      }
    }
    #expect(try some.isWidening)
    try first.receive(from: other)
    try some.receive(from: first)
    try passLacking(from: first, to: some)
    #expect(try !some.isWidening && some.list(prefix: Array("b/".utf8)).count == 4)
  }

  /// Two full copies that know nothing of each other, and a copy of the keys under a/ that knows neither.
  private func strangers() throws -> (first: Store, other: Store, some: Store) {
    for host in hosts { host.time += 1000 }
    let first = try Store.create(on: hosts[0])
    let stores = try hosts[1...].map { try Store.create(on: $0, id: first.id) }
    try stores[1].narrow(to: KeyScope(prefixes: ["a/"]))
    return (first, stores[0], stores[1])
  }

  /// The copy expands to the keys under b/, as held by the sender.
  private func widen(_ some: Store, from sender: Store) throws {
    try some.widen(to: KeyScope(prefixes: ["a/", "b/"]))
    try passLacking(from: sender, to: some)
    let isWidening = try some.isWidening
    try #require(!isWidening)
  }

  /// As above in the middle of another copy's round, which then fails.
  private func widen(_ some: Store, from sender: Store, within other: Store, maximumBytes: Int) {
    var isWider = false
    let error = #expect(throws: StoreError.self) {
      try some.receive(from: other, maximumBytes: maximumBytes) {
        isWider = (try? widen(some, from: sender)) != nil
      }
    }
    #expect(isWider && error?.code == .overtaken)
  }

  @Test("asks one sender again for keys before its cursor after another one completed the expansion")
  func openCursor() throws {
    let (first, other, some) = try strangers()
    for key in ["b/1", "a/1", "a/2"] as [Key] { try first.put(key, "1") }
    try some.receive(from: first, batches: 1, maximumBytes: 1)
    try other.put("a/x", "2")
    try widen(some, from: other)
    try some.receive(from: first)
    #expect(try some.list().map(\.key) == ["a/1", "a/2", "b/1"])
  }

  @Test("asks again, too, if the round was closed without taking over the sender's coverage")
  func closedCursor() throws {
    let (first, other, some) = try strangers()
    let host = SimulatedHost(seed: 9, machine: "another machine")
    host.time = hosts[0].time
    let narrow = try Store.create(on: host, id: first.id)
    try narrow.narrow(to: KeyScope(prefixes: ["a/", "b/"]))
    try first.put("a/1", "1")
    try narrow.receive(from: first)
    for key in ["b/1", "a/2"] as [Key] { try narrow.put(key, "2") }
    try some.receive(from: narrow)
    try widen(some, from: other)
    try some.receive(from: first)
    try some.receive(from: narrow)
    #expect(try some.list().map(\.key) == ["a/1", "a/2", "b/1"])
  }

  @Test("applies nothing more of a round begun for fewer keys")
  func oldRound() throws {
    let (first, other, some) = try strangers()
    for key in ["b/1", "a/1", "a/2"] as [Key] { try first.put(key, "1") }
    widen(some, from: other, within: first, maximumBytes: 1)
    #expect(try some.list().map(\.key) == ["a/1"])
    try some.receive(from: first)
    #expect(try some.list().map(\.key) == ["a/1", "a/2", "b/1"])
  }

  @Test(
    "keeps new keys though a full state begun without them is closed",
    arguments: [1, 1 << 20])
  func oldFullState(maximumBytes: Int) throws {
    let (first, other, some) = try strangers()
    for key in ["b/1", "a/1", "a/2", "a/dead"] as [Key] { try first.put(key, "1") }
    try other.receive(from: first)
    try first.delete("a/dead")
    for host in hosts { host.time += Limits.retirementMilliseconds + 1000 }
    try first.acknowledge(as: devices[0])
    let purged = try first.purge()
    try #require(purged == 1)
    widen(some, from: other, within: first, maximumBytes: maximumBytes)
    #expect(try some.get("b/1") != nil)
    for _ in 0..<2 { try some.receive(from: first) }
    #expect(try some.list().map(\.key) == ["a/1", "a/2", "b/1"])
  }

  @Test("has one expanding session at a time, and another once that is gone")
  func oneAtATime() throws {
    final class Session: Sendable {}
    let store = try Store.create(on: hosts[0])
    var first: Session? = Session()
    let second = Session()
    try first.map { try store.claimScopeExpansion(for: $0) }
    try first.map { try store.claimScopeExpansion(for: $0) }
    #expect(#expect(throws: StoreError.self) { try store.claimScopeExpansion(for: second) }?.code == .busy)
    first = nil
    try store.claimScopeExpansion(for: second)
    store.endScopeExpansion()
    try store.claimScopeExpansion(for: Session())
  }

  @Test("discards the keys of one sender when it asks another, which may have purged their tombstones")
  func parts() throws {
    for host in hosts { host.time += 1000 }
    let first = try Store.create(on: hosts[0])
    let stores = [first] + (try hosts[1...].map { try Store.create(on: $0, id: first.id) })
    let (other, some) = (stores[1], stores[2])
    try some.narrow(to: KeyScope(prefixes: ["a/"]))
    try first.put("a/1", [1])
    for number in 0..<4 { try first.put(Key("b/\(number)"), [UInt8(number)]) }
    func meet() throws {
      for host in hosts { host.time += 1000 }
      for (store, device) in zip(stores, devices) { try store.acknowledge(as: device) }
      for _ in 0..<2 {
        for (one, two) in [(first, other), (first, some), (other, some)] {
          try two.receive(from: one)
          try one.receive(from: two)
        }
      }
    }
    try meet()
    try some.widen(to: nil)
    try passLacking(from: first, to: some, batches: 2)
    let came = try some.list(prefix: Array("b/".utf8)).map(\.key)
    let isWidening = try some.isWidening
    try #require(came.count == 2 && isWidening)
    try first.delete(came[0])
    for _ in 0..<3 { try meet() }
    #expect(try some.get(came[0]) != nil, "it does not hold that key yet")
    for store in [first, other] { try #require(try store.purge() > 0) }
    try passLacking(from: other, to: some)
    try meet()
    #expect(try !some.isWidening && some.scope == nil)
    #expect(try some.get(came[0]) == nil, "deleted, and the delete purged")
    let keys = try first.list().map(\.key)
    for store in stores {
      #expect(try store.list().map(\.key) == keys)
      #expect(try store.digest() == first.digest())
    }
  }
}
