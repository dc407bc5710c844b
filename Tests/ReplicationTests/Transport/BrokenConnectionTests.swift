import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Connections cut in the middle: a relay between the two nodes passes a limited number of bytes.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct BrokenConnectionTests {
  @Test func `F69 F72 a push that breaks repeatedly resumes where it stopped, blobs included`() async throws {
    let (server, client, address) = try await pair()
    for number in 0..<400 { try client.put("key \(number)", String(repeating: "v", count: 700)) }
    let blob = noise(6_000_000, seed: 11)
    try client.store.put(Key("large"), blob)
    let relay = try await Relay.cutting(to: address, allowance: 1_500_000)
    var cuts = 0
    var sentBytes: UInt64 = 0
    while true {
      do {
        let report = try await client.node.synchronize(with: relay.address.description, direction: .push)
        sentBytes = report.sentBytes
        break
      } catch {
        #expect(error.code == .network, "\(error)")
        cuts += 1
        #expect(cuts < 30)
      }
    }
    #expect(cuts >= 3)
    // Data that had arrived before was not sent again.
    #expect(sentBytes < 2_000_000)
    #expect(try server.store.get(Key("large"))?.bytes == blob)
    #expect(try client.digest() == server.digest())
    await server.node.stop()
  }

  @Test(arguments: [true, false])
  func
    `F44 F69 a receiver killed between a blob's last byte and its rename keeps it if its hash matches`(
      intact: Bool
    ) async throws
  {
    let (server, client, address) = try await pair()
    let blob = noise(300_000, seed: 12)
    try client.store.put(Key("large"), blob)
    let hash = try #require(try client.store.entry(Key("large"))?.blob?.hash)
    try server.store.blobs.append(intact ? blob : noise(300_000, seed: 13), to: hash, at: 0)
    let report = try await client.node.synchronize(with: address.description, direction: .push)
    #expect(report.sentBlobs == (intact ? 0 : 1))
    #expect(try server.store.get(Key("large"))?.bytes == blob)
    #expect(try client.digest() == server.digest())
    await server.node.stop()
  }

  @Test func `F69 a pull that breaks loses nothing that it received`() async throws {
    let (server, client, address) = try await pair()
    for number in 0..<3000 { try server.store.put(Key("key \(number)"), noise(900, seed: UInt64(number))) }
    let relay = try await Relay.cutting(to: address, allowance: 1_300_000)
    var reached = 0
    var cuts = 0
    while true {
      do {
        _ = try await client.node.synchronize(with: relay.address.description, direction: .pull)
        break
      } catch {
        cuts += 1
        let count = try client.store.list().count
        #expect(count >= reached)
        reached = count
        #expect(cuts < 30)
      }
    }
    #expect(cuts >= 1)
    #expect(try client.digest() == server.digest())
    await server.node.stop()
  }
}
