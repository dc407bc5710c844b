import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// `Node.compare`: real copies, over real connections.
@Suite("A comparison of two copies", .timeLimit(.minutes(Patience.minutes(2))))
struct ComparisonTests {
  /// The report, and the differences as "winner here/there key", in the order of the keys.
  private static func found(
    _ copy: TestCopy, with peer: String = "first", in range: KeyRange = .all
  ) async throws -> (report: ComparisonReport, lines: [String]) {
    let all = Locked([KeyDifference]())
    let report = try await copy.node.compare(with: peer, in: range) { part in all.withLock { $0 += part } }
    let lines = all.withLock { $0 }.sorted { $0.key < $1.key }.map { difference in
      "\(difference.winner) \(Self.word(difference.here))/\(Self.word(difference.there)) \(difference.key)"
    }
    return (report, lines)
  }

  private static func word(_ content: KeyDifference.Content) -> String {
    switch content {
    case .nothing: "-"
    case .deleted: "deleted"
    case .value(let value): "\(value.size)"
    }
  }

  @Test("names every key that differs and the copy that wins, and changes neither copy")
  func everyKind() async throws {
    let (server, client, _) = try await pair()
    for key in ["kept", "changed here", "changed there", "deleted here", "deleted there", "expired"] {
      try server.put(key, "old")
    }
    _ = try await client.node.synchronize(with: "first")
    #expect(try await Self.found(client).lines == [])
    try client.put("changed here", "newer")
    try server.put("changed there", "newest")
    _ = try client.store.delete(Key("deleted here"))
    _ = try server.store.delete(Key("deleted there"))
    try client.put("new here", "1")
    try server.put("new there", "12")
    try server.store.put(Key("large there"), noise(5000, seed: 1))
    let before = (try client.digest(), try server.digest())
    let ends = (try client.store.status().position, try server.store.status().position)
    let (report, lines) = try await Self.found(client)
    #expect(
      lines == [
        "here 5/3 changed here", "there 3/6 changed there", "here deleted/3 deleted here",
        "there 3/deleted deleted there", "there -/5000 large there", "here 1/- new here",
        "there -/2 new there",
      ])
    #expect(report.peer == "first" && !report.isEmpty)
    #expect(report.toSend.keys == 3 && report.toSend.deletes == 1 && report.toSend.bytes == 6)
    #expect(report.toReceive.keys == 4 && report.toReceive.deletes == 1 && report.toReceive.bytes == 5008)
    #expect((try client.digest(), try server.digest()) == before)
    // The sync may make a member write its frontier, a key of the store's own, as late as now.
    #expect(try client.store.log(from: ends.0 + 1, limit: 10).allSatisfy { $0.key == nil })
    #expect(try server.store.log(from: ends.1 + 1, limit: 10).allSatisfy { $0.key == nil })
    // A sync does what was foretold.
    let done = try await client.node.synchronize(with: "first")
    #expect(done.sentRecords == 3 && done.receivedRecords == 4)
    #expect(try await Self.found(client).lines == [])
    await server.node.stop()
  }

  @Test("reports the keys of a range alone")
  func range() async throws {
    let (server, client, _) = try await pair()
    for key in ["a/1", "a/2", "b/1"] { try server.put(key, "x") }
    #expect(
      try await Self.found(client, in: KeyRange(prefix: "a/")).lines == ["there -/1 a/1", "there -/1 a/2"])
    await server.node.stop()
  }

  @Test("finds as many keys as differ, also where no list holds them all")
  func manyKeys() async throws {
    let (server, client, _) = try await pair()
    let count = 60_000
    for first in stride(from: 0, to: count, by: 10_000) {
      try server.store.transaction { transaction in
        for number in first..<first + 10_000 { try transaction.put(Key("key \(number)"), [1]) }
      }
    }
    let (report, lines) = try await Self.found(client)
    #expect(report.toReceive.keys == count && report.toSend.keys == 0)
    #expect(lines.count == count && Set(lines).count == count)
    await server.node.stop()
  }

  @Test("works for a member that may only read")
  func readOnly() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let token = try Node.invite(to: server.store, right: .readOnly)
    let client = try await TestCopy.joined(token, "reader")
    try server.put("k", "v")
    #expect(try await Self.found(client).lines == ["there -/1 k"])
    await server.node.stop()
  }

  @Test("is refused for a copy that holds only some keys, with a reason")
  func selective() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let scope = try KeyScope(prefixes: ["a/"])
    let client = try await TestCopy.joined(try Node.invite(to: server.store), "second", scope: scope)
    let error = await #expect(throws: ReplicationError.self) { try await client.node.compare(with: "first") }
    #expect(error?.code == .notAllowed && error?.message.contains("only some keys") == true)
    await server.node.stop()
  }
}
