import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Relays used through `Node`: named like peers, and kept in step.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayNodeTests {
  private let policy: KeepPolicy = {
    var policy = KeepPolicy(retry: 50...200)
    (policy.publishSeconds, policy.pollSeconds) = (1, 1)
    return policy
  }()

  private func name(_ fleet: RelayFleet, on copies: [TestCopy]) throws {
    for copy in copies {
      try Membership(copy.store).add(
        RelayDescription(name: "stick", location: "dir:" + fleet.place.path))
    }
  }

  private func node(_ copy: TestCopy) throws -> Node { try Node(store: copy.store) }

  @Test func `a relay is synchronized by its name, and the report says what became of it`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first, fleet.second])
    try fleet.first.put("a", "one")
    let sent = try await node(fleet.first).synchronize(with: "stick", direction: .push)
    #expect(sent.peer == "stick" && sent.sentRecords == 1 && sent.relay?.position == sent.position)
    let read = try await node(fleet.second).synchronize(with: "stick", direction: .pull)
    #expect(read.receivedRecords == 1 && read.digest == sent.digest)
    #expect(try fleet.second.get("a") == "one")
  }

  @Test func `nodes that never meet stay in step through a relay`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first, fleet.second])
    let (first, second) = (try node(fleet.first), try node(fleet.second))
    first.keepInStep(policy)
    second.keepInStep(policy)
    try fleet.first.put("a", "one")
    try await until { try fleet.second.get("a") == "one" }
    try fleet.second.put("b", "two")
    try await until { try fleet.first.get("b") == "two" }
    let state = try #require(first.state[relay: "stick"])
    #expect(state.lastError == nil && state.sentRecords >= 1 && state.figures.total > 0)
    await first.stop()
    await second.stop()
    #expect(first.state.relays.isEmpty)
  }

  @Test func `a relay that is not there is tried again until it is`() async throws {
    let fleet = try await RelayFleet()
    let path = fleet.place.path + "/later"
    try Membership(fleet.first.store).add(RelayDescription(name: "stick", location: "dir:" + path))
    try fleet.first.put("a", "one")
    let node = try node(fleet.first)
    node.keepInStep(policy)
    try await until { node.state[relay: "stick"]?.lastError?.code == .network }
    _ = try DiskStorage().createDirectory(path)
    try await until {
      node.state[relay: "stick"]?.lastError == nil && node.state[relay: "stick"]?.sentRecords == 1
    }
    await node.stop()
  }

  @Test func `a relay that is gone is not reached again by a publication of nothing`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first])
    let log = TestLog()
    let node = try Node(
      store: fleet.first.store, configuration: Node.Configuration(log: { log.add($0, $1) }))
    node.keepInStep(policy)
    try await until { node.state[relay: "stick"]?.lastSuccess != nil }
    try DiskStorage().removeTree(fleet.place.path)
    try await until { (node.state[relay: "stick"]?.failures ?? 0) > 0 }
    // The journal grows, so that the keeper wakes, and there is nothing to publish.
    for number in 0..<200 {
      try fleet.first.store.setLocal(Array("test".utf8), Array("\(number)".utf8))
      try await Task.sleep(for: .milliseconds(10))
    }
    try await until { (node.state[relay: "stick"]?.failures ?? 0) > 3 }
    #expect(log.lines.filter { $0.contains("reached again") } == [])
    await node.stop()
  }

  @Test func `a quiet relay costs no writes`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first])
    try fleet.first.put("a", "one")
    let node = try node(fleet.first)
    node.keepInStep(policy)
    try await until { node.state[relay: "stick"]?.sentRecords == 1 }
    // The first looks note what they have read.
    try await until {
      let (position, before) = (fleet.first.store.journalPosition, node.state[relay: "stick"]?.figures)
      try await until { (node.state[relay: "stick"]?.figures[.get] ?? 0) >= (before?[.get] ?? 0) + 3 }
      let after = node.state[relay: "stick"]?.figures
      return fleet.first.store.journalPosition == position && after?[.put] == before?[.put]
    }
    await node.stop()
  }

  @Test func `a look follows a change of the directory at once, long before it is due`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first])
    var patient = policy
    patient.pollSeconds = 3600
    let node = try node(fleet.first)
    node.keepInStep(patient)
    try await until { node.state[relay: "stick"]?.lastSuccess != nil }
    try fleet.second.put("a", "one")
    _ = try await fleet.client(fleet.second).push()
    try await until { try fleet.first.get("a") == "one" }
    await node.stop()
  }

  @Test func `names of relays, peers and members are kept apart`() async throws {
    let fleet = try await RelayFleet()
    let membership = Membership(fleet.first.store)
    try name(fleet, on: [fleet.first])
    #expect(throws: ReplicationError.self) {
      try membership.add(Peer(name: "stick", addresses: ["127.0.0.1:1"]))
    }
    #expect(throws: ReplicationError.self) {
      try membership.add(RelayDescription(name: "second", location: "dir:/tmp"))
    }
    #expect(try membership.remove(relay: "stick") && !membership.remove(relay: "stick"))
    #expect(try membership.relays().isEmpty)
  }

  @Test(arguments: ["", "dir:", "dir:relative", "s3:bucket", "s3://", "s3:///prefix", "host:22", "dir:/a\0b"])
  func `a location that is none is refused`(location: String) {
    #expect(throws: ReplicationError.self) { try RelayDescription(name: "stick", location: location) }
  }

  @Test func `the status of a relay tells who has read what`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first, fleet.second])
    let (first, second) = (try node(fleet.first), try node(fleet.second))
    #expect(try await first.status(ofRelay: "stick").relay == nil)
    try fleet.first.put("a", "one")
    _ = try await first.synchronize(with: "stick")
    var status = try await first.status(ofRelay: "stick")
    func other() throws -> RelayStatus.Member { try #require(status.members.first { !$0.isSelf }) }
    #expect(try !other().hasAll && other().news == nil && !status.hasUnpublished)
    _ = try await second.synchronize(with: "stick")
    status = try await first.status(ofRelay: "stick")
    #expect(try other().hasAll && other().news != nil)
    #expect(status.heads.count == 4 && status.foreign.count == 0)
    try fleet.first.put("b", "two")
    #expect(try await first.status(ofRelay: "stick").hasUnpublished)
    let error = await #expect(throws: ReplicationError.self) { try await first.status(ofRelay: "other") }
    #expect(error?.code == .notAMember)
  }

  @Test func `a check tries every right and leaves nothing`() async throws {
    let fleet = try await RelayFleet()
    try name(fleet, on: [fleet.first])
    let checks = try await node(fleet.first).check(relay: "stick")
    #expect(checks.count == RelayCheck.Subject.allCases.count)
    #expect(Set(checks.map(\.subject)) == Set(RelayCheck.Subject.allCases))
    #expect(checks.filter { !$0.works } == [])
    #expect(try await fleet.objects("").isEmpty)
  }
}
