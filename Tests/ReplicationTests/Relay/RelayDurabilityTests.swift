import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// What members state in a relay survives a loss of power.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayDurabilityTests {
  @Test("a copy states nothing as seen that a loss of power could take from it (rule L3)", arguments: 2...12)
  func receipts(requests: Int) async throws {
    let pair = try RelayPair()
    let (first, second) = (try pair.client(0), try pair.client(1))
    // It has a stream: creating one makes everything durable.
    _ = try await second.push()
    try pair.stores[0].put(Key("small"), [1])
    _ = try await first.push()
    // In parts, which take requests of their own.
    for number in 0..<300 { try pair.stores[0].put(Key("key \(number)"), noise(300, seed: UInt64(number))) }
    _ = try await first.push()
    pair.objects.faults.diesAfter = requests
    let pulled = try? await second.pull()
    pair.objects.faults.diesAfter = nil
    let format = try #require(try await second.format(creates: false))
    try await second.acknowledge(format)
    let stream = try pair.stores[1].relayProgress(format.relay).stream
    let stated = second.memory.withLock { memory in stream.flatMap { memory.heads[$0]?.head.seen } } ?? [:]
    #expect(pulled == nil || !stated.isEmpty)
    pair.hosts[1].losePower(keeping: { _, _ in .lost }, sizes: { _ in false }, entries: { _ in false })
    let again = try Store.open(on: pair.hosts[1])
    #expect(try again.relayProgress(format.relay).seen == stated)
    #expect(try stated.isEmpty || again.get(Key("small")) != nil)
  }
}
