public import SyncStore

/// Sessions and traffic of a node since it began, for metrics. Counters only grow.
public struct NodeCounters: Hashable, Sendable {
  /// Records, blobs and bytes moved between this copy and a member, by sessions that either side dialled.
  public struct Traffic: Hashable, Sendable {
    /// Records of users.
    public internal(set) var sentRecords: UInt64 = 0, receivedRecords: UInt64 = 0
    /// Blobs.
    public internal(set) var sentBlobs: UInt64 = 0, receivedBlobs: UInt64 = 0
    /// Bytes of messages, without TLS.
    public internal(set) var sentBytes: UInt64 = 0, receivedBytes: UInt64 = 0

    mutating func add(_ figures: SessionFigures) {
      sentRecords += UInt64(figures.sentRecords)
      receivedRecords += UInt64(figures.receivedRecords)
      sentBlobs += UInt64(figures.sentBlobs)
      receivedBlobs += UInt64(figures.receivedBlobs)
      sentBytes += UInt64(figures.sentBytes)
      receivedBytes += UInt64(figures.receivedBytes)
    }
  }

  /// A member, as its sessions have shown it.
  public struct MemberCounters: Hashable, Sendable {
    /// Records, blobs and bytes, in both directions.
    public internal(set) var traffic = Traffic()
    /// When it last was in step with this copy, in milliseconds since 1970, as far as `counters()` was called
    /// while its session was live; nil if it was not yet.
    public internal(set) var lastSuccess: UInt64?
    /// When it was last connected, in milliseconds since 1970; nil if it was not yet.
    public internal(set) var lastSeen: UInt64?
    /// Whether it is connected now, and whether that session is live.
    public internal(set) var isConnected = false, isLive = false

    /// Never met.
    package init() {}
  }

  /// How a session ended, or why it did not begin.
  public enum Result: Hashable, Sendable, CustomStringConvertible {
    /// Everything wanted is durable at its destination.
    case done
    /// One side became a new actor, or was busy: the session is repeated.
    case reconnect
    /// It failed, or no connection was made.
    case failed(ReplicationError.Code)

    /// `done`, `reconnect`, or the error's code.
    public var description: String {
      switch self {
      case .done: "done"
      case .reconnect: "reconnect"
      case .failed(let code): code.description
      }
    }
  }

  /// Ended sessions that this node dialled, and attempts that reached no session.
  public internal(set) var dialled: [Result: UInt64] = [:]
  /// Ended sessions that others dialled.
  public internal(set) var accepted: [Result: UInt64] = [:]
  /// The members that this node has met since it began.
  public internal(set) var members: [DeviceID: MemberCounters] = [:]
  /// Keys whose contents differed under the same writes, and that were repaired.
  public internal(set) var repairedKeys: UInt64 = 0

  init() {}

  /// Counts a session that has ended.
  mutating func ended(_ end: SessionDriver.End, with device: DeviceID, wasDialled: Bool, at now: UInt64) {
    count(Self.result(of: end.outcome), wasDialled: wasDialled)
    members[device, default: MemberCounters()].traffic.add(end.figures)
    members[device]?.lastSeen = now
    if end.outcome == .done { members[device]?.lastSuccess = now }
  }

  /// Counts the result of a session, or of an attempt to begin one.
  mutating func count(_ result: Result, wasDialled: Bool) {
    if wasDialled { dialled[result, default: 0] += 1 } else { accepted[result, default: 0] += 1 }
  }

  private static func result(of outcome: SessionOutcome) -> Result {
    switch outcome {
    case .done: .done
    case .reconnect: .reconnect
    case .failed(let code, _): .failed(code)
    }
  }
}

extension NodeCore {
  /// The counters, with the sessions that are under way. Loop's thread only.
  func presentCounters(at now: UInt64) -> NodeCounters {
    var present = counters
    for driver in drivers {
      let device = driver.remotePeer.device
      var member = present.members[device] ?? NodeCounters.MemberCounters()
      member.traffic.add(driver.figures)
      (member.lastSeen, member.isConnected) = (now, true)
      if driver.isLive { member.isLive = true }
      if driver.isLive, driver.isAtRest {
        // In step. Kept, too: the session may break off before the next call.
        member.lastSuccess = now
        counters.members[device, default: NodeCounters.MemberCounters()].lastSuccess = now
      }
      present.members[device] = member
    }
    return present
  }
}

extension Node {
  /// Sessions and traffic since this node began.
  public func counters() async -> NodeCounters {
    let (core, now) = (core, store.environment.now())
    return await withCheckedContinuation { continuation in
      context.loop.execute { continuation.resume(returning: core.value.presentCounters(at: now)) }
    }
  }
}
