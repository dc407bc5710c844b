public import SyncStore

/// Which peers a node keeps in step, and how.
public struct KeepPolicy: Hashable, Sendable {
  /// When copies synchronize.
  public enum Schedule: Hashable, Sendable {
    /// The connection stays open: writes reach the other copy within moments, in both directions.
    case live
    /// Once in this many seconds, at least 1.
    case every(seconds: Int)
  }

  /// The names of the peers and relays; nil for all that are known: the inviter of this copy, and the peers
  /// and relays that were named (`Membership.add(_:)`).
  public var peers: StringSet?
  /// When copies synchronize.
  public var schedule: Schedule
  /// Bounds of the delay between failed attempts, in milliseconds: first and highest. The bound doubles with
  /// each failure, and the delay is drawn at random from its upper half (F71).
  public var retry: ClosedRange<UInt64>

  /// Seconds within which what is written here is published in relays, at least 1.
  public var publishSeconds = 5
  /// Seconds between two looks into a relay, at least 1; each pause is 80 to 120 % of it.
  public var pollSeconds = 10
  /// Milliseconds between two collections in a relay; shorter in tests.
  package var collectMilliseconds: UInt64 = 86_400_000

  /// By default all peers and relays, live, with delays of 1 s to 20 s: a peer that is back is reached within
  /// half a minute.
  public init(
    peers: StringSet? = nil, schedule: Schedule = .live, retry: ClosedRange<UInt64> = 1_000...20_000
  ) {
    (self.peers, self.schedule, self.retry) = (peers, schedule, retry)
  }
}

extension Node {
  /// Keeps peers in step until `stopKeepingInStep` or `stop`, concurrently with all other use of the store:
  /// dials those that are not connected, again and again, and stays connected.
  ///
  /// Relays are looked at, written to, and once a day freed of what no member needs any more.
  ///
  /// Peers that are named, added or revoked later are noticed. Another call changes the policy.
  public func keepInStep(_ policy: KeepPolicy = KeepPolicy()) {
    precondition(policy.retry.lowerBound >= 1, "a pause has at least a millisecond")
    let keeper = supervisor
    context.loop.execute { keeper.value.start(policy) }
    relays.start(policy, self)
    startEnforcingBlobLimits()
  }

  /// Tries all supervised peers that are waiting, at once.
  package func retryNow() {
    let keeper = supervisor
    context.loop.execute { keeper.value.retryNow() }
    relays.retryNow()
  }

  /// Stops keeping peers in step. Sessions that this node has dialled end; those that others dialled
  /// continue.
  public func stopKeepingInStep() {
    let keeper = supervisor
    context.loop.execute { keeper.value.stop() }
    // At once: a call of `keepInStep` that follows must not be undone.
    relays.halt()
  }

  /// The current state.
  public var state: NodeState { statePublisher.state }

  /// The state as it changes, beginning with the current one.
  public var states: NodeStates { NodeStates(publisher: statePublisher) }

  /// The state of one peer as it changes.
  ///
  /// - Parameter name: its name on this copy.
  public func states(of name: String) -> PeerStates { PeerStates(name: name, publisher: statePublisher) }
}
