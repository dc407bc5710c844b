import Dispatch
import Replication
import SyncStore

/// Collects the figures of the daemon's pages. Thread-safe; all calls block for as long as reading the store
/// takes.
///
/// A page costs a pass over the members and the segments, not over the keys. The pass over all keys, and the
/// one over the unsent writes, are made on queues of their own, and seldom enough that each takes at most a
/// hundredth of a processor.
final class DaemonMonitor: Sendable {
  private struct State {
    var counted: MonitorSnapshot.CountedKeys?
    /// The journal's position at the last pass over the keys.
    var countedPosition: UInt64?
    /// By monotonic seconds: when it ended.
    var countedAt = 0.0
    /// By monotonic seconds: no pass over the keys begins before.
    var nextCount = 0.0
    var unknown: [DeviceID: UnknownWrites] = [:]
    /// The position of the journal up to which `unknown` is right, by the contacts it was made of.
    var position: UInt64?
    var contacts: [DeviceID: Contact] = [:]
    var nextUnknown = 0.0
    var isCountingUnknown = false
    var isCounting = false
    var history = MonitorHistory()
  }

  let store: Store
  let node: Node
  private let startTime = System.wallMilliseconds
  private let state = LockedField(State())
  /// The pass over all keys, which can take seconds, and the one over the unsent writes.
  private let keyQueue = DispatchQueue(label: "sync-cli.keys", qos: .utility)
  private let memberQueue = DispatchQueue(label: "sync-cli.members", qos: .utility)

  /// A pass may take this share of the time.
  private static let shareOfTime = 0.01
  private static let secondsBetweenCounts = 60.0
  private static let secondsBetweenMemberPasses = 5.0
  /// Keys expire, and files go, without a write.
  private static let mostSecondsBetweenCounts = 3600.0
  private static let patienceMilliseconds = 200

  init(store: Store, node: Node) { (self.store, self.node) = (store, node) }

  /// The samples of the last hour.
  var history: MonitorHistory { state.withLock { $0.history } }

  /// Called by the daemon's main loop every few seconds: takes a sample when it is time.
  func tick() {
    guard state.withLock({ $0.history.isDue(at: System.wallMilliseconds) }) else { return }
    guard let sessions = try? blocking({ [node] in await node.counters() }) else { return }
    let sample = MonitorHistory.Sample(
      time: System.wallMilliseconds, counters: store.counters, sessions: sessions)
    state.withLock { $0.history.add(sample) }
  }

  /// The present figures.
  func snapshot() throws -> MonitorSnapshot {
    let sessions = try blocking { [node] in await node.counters() }
    let node = node.state
    let copies = try OtherCopies(store).members
    let figures = try store.figures()
    let unknown = unknownWrites(of: copies, at: figures.position)
    countLater(at: figures.position)
    let hasMetAny = copies.contains { $0.contact != nil }
    let members = copies.map { copy in
      let isCounted = unknown[copy.device] != nil
      let unknown = unknown[copy.device] ?? UnknownWrites()
      // Two members can have got one name at the same time.
      let isUnique = copies.count { $0.name == copy.name } == 1
      return MonitorSnapshot.MemberFigures(
        name: isUnique ? copy.name : "\(copy.name) (\("\(copy.device)".prefix(8)))", device: copy.device,
        right: copy.right, contact: copy.contact, unknown: unknown,
        counters: sessions.members[copy.device] ?? NodeCounters.MemberCounters(),
        peer: node.peers.first { $0.device == copy.device || $0.name == copy.name },
        isIndirect: copy.contact == nil && hasMetAny || !isCounted)
    }
    return MonitorSnapshot(
      time: System.wallMilliseconds, startTime: startTime, name: store.name, store: store.id,
      actor: try? store.actor, figures: figures, counters: store.counters,
      counted: state.withLock { $0.counted }, conditions: try conditions(),
      members: members.sorted { ($0.name, "\($0.device)") < ($1.name, "\($1.device)") }, node: node,
      sessions: sessions, process: ProcessFigures())
  }

  private func conditions() throws -> MonitorSnapshot.StoreConditions {
    try MonitorSnapshot.StoreConditions(
      health: store.health, denial: store.writeDenial ?? (try? Membership(store).own())?.right.denial,
      clockWarning: store.clockWarning ?? ClockCommand.warning(store), clockLead: store.clockLead())
  }

  // MARK: Costly figures

