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

  /// Ends each session of a node as soon as it is live, and counts them; passes all reports on. Confined to
  /// the node's loop.
  private final class Flapper: NodeCoreDelegate {
    private weak var core: NodeCore?
    private weak var next: (any NodeCoreDelegate)?
    private let ending: Ending
    private let ended: Locked<Int>

    init(_ core: NodeCore, _ ending: Ending, counting ended: Locked<Int>) {
      (self.core, next, self.ending, self.ended) = (core, core.delegate, ending, ended)
      core.delegate = self
    }

    func sessionsChanged(with device: DeviceID) {
      next?.sessionsChanged(with: device)
      guard let core, let driver = core.liveDriver(of: device) else { return }
      ended.withLock { $0 += 1 }
      // Not from within the session's own event.
      core.loop.execute { [ending, driver = LoopBound(driver, to: core.loop)] in ending.end(driver.value) }
    }

    func networkReturned() { next?.networkReturned() }

    func identityConflict(of device: DeviceID, message: String) {
      next?.identityConflict(of: device, message: message)
    }

    func unknownDeviceRejected() { next?.unknownDeviceRejected() }
  }

  /// Makes the node end each session at once, in that way, while the result lives.
  private static func flap(
    _ node: Node, _ ending: Ending, counting ended: Locked<Int>
  ) async throws -> LoopBound<Flapper> {
    let core = node.core
    return try await node.onLoop { () throws(ReplicationError) in
      LoopBound(Flapper(core.value, ending, counting: ended), to: core.value.loop)
    }
  }

  @Test(arguments: Ending.allCases)
  func `F71 a peer that ends each session as soon as it is live is dialled with growing delays`(
    ending: Ending
  )
    async throws
  {
    let (server, client, _) = try await pair()
    let ended = Locked(0)
    let flapper = try await Self.flap(server.node, ending, counting: ended)
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
    withExtendedLifetime(flapper) {}
  }
}
