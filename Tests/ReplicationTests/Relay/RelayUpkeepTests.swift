import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// What a node does with its relays by itself besides reading and publishing: the daily collection.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayUpkeepTests {
  private static let hour: UInt64 = 3_600_000

  /// A policy with a day of 48 milliseconds.
  private let policy: KeepPolicy = {
    var policy = KeepPolicy(retry: 50...200)
    (policy.publishSeconds, policy.pollSeconds, policy.collectMilliseconds) = (1, 1, 48)
    return policy
  }()

  private func node(_ copy: TestCopy, _ fleet: RelayFleet) throws -> Node {
    try Membership(copy.store).add(RelayDescription(name: "stick", location: "dir:" + fleet.place.path))
    return try Node(store: copy.store)
  }

  private func history(_ copy: TestCopy) throws -> RelayHistory {
    try RelayHistories(store: copy.store)["stick"]
  }

  // MARK: Times

  @Test func `the first collection comes within six hours, the others a day apart, an attempt after an hour`()
  {
    let schedule = CollectionSchedule(interval: KeepPolicy().collectMilliseconds)
    let now = 1_700_000_000_000 as UInt64
    for random in [0, 1, 12_345_678_901, UInt64.max] {
      #expect((now + Self.hour...now + 6 * Self.hour).contains(schedule.first(after: now, random: random)))
      #expect(
        (now + 21 * Self.hour...now + 27 * Self.hour).contains(schedule.next(after: now, random: random)))
    }
    #expect(schedule.retry(after: now) == now + Self.hour)
    #expect(schedule.decision(next: nil, at: now) == .choose)
    #expect(schedule.decision(next: now, at: now) == .collect)
    #expect(schedule.decision(next: now - 300 * Self.hour, at: now) == .collect)
    #expect(schedule.decision(next: now + 1, at: now) == .wait)
    #expect(schedule.decision(next: now + 300 * Self.hour, at: now) == .choose, "from a clock that was wrong")
  }

  @Test func `a history is read as it was written, and a newer one as far as it is known`() throws {
    var usage = RelayUsage()
    var figures = ObjectStoreFigures()
    for _ in 0..<300 { figures.count(.get, status: 200, received: 1 << 30) }
    figures.count(.put, status: 200, sent: 5)
    figures.count(.delete, status: 204)
    usage.add(figures, at: 9)
    for history in [
      RelayHistory(), RelayHistory(lastCollection: 1, nextCollection: 2),
      RelayHistory(lastCollection: nil, nextCollection: .max),
      RelayHistory(lastCollection: 3, nextCollection: 4, usage: usage),
    ] {
      #expect(try RelayHistory(bytes: history.bytes) == history)
      #expect(try RelayHistory(bytes: history.bytes + [1, 2, 3]) == history)
      #expect(throws: DecodingFailure.self) { try RelayHistory(bytes: history.bytes.dropLast()) }
    }
    #expect(throws: DecodingFailure.self) { try RelayHistory(bytes: [2] + RelayHistory().bytes.dropFirst()) }
  }

  // MARK: Nodes

  @Test func `a node deletes what no member needs any more, and says when`() async throws {
    let fleet = try await RelayFleet()
    let node = try node(fleet.first, fleet)
    // A run comes with three entries of this size, a checkpoint with more than 1 MiB.
    for number in 0..<45 {
      for key in 0..<30 {
        try fleet.first.store.put(Key("key/\(key)"), noise(900, seed: UInt64(number * 30 + key)))
      }
      _ = try await fleet.client(fleet.first).push()
    }
    _ = try await fleet.client(fleet.second).sync()
    let dry = try await fleet.client(fleet.first).collect(isDryRun: true)
    try #require(dry.collectedObjects > 0)
    #expect(try history(fleet.first) == RelayHistory())
    node.keepInStep(policy)
    try await until { node.state[relay: "stick"]?.collections.last != nil }
    let state = try #require(node.state[relay: "stick"])
    #expect(
      state.collections.objects >= dry.collectedObjects && state.collections.bytes >= dry.collectedBytes)
    #expect(state.collections.failures == 0 && state.lastError == nil)
    await node.stop()
    // A later node knows of it, also with a day of the usual length.
    #expect(try history(fleet.first).lastCollection != nil)
    let next = try Node(store: fleet.first.store)
    var patient = policy
    patient.collectMilliseconds = KeepPolicy().collectMilliseconds
    next.keepInStep(patient)
    try await until { next.state[relay: "stick"]?.collections.last != nil }
    await next.stop()
    _ = try await fleet.carry(fleet.first, fleet.second)
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test func `a copy that may not write deletes nothing`() async throws {
    let fleet = try await RelayFleet()
    let node = try node(fleet.second, fleet)
    #expect(try Membership(fleet.first.store).setRight(.readOnly, of: "second"))
    _ = try await fleet.carry(fleet.first, fleet.second)
    node.keepInStep(policy)
    try await until { node.state[relay: "stick"]?.lastSuccess != nil }
    let looks = node.state[relay: "stick"]?.figures[.get] ?? 0
    try await until { (node.state[relay: "stick"]?.figures[.get] ?? 0) > looks + 2 }
    #expect(node.state[relay: "stick"]?.collections.last == nil)
    let history = try history(fleet.second)
    #expect(history.lastCollection == nil && history.nextCollection == nil)
    await node.stop()
  }

  @Test func `a collection that fails is counted, tried again, and holds nothing up`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    _ = try await fleet.client(fleet.first).push()
    let node = try Node(
      store: fleet.first.store, configuration: configuration(withoutClock: fleet.place.path))
    try Membership(fleet.first.store).add(
      RelayDescription(name: "stick", location: "dir:" + fleet.place.path))
    node.keepInStep(policy)
    try await until { (node.state[relay: "stick"]?.collections.failures ?? 0) >= 2 }
    let state = try #require(node.state[relay: "stick"])
    #expect(state.lastError == nil && state.lastSuccess != nil && state.collections.last == nil)
    await node.stop()
  }

  @Test func `what a member deletes by hand delays the next time, and a relay that is forgotten has none`()
    async throws
  {
    let fleet = try await RelayFleet()
    let node = try node(fleet.first, fleet)
    _ = try await node.collect(relay: "stick", isDryRun: true)
    #expect(try history(fleet.first).lastCollection == nil && history(fleet.first).nextCollection == nil)
    _ = try await node.collect(relay: "stick")
    let history = try history(fleet.first)
    let (last, next) = (try #require(history.lastCollection), try #require(history.nextCollection))
    #expect(next > last)
    #expect(try Membership(fleet.first.store).remove(relay: "stick"))
    #expect(try self.history(fleet.first) == RelayHistory())
  }

  @Test func `requests are counted over processes, and those that fail count, too`() async throws {
    let fleet = try await RelayFleet()
    let node = try node(fleet.first, fleet)
    try fleet.first.put("a", "one")
    _ = try await node.synchronize(with: "stick")
    let first = try history(fleet.first).usage
    #expect(first.since != nil && first.writes >= 2 && first.reads >= 1 && first.sentBytes > 0)
    let later = try Node(store: fleet.first.store)
    _ = try await later.synchronize(with: "stick")
    let second = try history(fleet.first).usage
    #expect(second.since == first.since && second.reads > first.reads)
    #expect(try await later.status(ofRelay: "stick").usage == second, "a look counts nothing durably")
    later.keepInStep(policy)
    try await until { (later.state[relay: "stick"]?.billing.usage.reads ?? 0) > second.reads }
    await later.stop()
    let third = try history(fleet.first).usage
    #expect(third.reads > second.reads && third.since == first.since)
    #expect(try Membership(fleet.first.store).remove(relay: "stick"))
  }

  /// A configuration whose relays do not state the time.
  private func configuration(withoutClock path: String) -> Node.Configuration {
    var configuration = Node.Configuration()
    configuration.opensRelay = { _ throws(ReplicationError) in
      do throws(ObjectStoreError) { return Timeless(objects: try DirectoryStore(at: path)) } catch {
        throw ReplicationError(.network, error.message)
      }
    }
    return configuration
  }
}

/// Objects of a store that does not state the time.
private struct Timeless: ForwardingObjectStore {
  let objects: DirectoryStore
  var clock: UInt64? { nil }
}