  /// The writes that the members lack. A caller waits for a moment, then gets the figures counted before.
  private func unknownWrites(
    of copies: [OtherCopies.Copy], at position: UInt64
  ) -> [DeviceID: UnknownWrites] {
    let isDue = state.withLock { state in
      guard !state.isCountingUnknown, System.monotonicSeconds >= state.nextUnknown else { return false }
      state.isCountingUnknown = true
      return true
    }
    if isDue {
      let counted = DispatchSemaphore(value: 0)
      memberQueue.async { [self] in
        countUnknown(of: copies, at: position)
        counted.signal()
      }
      _ = counted.wait(timeout: .now() + .milliseconds(Self.patienceMilliseconds))
    }
    return state.withLock { $0.unknown }
  }

  /// `position`: that of the journal, read before.
  private func countUnknown(of copies: [OtherCopies.Copy], at position: UInt64) {
    let before = state.withLock { ($0.position, $0.contacts, $0.unknown) }
    let start = System.monotonicSeconds
    let hasMetAny = copies.contains { $0.contact != nil }
    var (unknown, contacts): ([DeviceID: UnknownWrites], [DeviceID: Contact]) = ([:], [:])
    // A member that only others meet is left to them: all keys would count.
    for copy in copies where copy.contact != nil || !hasMetAny {
      contacts[copy.device] = copy.contact
      if before.0 == position, before.1[copy.device] == copy.contact, let known = before.2[copy.device] {
        // Nothing was appended, and the member has confirmed nothing more.
        unknown[copy.device] = known
      } else {
        unknown[copy.device] = try? OtherCopies.unknown(to: copy, store)
      }
    }
    let end = System.monotonicSeconds
    state.withLock { [unknown, contacts] state in
      (state.unknown, state.position, state.contacts) = (unknown, position, contacts)
      // While little is unsent, every page has the present figures.
      let pause = (end - start) / Self.shareOfTime
      state.nextUnknown = end + (pause < 1 ? 0 : max(pause, Self.secondsBetweenMemberPasses))
      state.isCountingUnknown = false
    }
  }

  /// Counts the keys in the background, unless that was done lately, or nothing was appended since.
  private func countLater(at position: UInt64) {
    let isDue = state.withLock { state in
      let now = System.monotonicSeconds
      guard !state.isCounting, now >= state.nextCount else { return false }
      guard state.countedPosition != position || now >= state.countedAt + Self.mostSecondsBetweenCounts else {
        return false
      }
      state.isCounting = true
      return true
    }
    guard isDue else { return }
    keyQueue.async { [self] in
      let start = System.monotonicSeconds
      let (status, absent) = (try? store.status(), try? store.absentValues())
      let files = (try? store.fileUsage()) ?? []
      let (time, end) = (System.wallMilliseconds, System.monotonicSeconds)
      state.withLock { state in
        if let status, let absent {
          state.counted = MonitorSnapshot.CountedKeys(
            time: time, status: status, absent: absent, files: files)
          (state.countedPosition, state.countedAt) = (position, end)
        }
        state.nextCount = end + max(Self.secondsBetweenCounts, (end - start) / Self.shareOfTime)
        state.isCounting = false
      }
    }
  }
}

/// Samples of the last hour, for the plots of the status page.
struct MonitorHistory: Sendable {
  /// Counters at one moment: a plot shows their growth.
  struct Sample: Equatable, Sendable {
    /// Milliseconds since 1970.
    var time: UInt64
    var sentBytes: UInt64 = 0, receivedBytes: UInt64 = 0
    var sentRecords: UInt64 = 0, receivedRecords: UInt64 = 0
    var syncs: UInt64 = 0
    var syncSeconds = 0.0
  }

  private(set) var samples: [Sample] = []

  static let secondsBetweenSamples: UInt64 = 30
  /// At the beginning, for a plot that appears soon: so many samples, at this distance.
  static let firstSamples = 8
  static let secondsBetweenFirst: UInt64 = 3
  static let mostSamples = 128

  /// Whether it is time for another sample. If the clock was set back, the history restarts.
  func isDue(at time: UInt64) -> Bool {
    guard let last = samples.last else { return true }
    let seconds = samples.count < Self.firstSamples ? Self.secondsBetweenFirst : Self.secondsBetweenSamples
    return time < last.time || time - last.time >= seconds * 1000
  }

  mutating func add(_ sample: Sample) {
    if let last = samples.last, sample.time < last.time { samples = [] }
    samples.append(sample)
    if samples.count > Self.mostSamples { samples.removeFirst(samples.count - Self.mostSamples) }
  }
}

extension MonitorHistory.Sample {
  init(time: UInt64, counters: StoreCounters, sessions: NodeCounters) {
    self.time = time
    for member in sessions.members.values {
      sentBytes += member.traffic.sentBytes
      receivedBytes += member.traffic.receivedBytes
      sentRecords += member.traffic.sentRecords
      receivedRecords += member.traffic.receivedRecords
    }
    (syncs, syncSeconds) = (counters.syncs.count, counters.syncs.seconds)
  }
}
