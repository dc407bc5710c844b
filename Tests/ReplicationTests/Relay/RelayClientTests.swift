import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Members that exchange what they write through a directory, and never meet.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayClientTests {
  @Test func `a write reaches the other copy through the directory, and a delete as well`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    let report = try await fleet.carry(fleet.first, fleet.second)
    #expect(try fleet.second.get("a") == "one")
    #expect(report.waitingEntries == 0 && report.setAside.isEmpty)
    try fleet.second.put("b", "two")
    try fleet.second.store.delete("a")
    _ = try await fleet.carry(fleet.second, fleet.first)
    #expect(try fleet.first.get("a") == nil)
    #expect(try fleet.first.get("b") == "two")
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test func `nothing new costs one conditional request, and is not published`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    _ = try await fleet.carry(fleet.first, fleet.second)
    let (first, second) = (try fleet.client(fleet.first), try fleet.client(fleet.second))
    _ = try await second.pull()
    let idle = try await second.pull()
    #expect(idle.figures.requests == [.init(.get, status: 304): 1])
    _ = try await first.push()
    #expect(try await first.push().figures[.put] == 0)
    try fleet.first.put("b", "two")
    #expect(try await first.push().figures[.put] == 2, "the head with the entry, and the bell")
  }

  @Test func `many records go to parts, and the first entry is a checkpoint as well`() async throws {
    let fleet = try await RelayFleet()
    for number in 0..<3000 { try fleet.first.put("key/\(number)", String(repeating: "v", count: 100)) }
    let report = try await fleet.client(fleet.first).push()
    #expect(report.sentRecords == 3000 && report.checkpoints == 1)
    #expect(try await fleet.objects("e/").count == 1)
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.receivedRecords == 3000)
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test func `many small entries become runs, which a late reader reads`() async throws {
    let fleet = try await RelayFleet()
    let client = try fleet.client(fleet.first)
    for number in 0..<80 {
      try fleet.first.put("key", String(repeating: "\(number % 10)", count: 950))
      try fleet.first.put("key/\(number)", String(number))
      _ = try await client.push()
    }
    #expect(try await !fleet.objects("e/").isEmpty)
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.waitingEntries == 0)
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test(
    "a copy that died after its head was written takes the entry as its own, also if the head came late",
    arguments: [false, true])
  func ownEntry(isLate: Bool) async throws {
    let fleet = try await RelayFleet()
    let client = try fleet.client(fleet.first)
    try fleet.first.put("a", "one")
    _ = try await client.push()
    let relay = try #require(try fleet.first.store.knownRelays().first)
    let known = try fleet.first.store.relayProgress(relay)
    let last = try #require(known.last)
    let actor = try fleet.first.store.relayReplica().actor
    // As if the record of the publication had been lost.
    try fleet.first.store.updateRelay(relay, as: actor, isDurable: true) { progress in
      progress = Self.unpublished(progress)
      progress.begin(last.mark)
      // Another attempt was begun before the head of the first one arrived.
      if isLate { progress.begin(fleet.first.store.environment.newMark(mixing: [])) }
    }
    _ = try await fleet.client(fleet.first).push()
    #expect(try fleet.first.store.relayProgress(relay).last == last)
    #expect(try fleet.first.store.relayReplica().actor == actor)
  }

  /// The progress before the first entry of the own stream.
  private static func unpublished(_ progress: RelayProgress) -> RelayProgress {
    var earlier = RelayProgress()
    (earlier.stream, earlier.ownStreams, earlier.seen) = (progress.stream, progress.ownStreams, progress.seen)
    return earlier
  }

  @Test func `a stream with entries that this copy did not write makes it another actor`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    _ = try await fleet.client(fleet.first).push()
    let relay = try #require(try fleet.first.store.knownRelays().first)
    let actor = try fleet.first.store.relayReplica().actor
    try fleet.first.store.updateRelay(relay, as: actor, isDurable: true) { progress in
      progress = Self.unpublished(progress)
    }
    try fleet.first.put("b", "two")
    // In doubt about its writes from then on, so it publishes nothing before it has read a full state.
    await #expect(throws: ReplicationError.self) { try await fleet.client(fleet.first).push() }
    #expect(try fleet.first.store.relayReplica().actor != actor)
    #expect(try fleet.first.get("b") == "two")
  }

  @Test func `a relay that was put back is filled again, and nothing is lost`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    _ = try await fleet.client(fleet.first).push()
    let objects = try DirectoryStore(at: fleet.place.path)
    var earlier: [(String, [UInt8])] = []
    for name in try await fleet.objects("") {
      if case .found(let content) = try await objects.get(name) { earlier.append((name, content.bytes)) }
    }
    try fleet.first.put("b", "two")
    _ = try await fleet.carry(fleet.first, fleet.second)
    for (name, bytes) in earlier { _ = try await objects.put(name, bytes, if: .always) }
    try fleet.second.put("c", "three")
    _ = try await fleet.client(fleet.second).sync()
    _ = try await fleet.client(fleet.first).sync()
    _ = try await fleet.client(fleet.second).sync()
    _ = try await fleet.client(fleet.first).sync()
    for copy in [fleet.first, fleet.second] {
      #expect(try copy.get("a") == "one" && copy.get("b") == "two" && copy.get("c") == "three")
    }
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test(arguments: ["missing", "cut", "changed", "swapped"])
  func `an object that cannot be used is set aside, and what it held comes later`(fault: String) async throws
  {
    let fleet = try await RelayFleet()
    for number in 0..<3000 { try fleet.first.put("key/\(number)", String(repeating: "v", count: 100)) }
    _ = try await fleet.client(fleet.first).push()
    let objects = try DirectoryStore(at: fleet.place.path)
    let name = try #require(try await fleet.objects("e/").first)
    guard case .found(let content) = try await objects.get(name) else { return }
    try await fleet.damage(name, content.bytes, by: fault)
    let read = try await fleet.client(fleet.second).pull()
    #expect(read.setAside.contains { $0.object == name } && read.waitingEntries == 1)
    #expect(try fleet.second.get("key/1") == nil)
    _ = try await objects.put(name, content.bytes, if: .always)
    #expect(try await fleet.client(fleet.second).pull().waitingEntries == 0)
    #expect(try fleet.first.digest() == fleet.second.digest())
  }

  @Test func `a head that a member without the right has signed brings nothing`() async throws {
    let fleet = try await RelayFleet()
    try Membership(fleet.second.store).setRight(.readOnly, of: "first")
    try fleet.first.put("a", "one")
    let read = try await fleet.carry(fleet.first, fleet.second)
    #expect(read.entries == 0)
    #expect(try fleet.second.get("a") == nil)
  }

  @Test func `the relay of another store is refused`() async throws {
    let fleet = try await RelayFleet()
    try fleet.first.put("a", "one")
    _ = try await fleet.client(fleet.first).push()
    let other = try TestCopy.first()
    let error = await #expect(throws: ReplicationError.self) { try await fleet.client(other).push() }
    #expect(error?.code == .otherStore)
  }

  @Test func `a directory that is gone is no empty relay`() async throws {
    let place = TemporaryDirectory()
    #expect(throws: ObjectStoreError.self) { try DirectoryStore(at: place.path + "/none") }
    let objects = try DirectoryStore(at: place.path)
    try DiskStorage().removeTree(place.path)
    let error = await #expect(throws: ObjectStoreError.self) { try await objects.get("format") }
    #expect(error?.code == .missing)
  }
}
