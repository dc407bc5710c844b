import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// A machine's clock is set while a live session is open: no record stamped by the wrong clock may leave.
@Suite("A clock that is set during a live session (F49)", .timeLimit(.minutes(Patience.minutes(2))))
struct ClockJumpTests {
  private static let hour: Int64 = 3_600_000
  private static let policy = KeepPolicy(retry: 1...50)

  /// A member whose wall clock is off by this many milliseconds.
  private static func member(_ token: String, _ offset: Locked<Int64>) async throws -> TestCopy {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    try await Node.join(token, at: path, name: "second", configuration: TestCopy.configuration).store.close()
    var environment = Environment.real()
    let now = environment.now
    environment.now = { UInt64(Int64(now()) + offset.withLock { $0 }) }
    let store = try Store.open(at: path, configuration: TestCopy.configuration, environment: environment)
    return try TestCopy(directory, store)
  }

  @Test(
    "ends the session before a write is sent, and the stamped writes can be restamped",
    arguments: [hour, -hour])
  func jump(by offset: Int64) async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let clock = Locked<Int64>(0)
    let client = try await Self.member(try Node.invite(to: server.store), clock)
    client.node.keepInStep(Self.policy)
    try client.put("before", "1")
    for await state in client.node.states(of: "first") where state.phase == .live { break }
    try await until { try server.get("before") == "1" }

    clock.withLock { $0 = offset }
    try client.put("meanwhile", "2")
    try await until {
      client.log.lines.contains {
        $0.contains("machine's clock was set") && $0.contains(offset > 0 ? " s ahead" : " s back")
      }
    }
    try await until { server.log.lines.contains { $0.contains("clock of the refusing side was set") } }
    #expect(try server.get("meanwhile") == nil && server.store.parkedWrites(limit: 1).isEmpty)

    clock.withLock { $0 = 0 }
    if offset > 0 {
      #expect(try client.store.unsentWritesAhead()?.writes == 1)
      try client.store.restampUnsent()
    }
    client.node.keepInStep(Self.policy)
    try await until { try server.get("meanwhile") == "2" }
    #expect(try client.digest() == server.digest())
    await client.node.stop()
    await server.node.stop()
  }

  @Test("does not end a session whose clock changes by less than others tolerate")
  func small() async throws {
    let server = try TestCopy.first()
    _ = try await server.listen()
    let clock = Locked<Int64>(0)
    let client = try await Self.member(try Node.invite(to: server.store), clock)
    client.node.keepInStep(Self.policy)
    for (number, offset) in [Int64(0), 40_000, -15_000].enumerated() {
      clock.withLock { $0 = offset }
      try client.put("\(number)", "x")
      try await until { try server.get("\(number)") == "x" }
    }
    #expect(!client.log.lines.contains { $0.contains("was set") })
    await client.node.stop()
    await server.node.stop()
  }
}
