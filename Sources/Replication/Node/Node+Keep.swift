public import SyncStore

/// Whom a node keeps in step, and how.
public struct KeepPolicy: Hashable, Sendable {
  /// When copies meet.
  public enum Schedule: Hashable, Sendable {
    /// The connection stays: what is written here can be read there a moment later, and the other way round.
    case live
    /// Once in so many seconds, at least 1.
    case every(seconds: Int)
  }

  /// The names of those to be kept in step; nil for every one of which an address is known: who invited this copy, and the
  /// peers that were named (`Membership.add(_:)`).
  public var peers: StringSet?
  /// When copies meet.
  public var schedule: Schedule
  /// Milliseconds between two attempts that fail: at first, and at most. The bound doubles with each failure, and the pause
  /// is drawn at random from its upper half (F71).
  public var retry: ClosedRange<UInt64>

  /// By default all, live, with pauses of 1 s to 20 s: a peer that is back is reached within half a minute.
  public init(
    peers: StringSet? = nil, schedule: Schedule = .live, retry: ClosedRange<UInt64> = 1_000...20_000
  ) {
    (self.peers, self.schedule, self.retry) = (peers, schedule, retry)
  }
}

extension Node {
  /// Keeps peers in step from now on, until `letGo` or `stop`, beside whatever else is done with the store: dials those that
  /// are not connected, again and again, and stays connected. Peers that are named, added or revoked later are noticed. Called
  /// again it changes the policy.
  public func keepInStep(_ policy: KeepPolicy = KeepPolicy()) {
    precondition(policy.retry.lowerBound >= 1, "a pause has at least a millisecond")
    let keeper = supervisor
    context.loop.execute { keeper.value.start(policy) }
    startEnforcingBlobLimits()
  }

  /// Tries all peers that are kept in step, and that are waited for, at once.
  package func retryNow() {
    let keeper = supervisor
    context.loop.execute { keeper.value.retryNow() }
  }

  /// Keeps nobody in step any more. Sessions that this node has dialled end, those that others dialled go on.
  public func stopKeepingInStep() {
    let keeper = supervisor
    context.loop.execute { keeper.value.stop() }
  }

  /// The state at present.
  public var state: NodeState { statePublisher.state }

  /// The state as it changes, beginning with the present one.
  public var states: NodeStates { NodeStates(publisher: statePublisher) }

  /// The state of one peer as it changes.
  ///
  /// - Parameter name: what it is called here.
  public func states(of name: String) -> PeerStates { PeerStates(name: name, publisher: statePublisher) }
}
