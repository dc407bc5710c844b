import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A node in live sync with a peer whose sessions go live and end at once, again and again.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct FlappingPeerTests {
  /// How the peer ends each session.
  enum Ending: CaseIterable {
    case breaks, refuses, saysGoodbye

    func end(_ driver: SessionDriver) {
      switch self {
      case .breaks: driver.abandon()
      case .refuses: driver.stop()
      // The other side ends the session because of it.
      case .saysGoodbye: driver.link.send(Message.goodbye.frame.bytes)
      }
    }
  }

  /// Makes the node end each session at once, in that way; counts them.
  private static func flap(_ node: Node, _ ending: Ending) async throws -> Locked<Int> {
    let (core, ended) = (node.core, Locked(0))
    try await node.onLoop { () throws(ReplicationError) in
      let (core, before) = (core.value, core.value.onChange)
      core.onChange = { [weak core] device in
        before(device)
        guard let driver = core?.liveDriver(of: device) else { return }
        ended.withLock { $0 += 1 }
        // Not from within the session's own event.
        core?.loop.execute { [driver = LoopBound(driver, to: node.context.loop)] in ending.end(driver.value) }
      }
    }
    return ended
  }

  @Test(arguments: Ending.allCases)
  func `F71 a peer that ends each session as soon as it is live is dialled with growing delays`(
    ending: Ending
  )
    async throws
  {
    let (server, client, _) = try await pair()
    let ended = try await Self.flap(server.node, ending)
    client.node.keepInStep(KeepPolicy(retry: 1...1_000_000))
    var longest: UInt64 = 0
    // Six failures in a row cause a pause of at least 16 ms; first failures, however many, do not.
    for await state in client.node.states(of: "first") where state.phase == .waiting {
      longest = max(longest, state.retryAfter ?? 0)
      if longest >= 16 || ended.withLock({ $0 }) >= 40 { break }
    }
    #expect(longest >= 16)
    #expect(ended.withLock { $0 } >= 5)
    await client.node.stop()
    await server.node.stop()
  }
}
