import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A member that says what a member says, over a real connection, with a store that is but an actor.
private final class ThinMember {
  private var session = Session(role: .client(.sync), peerName: "hub", peerRight: .readWrite, staysOpen: true)
  private let link: PeerLink
  private let store: Store
  private let keys: GroupKeyRing
  private let actor = ActorID.random()
  private var vector = VersionVector()
  private let onLive: () -> Void
  private(set) var received = 0

  init(_ link: PeerLink, _ store: Store, _ keys: GroupKeyRing, onLive: @escaping () -> Void) {
    (self.link, self.store, self.keys, self.onLive) = (link, store, keys, onLive)
  }

  func start() {
    link.onPlaintext = { [self] in handle(.received($0)) }
    link.onSent = { [self] in handle(.sent($0)) }
    link.onEnd = { [self] _ in handle(.disconnected) }
    perform(session.start())
  }

  private func handle(_ event: SessionEvent) {
    let wasLive = session.isLive
    perform(session.handle(event))
    if session.isLive, !wasLive { onLive() }
  }

  private func perform(_ actions: [SessionAction]) {
    for action in actions {
      if case .send(let bytes) = action {
        link.send(bytes)
      } else if let answer = answer(action) {
        handle(answer)
      }
    }
  }

  private func answer(_ action: SessionAction) -> SessionEvent? {
    let wall = store.environment.now()
    switch action {
    case .loadReplica:
      let summary = ReplicaSummary(
        store: store.id, actor: actor, sequence: 0, vector: vector, floor: VersionVector(), horizon: .zero,
        position: 0)
      return .replica(Replica(summary: summary, digest: StateDigest(), wallMilliseconds: wall))
    case .loadCursor: return .cursor(nil)
    case .openRound:
      let close = RoundClose(
        sender: actor, mark: .random(), position: 0, vector: vector, floor: VersionVector(), horizon: .zero)
      return .roundOpened(records: 0, close: close)
    case .applyBatch(let sender, let mark, let index, let sealed, _, _),
      .applyLast(let sender, let mark, let index, let sealed, _):
      if case .applyLast(_, _, _, _, let close) = action { vector.merge(close.vector) }
      let context = BatchContext.records(store: store.id, sender: sender, mark: mark, index: UInt64(index))
      guard let payload = try? BatchCodec.open(sealed, expecting: context, keys: keys),
        let batch = try? RecordCodec.decode(payload)
      else { return .failed(.protocolViolation, "a batch that does not open") }
      received += batch.records.count
      return .batchApplied(position: batch.position, records: batch.records.count, missing: [])
    case .finishRound(let close):
      vector.merge(close.vector)
      return .roundFinished
    case .judgeState(let time):
      // Not in step, by its position: there is no digest to compare.
      return .stateJudged(
        JudgedState(position: 1, vector: vector, digest: StateDigest(), at: time ?? wall))
    case .openBurst: return .burstEmpty(position: 0)
    default: return nil
    }
  }
}

extension RoundMark {
  fileprivate static func random() -> RoundMark {
    RoundMark(high: .random(in: 0 ... .max), low: .random(in: 0 ... .max))
  }
}

/// Many members that stay connected to one node.
@Suite(.timeLimit(.minutes(4)), .serialized) struct ManyMembersTests {
  private static let count = 60
  /// Bytes for each member: what the promise gives to the hub's side. Here it holds both ends.
  private static let bytesEach = 100 << 10

  @Test func `members that stay connected cost little memory each, and all of them get what is written`()
    async throws
  {
    let hub = try TestCopy.first()
    for number in 0..<20 { try hub.put("key \(number)", "value") }
    let address = try await hub.listen()
    let identities = try (0...Self.count).map { _ in try DeviceIdentity.generate() }
    for (number, identity) in identities.enumerated() {
      try Membership(hub.store).put(
        Member(device: identity.id, name: "m\(number)", right: .readWrite, addresses: [], joined: 0))
    }
    let members = LoopBound(Members(), to: try EventLoop.shared())
    // What is made once is not a member's.
    try await connect(identities[0], to: address, hub.store, members)
    let before = try Self.anonymousBytes()
    for identity in identities.dropFirst() { try await connect(identity, to: address, hub.store, members) }
    let each = (try Self.anonymousBytes() - before) / Self.count
    // The memory of the process is theirs alone only where nothing else runs: `make memory`.
    if ProcessInfo.processInfo.environment["MEASURE_MEMORY"] != nil {
      #expect(each < Self.bytesEach, "\(each) bytes for each member and its other end")
    }
    let counts = try await Self.received(members)
    try hub.put("news", "for all")
    while try await zip(Self.received(members), counts).contains(where: { $0 <= $1 }) {
      try await Task.sleep(for: .milliseconds(5))
    }
    await hub.node.stop()
  }

  private final class Members {
    var list: [ThinMember] = []
  }

  private static func received(_ members: LoopBound<Members>) async throws -> [Int] {
    try await on(try EventLoop.shared()) { members.value.list.map(\.received) }
  }

  private static func anonymousBytes() throws -> Int {
    let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
    let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") })
    return try #require(line.split(whereSeparator: { !$0.isNumber }).first.flatMap { Int($0) }) << 10
  }

  private func connect(
    _ identity: DeviceIdentity, to address: Endpoint, _ store: Store, _ members: LoopBound<Members>
  ) async throws {
    let loop = try EventLoop.shared()
    let context = try TLSContext(role: .client, identity: identity)
    let keys = try StoreKeys(store).groupKeys()
    let connection = try await ReplicationTests.connect(loop, to: address)
    let live = Awaited<Bool>()
    loop.execute {
      guard
        let engine = try? HandshakeEngine(
          context, protocols: [WireLimits.sessionProtocol], accept: { _, _ in true })
      else { return live.put(false) }
      let link = PeerLink(connection.value, engine: engine, worker: WorkerPool.shared.queue(), loop: loop)
      link.onEnd = { _ in
        withExtendedLifetime(link) {}
        live.put(false)
      }
      link.onEstablished = { _ in
        let member = ThinMember(link, store, keys) { live.put(true) }
        members.value.list.append(member)
        member.start()
      }
      link.start()
    }
    #expect(await live.take())
  }
}
