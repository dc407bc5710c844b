import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A protocol-complete member over a real connection, whose store is only an actor and its latest writes.
/// Belongs to its loop's thread.
final class ThinMember {
  private var session = Session(role: .client(.sync), peerName: "hub", peerRight: .readWrite, mode: .live)
  private let link: PeerLink
  private let store: StoreID
  private let keys: GroupKeyRing
  private let actor = ActorID.random()
  private var vector = VersionVector()
  /// Written and not sent yet.
  private var unsent: [PositionedRecord] = []
  private var position: UInt64 = 0
  /// Whether it stays idle forever before it has caught up.
  private let isStuck: Bool
  private let onLive: () -> Void
  /// Called with the records of a batch.
  var onRecords: ([PositionedRecord]) -> Void = { _ in }
  /// Called when the session has ended.
  var onClosed: (SessionOutcome) -> Void = { _ in }
  private(set) var received = 0

  init(
    _ link: PeerLink, _ store: StoreID, _ keys: GroupKeyRing, isStuck: Bool = false,
    onLive: @escaping () -> Void
  ) {
    (self.link, self.store, self.keys, self.isStuck, self.onLive) = (link, store, keys, isStuck, onLive)
  }

  /// Connects as `identity`, and returns when the session is live, or has started if it is one that never
  /// catches up.
  static func connect(
    _ identity: DeviceIdentity, to address: Endpoint, _ store: StoreID, _ keys: GroupKeyRing,
    _ members: LoopBound<ThinMembers>, isStuck: Bool = false
  ) async throws {
    // While other tests run a handshake may exceed its time limit: like any live member it retries.
    while try await !attempt(identity, to: address, store, keys, members, isStuck) {
      try Task.checkCancellation()
    }
  }

  private static func attempt(
    _ identity: DeviceIdentity, to address: Endpoint, _ store: StoreID, _ keys: GroupKeyRing,
    _ members: LoopBound<ThinMembers>, _ isStuck: Bool
  ) async throws -> Bool {
    let live = Awaited<Bool>()
    try await startLink(to: address, as: identity) { link in
      link.onEnd = { _ in
        withExtendedLifetime(link) {}
        live.put(false)
      }
      link.onEstablished = { _ in
        let member = ThinMember(link, store, keys, isStuck: isStuck) { live.put(true) }
        members.value.list.append(member)
        member.start()
        if isStuck { live.put(true) }
      }
    }
    return try await live.take()
  }

  func start() {
    link.onPlaintext = { [self] in handle(.received($0)) }
    link.onSent = { [self] in handle(.sent($0)) }
    link.onEnd = { [self] _ in handle(.disconnected) }
    perform(session.start())
  }

  /// Writes a key locally.
  func write(_ key: [UInt8], _ value: [UInt8]) {
    position += 1
    let record = Record(
      version: Version(
        stamp: Stamp(milliseconds: Environment.real().now()), dot: Dot(actor: actor, sequence: position)),
      key: key, content: .inline(value))
    unsent.append(PositionedRecord(position: position, record: record))
    handle(.journalGrown)
  }

  private func handle(_ event: SessionEvent) {
    let wasLive = session.isLive
    perform(session.handle(event))
    if session.isLive, !wasLive { onLive() }
  }

  private func perform(_ actions: [SessionAction]) {
    for action in actions {
      switch action {
      case .send(let bytes): link.send(bytes)
      case .close(let outcome): onClosed(outcome)
      default: if let answer = answer(action) { handle(answer) }
      }
    }
  }

  private func answer(_ action: SessionAction) -> SessionEvent? {
    let wall = Environment.real().now()
    switch action {
    case .loadReplica:
      let summary = ReplicaSummary(
        store: store, actor: actor, sequence: 0, vector: vector, floor: VersionVector(), horizon: .zero,
        position: 0)
      return .replica(Replica(summary: summary, digest: StateDigest(), wallMilliseconds: wall))
    case .loadCursor: return isStuck ? nil : .cursor(nil)
    case .openRound: return .roundOpened(records: 0, close: close)
    case .applyBatch(let sender, let mark, let index, let sealed, _, _),
      .applyLast(let sender, let mark, let index, let sealed, _):
      if case .applyLast(_, _, _, _, let close) = action { vector.merge(close.vector) }
      let context = BatchContext.records(store: store, sender: sender, mark: mark, index: UInt64(index))
      guard let payload = try? BatchCodec.decrypt(sealed, expecting: context, keys: keys),
        let batch = try? RecordCodec.decode(payload)
      else { return .failed(.protocolViolation, "a batch that does not open") }
      received += batch.records.count
      onRecords(batch.records)
      return .batchApplied(position: batch.position, records: batch.records.count, missing: [])
    case .finishRound(let close):
      vector.merge(close.vector)
      return .roundFinished
    case .digestState(let time):
      // Compared by position: it has no digest.
      return .stateDigested(
        DigestedState(position: .max, vector: vector, digest: StateDigest(), at: time ?? wall))
    case .openLiveUpdate: return burst()
    default: return nil
    }
  }

  private var close: RoundClose {
    var vector = vector
    vector[actor] = position
    return RoundClose(
      sender: actor, mark: .random(), position: position, vector: vector, floor: VersionVector(),
      horizon: .zero)
  }

  private func burst() -> SessionEvent {
    guard !unsent.isEmpty else { return .liveUpdateEmpty(position: position) }
    let close = close
    var encoder = RecordCodec.Encoder(capacity: 4096)
    for record in unsent { encoder.write(record) }
    let context = BatchContext.records(store: store, sender: actor, mark: close.mark, index: 0)
    guard
      let sealed = try? BatchCodec.encrypt(
        encoder.finish(position: position, present: []), as: context, keys: keys,
        randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
    else { return .failed(.cryptography, "a batch that does not seal") }
    let count = unsent.count
    unsent = []
    return .liveUpdateOpened(
      LiveUpdateOpening(
        records: UInt64(count), close: close,
        first: LiveUpdateOpening.Batch(encrypted: sealed, position: position, records: count), isWhole: true))
  }
}

/// Several such members on one loop.
final class ThinMembers {
  var list: [ThinMember] = []
}

extension RoundMark {
  fileprivate static func random() -> RoundMark {
    RoundMark(high: .random(in: 0 ... .max), low: .random(in: 0 ... .max))
  }
}
