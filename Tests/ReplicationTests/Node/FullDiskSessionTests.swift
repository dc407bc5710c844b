import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Sync between two copies when one file system is full: the error on each side says which copy has no space.
@Suite(
  "A session in which one side has no disk space (F25)",
  .enabled(if: LoopImage.isAvailable, "needs the right to mount"), .timeLimit(.minutes(Patience.minutes(2))))
struct FullDiskSessionTests {
  /// The side whose disk is full.
  enum Side: CaseIterable { case server, client }

  private static let own = "this copy's disk is full"
  private static let other = "the disk of the refusing side is full: make room there"

  /// A listening server and a client that has joined it. The store of `side` is on the image.
  private static func pair(
    _ side: Side, on image: LoopImage
  ) async throws -> (server: TestCopy, client: TestCopy) {
    func home(_ of: Side) -> (directory: TemporaryDirectory, path: String) {
      let directory = TemporaryDirectory()
      return (directory, (of == side ? image.path : directory.path) + "/store")
    }
    let first = home(.server)
    let store = try Store.create(at: first.path, name: "shop", configuration: TestCopy.configuration)
    try Node.prepare(store, name: "first")
    let server = try TestCopy(first.directory, store)
    _ = try await server.listen()
    let second = home(.client)
    let joined = try await Node.join(
      Node.invite(to: server.store), at: second.path, name: "second", configuration: TestCopy.configuration)
    return (server, try TestCopy(second.directory, joined.store))
  }

  @Test(
    "ends with a message to each side that names the full disk, and resumes once there is space",
    arguments: Side.allCases, [900, 50_000])
  func fullDisk(side: Side, valueBytes: Int) async throws {
    let image = try LoopImage(megabytes: 48, type: "tmpfs")
    let (server, client) = try await Self.pair(side, on: image)
    let giver = side == .server ? client : server
    for batch in 0..<8 {
      try giver.store.transaction { transaction in
        for number in 0..<2_000_000 / valueBytes {
          let seed = UInt64(batch * 10_000 + number)
          try transaction.put(Key("\(batch)/\(number)"), noise(valueBytes, seed: seed))
        }
      }
    }
    try image.fill(leaving: 4 << 20)

    let error = await #expect(throws: ReplicationError.self) {
      _ = try await client.node.synchronize(with: "first")
    }
    let message = try #require(error?.message)
    if side == .client {
      #expect(message.contains(Self.own) && !message.contains(Self.other), "\(message)")
    } else {
      #expect(message.contains(Self.other) && !message.contains(Self.own), "\(message)")
    }
    let said = side == .client ? Self.other : Self.own
    try await until { server.log.lines.contains { $0.contains(said) } }
    #expect(try client.store.verify().isClean && server.store.verify().isClean)

    image.drain()
    _ = try await client.node.synchronize(with: "first")
    #expect(try client.digest() == server.digest())
    for copy in [client, server] {
      #expect(try copy.store.get(Key("7/3"))?.bytes == noise(valueBytes, seed: 70_003))
      try copy.store.close()
    }
    await client.node.stop()
    await server.node.stop()
  }
}
