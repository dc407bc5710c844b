import Foundation
import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// Large values held by other members, over real connections.
@Suite("The blob tier between nodes", .timeLimit(.minutes(Patience.minutes(2))))
struct BlobTierTests {
  /// A first copy that listens, and a second one that skips large values.
  private static func lazyPair() async throws -> (server: TestCopy, client: TestCopy, address: Endpoint) {
    let (server, client, address) = try await pair()
    try client.store.setBlobPolicy(.lazy)
    return (server, client, address)
  }

  private static func fill(_ copy: TestCopy, _ count: Int, bytes: Int = 5000) throws {
    for number in 0..<count { try copy.store.put(Key("\(number)"), noise(bytes, seed: UInt64(number))) }
  }

  @Test("A lazy copy takes records without their large values, and tells the pusher")
  func lazy() async throws {
    let (server, client, _) = try await Self.lazyPair()
    let address = try await client.listen()
    try Self.fill(server, 3)
    let report = try await server.node.synchronize(with: "\(address)", direction: .push)
    #expect(report.leavesBlobsOut && report.sentBlobs == 0 && report.sentRecords == 3)
    #expect(try client.store.absentValues().leftOut == 3 && client.digest() == server.digest())
    let other = try await client.node.synchronize(with: "first", direction: .push)
    #expect(!other.leavesBlobsOut)
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A value received in a session is no longer recorded as missing when the session ends")
  func recordsArrivals() async throws {
    let (server, client, _) = try await pair()
    try Self.fill(server, 20)
    try server.store.put("large", noise(6_000_000, seed: 1))
    let report = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(report.receivedBlobs == 21)
    #expect(try client.store.locals(prefix: AbsentBlob.prefix).isEmpty)
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A missing value is fetched while the reader waits, from a member dialled for it")
  func fetchesOnRead() async throws {
    let (server, client, _) = try await Self.lazyPair()
    try Self.fill(server, 5)
    try server.store.put("huge", noise(6_000_000, seed: 77))
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    #expect(try client.store.absentValues().leftOut == 6)
    let store = client.store
    #expect(try store.get("3")?.bytes == noise(5000, seed: 3))
    let reader = try #require(try store.reader(of: "4"))
    #expect(try reader.read(5000, at: 0) == noise(5000, seed: 4))
    let value = try await store.run { try $0.get("2") }
    #expect(value?.bytes == noise(5000, seed: 2))
    let seen = Locked<[BlobProgress]>([])
    #expect(try await client.node.fetch("huge") { progress in seen.withLock { $0.append(progress) } })
    let progress = seen.withLock { $0 }
    #expect(progress.last == BlobProgress(bytes: 6_000_000, total: 6_000_000) && progress.count > 10)
    #expect(zip(progress, progress.dropFirst()).allSatisfy { $0.bytes < $1.bytes })
    #expect(try store.get("huge")?.bytes.count == 6_000_000)
    #expect(try store.absentValues().leftOut == 2)
    // A read within a transaction never waits: the arrival would have to wait for the transaction.
    let refused = #expect(throws: StoreError.self) {
      try store.transaction { transaction in _ = try transaction.get("0") }
    }
    #expect(refused?.code == .blobUnavailable)
    #expect(try await !client.node.fetch("nothing"))
    await client.node.stop()
    await server.node.stop()
  }

  @Test("If no reachable member has it, the error quotes each one's answer")
  func unavailable() async throws {
    let (server, client, _) = try await Self.lazyPair()
    try Self.fill(server, 2)
    _ = try await client.node.synchronize(with: "first", direction: .pull)
    let blob = try #require(try server.store.entry("0")?.blob)
    try server.store.blobs.remove(blob.hash)
    let lacking = #expect(throws: StoreError.self) { try client.store.get("0") }
    #expect(lacking?.code == .blobUnavailable && lacking?.message.contains("first does not have it") == true)
    await server.node.stop()
    try await until { client.node.state.peers.isEmpty }
    let failure = await #expect(throws: ReplicationError.self) { try await client.node.fetch("1") }
    #expect(failure?.code == .unavailable)
    await client.node.stop()
    #expect(#expect(throws: StoreError.self) { try client.store.get("1") }?.code == .blobUnavailable)
  }

  @Test(
    "Large values are evicted once another member confirms that it holds them, and are fetched again on read")
  func trims() async throws {
    let (server, client, _) = try await pair()
    try Self.fill(client, 20)
    _ = try await client.node.synchronize(with: "first", direction: .both)
    try client.store.put("unsent", noise(5000, seed: 99))
    var limits = BlobLimits()
    limits.count = 5
    let seen = Locked<[BlobTrimProgress]>([])
    let report = try await client.node.trimBlobs(to: limits) { progress in
      seen.withLock { $0.append(progress) }
    }
    #expect(report.evicted == 16 && report.holds && report.tooFewHolders == 0)
    #expect(seen.withLock { $0.last?.evicted } == 16)
    #expect(try client.store.lastBlobTrim()?.report == report)
    for number in 0..<20 {
      #expect(try client.store.get(Key("\(number)"))?.bytes == noise(5000, seed: UInt64(number)))
    }
    limits.count = 0
    let last = try await client.node.trimBlobs(to: limits)
    #expect(last.evicted == 20 && last.tooFewHolders == 1 && !last.holds)
    #expect(try client.store.get("unsent") != nil)
    // No other member holds the server's.
    let none = try await server.node.trimBlobs(to: limits)
    #expect(none.evicted == 0 && none.tooFewHolders == 20)
    await client.node.stop()
    await server.node.stop()
  }

  @Test("Members that evict at the same time leave a copy of every value")
  func bothTrim() async throws {
    let (server, client, _) = try await pair()
    try Self.fill(client, 30)
    client.node.keepInStep(KeepPolicy(retry: 1...50))
    try await until {
      try server.store.absentValues() == AbsentValues() && server.digest() == client.digest()
    }
    try await until { try server.store.missingBlobs().isEmpty }
    var limits = BlobLimits()
    limits.count = 0
    let wanted = limits
    for _ in 0..<3 {
      async let one = client.node.trimBlobs(to: wanted)
      async let other = server.node.trimBlobs(to: wanted)
      _ = try await (one, other)
      for number in 0..<30 {
        let blob = try #require(try client.store.entry(Key("\(number)"))?.blob)
        #expect(try client.store.blobs.has(blob) || server.store.blobs.has(blob))
      }
    }
    await client.node.stop()
    await server.node.stop()
  }

  @Test("A running node enforces the limits of its store by itself")
  func background() async throws {
    let (server, client, _) = try await pair()
    try Self.fill(client, 10)
    client.node.keepInStep(KeepPolicy(retry: 1...50))
    try await until { try server.digest() == client.digest() && server.store.missingBlobs().isEmpty }
    var limits = BlobLimits()
    limits.bytes = 20_000
    try client.store.setBlobLimits(limits)
    try await until { client.node.state["first"]?.phase == .live }
    await client.node.enforceBlobLimitsOnce()
    #expect(try client.store.absentValues().evicted == 6)
    #expect(client.log.lines.contains { $0.contains("6 large values have left") })
    await client.node.stop()
    await server.node.stop()
  }

  // MARK: From several members at once

  /// A first copy with a very large value, a second one that also has it and listens, and a third one that
  /// skipped it and knows both.
  private static func three(_ bytes: [UInt8]) async throws -> (
    first: TestCopy, second: TestCopy, third: TestCopy
  ) {
    let (first, second, _) = try await pair()
    try first.store.put("huge", bytes)
    _ = try await second.node.synchronize(with: "first", direction: .pull)
    let address = try await second.listen()
    let third = try await TestCopy.joined(try Node.invite(to: first.store), "third")
    try third.store.setBlobPolicy(.lazy)
    // It must know the new member to admit it.
    _ = try await second.node.synchronize(with: "first", direction: .pull)
    _ = try await third.node.synchronize(with: "first", direction: .pull)
    try Membership(third.store).add(Peer(name: "second", addresses: ["\(address)"]))
    return (first, second, third)
  }

  /// Whether it sent any part of a large value to the third copy.
  private static func gave(_ copy: TestCopy) -> Bool {
    copy.log.lines.contains { $0.contains("third: received 0 records") && !$0.hasSuffix("and 0") }
  }

  @Test("A very large value comes from several members at once, and resumes after a break")
  func swarms() async throws {
    let bytes = noise(30 << 20, seed: 5)
    let (first, second, third) = try await Self.three(bytes)
    // An earlier attempt has brought some of it.
    let blob = try #require(try third.store.entry("huge")?.blob)
    try third.store.blobs.append(Array(bytes[..<100_000]), to: blob.hash, at: 0)
    let seen = Locked<[UInt64]>([])
    try await third.node.fetch("huge") { progress in seen.withLock { $0.append(progress.bytes) } }
    #expect(try third.store.get("huge")?.bytes == bytes)
    let progress = seen.withLock { $0 }
    #expect(progress.first ?? 0 > 100_000 && progress.last == blob.size && progress == progress.sorted())
    await third.node.stop()
    try await until { Self.gave(first) && Self.gave(second) }
    await second.node.stop()
    await first.node.stop()
  }

  @Test("If one of them disconnects during the fetch, the others send the rest")
  func swarmBreaks() async throws {
    let bytes = noise(30 << 20, seed: 6)
    let (first, second, third) = try await Self.three(bytes)
    let isStopping = Locked(false)
    try await third.node.fetch("huge") { progress in
      guard progress.bytes > 8 << 20, !isStopping.withLock({ stopping in exchange(&stopping, with: true) })
      else {
        return
      }
      Task { await second.node.stop() }
    }
    #expect(try third.store.get("huge")?.bytes == bytes)
    await third.node.stop()
    await second.node.stop()
    await first.node.stop()
  }

  @Test("However many very large values are fetched at once, no session ends because of it, and all arrive")
  func manySwarms() async throws {
    let (first, second, third) = try await Self.three(noise(5000, seed: 500))
    // Each part is requested from one of two members: at least 70 parts from one of these.
    let values = (0..<140 as Range<UInt64>).map { noise(5000, seed: 600 + $0) }
    for (number, value) in values.enumerated() { try first.store.put(Key("many/\(number)"), value) }
    _ = try await second.node.synchronize(with: "first", direction: .pull)
    _ = try await third.node.synchronize(with: "first", direction: .pull)
    third.node.keepInStep(KeepPolicy(retry: 1...50))
    try await until { third.node.state.connected.count == 2 }
    let live = Set(try await Self.sessions(of: third))
    let blobs = try values.indices.map { try #require(try third.store.entry(Key("many/\($0)"))?.blob) }
    let (core, ended) = (third.node.core, Locked<[String]>([]))
    try await third.node.onLoop { () throws(ReplicationError) in
      core.value.blobFetches.leastSwarmBytes = 5000
      for blob in blobs {
        core.value.blobFetches.fetch(blob) { result in
          ended.withLock { $0.append("\(result)") }
        }
      }
      Thread.sleep(forTimeInterval: 0.3)
    }
    // All requests precede the first answer.
    try await third.node.onLoop { () throws(ReplicationError) in Thread.sleep(forTimeInterval: 0.3) }
    try await until { ended.withLock { $0.count } == blobs.count }
    for (number, value) in values.enumerated() {
      #expect(try third.store.blobs.has(blobs[number]), "\(ended.withLock { $0[number] })")
      #expect(try third.store.get(Key("many/\(number)"))?.bytes == value)
    }
    #expect(try await live.isSubset(of: Self.sessions(of: third)))
    await third.node.stop()
    await second.node.stop()
    await first.node.stop()
  }

  /// The numbers of the live sessions that a copy has dialled.
  private static func sessions(of copy: TestCopy) async throws -> [UInt64] {
    let core = copy.node.core
    return try await copy.node.onLoop { () throws(ReplicationError) in
      core.value.outgoing.filter { $0.value.driver?.isLive == true }.map { UInt64($0.key) }
    }
  }

  @Test("A value that does not match its hash at the end is fetched again from a member that has it (F85)")
  func swarmOfLies() async throws {
    let bytes = noise(20 << 20, seed: 7)
    let (first, second, third) = try await Self.three(bytes)
    // The second copy's disk returns other bytes.
    let blob = try #require(try second.store.entry("huge")?.blob)
    let name =
      second.store.path + "/blobs/objects/" + String(blob.hash.description.prefix(2)) + "/"
      + blob.hash.description
    let file = try DiskStorage().open(name, .readWrite)
    for offset in stride(from: 0, to: 20 << 20, by: 1 << 20) { try file.write([1, 2, 3, 4], at: offset) }
    try await third.node.fetch("huge")
    #expect(try third.store.get("huge")?.bytes == bytes)
    await third.node.stop()
    await second.node.stop()
    await first.node.stop()
  }
}
