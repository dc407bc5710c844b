public import SyncStore

/// The state of one peer that a node keeps in step.
public struct PeerState: Hashable, Sendable {
  /// The activity with the peer.
  public enum Phase: Hashable, Sendable {
    /// No attempt or session; the next attempt follows automatically.
    case waiting
    /// A connection is being made.
    case connecting
    /// A session runs and brings the two copies in step.
    case catchingUp
    /// Both copies are in step and stay so: new records flow as they become durable.
    case live
  }

  /// Why an attempt failed.
  public struct Failure: Hashable, Sendable {
    /// The kind.
    public let code: ReplicationError.Code
    /// The failed operation, the cause, and the remedy.
    public let message: String
  }

  /// The peer's name on this copy.
  public internal(set) var name: String
  /// Its key, once it is known.
  public internal(set) var device: DeviceID?
  /// The activity with the peer.
  public internal(set) var phase = Phase.waiting
  /// Whether the peer dialled the present session.
  public internal(set) var isAccepted = false
  /// Milliseconds from the creation of this state until the next attempt, while waiting.
  public internal(set) var retryAfter: UInt64?
  /// When the next automatic attempt is due, in milliseconds since 1970, while waiting.
  public internal(set) var nextTry: UInt64?
  /// When this copy and the peer were last in step, or their live session began, in milliseconds since 1970.
  public internal(set) var lastSuccess: UInt64?
  /// Consecutive failed attempts.
  public internal(set) var failures = 0
  /// Why the last attempt failed; nil if it did not.
  public internal(set) var lastError: Failure?
  /// Progress of the present session, or of the last one.
  public internal(set) var progress = SessionProgress()
  /// The position of this copy's journal up to which the peer is known to hold everything durably.
  public internal(set) var received: UInt64?
  /// Milliseconds by which the peer's clock is ahead of this one's; nil before a session.
  public internal(set) var clockOffset: Int64?

  init(name: String, device: DeviceID?) { (self.name, self.device) = (name, device) }
}

/// The state of one relay that a node keeps in step.
public struct RelayState: Hashable, Sendable {
  /// The figures that a bill is made of.
  public struct Billing: Hashable, Sendable {
    /// Requests of this copy so far, also of other processes and before this node began.
    public internal(set) var usage = RelayUsage()
    /// Prices of the bucket; nil if they are not known.
    public internal(set) var prices: RelayPrices?
  }

  /// Deleting, once a day, what no member needs any more.
  public struct Collections: Hashable, Sendable {
    /// When this copy last did so, in milliseconds since 1970, also before this node began; nil for never.
    public internal(set) var last: UInt64?
    /// Consecutive attempts of this node that failed.
    public internal(set) var failures = 0
    /// Objects that this node has deleted, and their bytes.
    public internal(set) var objects = 0, bytes: UInt64 = 0
    /// Bytes of all objects in the relay after the last time; nil before this node has done so.
    public internal(set) var storedBytes: UInt64?
  }

  /// Its name on this copy.
  public internal(set) var name: String
  /// `dir:` and the path, or the bucket and the prefix.
  public internal(set) var location: String
  /// Whether objects are being read or written.
  public internal(set) var isBusy = false
  /// When it was last read to its end, and what was new here was published, in milliseconds since 1970.
  public internal(set) var lastSuccess: UInt64?
  /// When another member last wrote there, as far as this node has read, in milliseconds since 1970 by that
  /// member's clock; nil if none has.
  public internal(set) var lastNews: UInt64?
  /// When it is looked at next, in milliseconds since 1970, unless something is written before.
  public internal(set) var nextTry: UInt64?
  /// Consecutive failed attempts.
  public internal(set) var failures = 0
  /// Why the last attempt failed; nil if it did not.
  public internal(set) var lastError: PeerState.Failure?
  /// The position of this copy's journal up to which everything is durable in the relay.
  public internal(set) var published: UInt64?
  /// Entries of other members that wait for something that is not there.
  public internal(set) var waitingEntries: UInt64 = 0
  /// Objects that could not be used at the last attempt.
  public internal(set) var setAside: [RelayReport.SetAside] = []
  /// Records published and read by this node.
  public internal(set) var sentRecords = 0, receivedRecords = 0
  /// Deleting what no member needs any more there.
  public internal(set) var collections = Collections()
  /// Requests so far, and prices.
  public internal(set) var billing: Billing
  /// Requests and bytes of this node.
  public internal(set) var figures = ObjectStoreFigures()

  init(_ relay: RelayDescription) {
    (name, location, billing) = (relay.name, relay.location, Billing(prices: relay.prices))
  }
}

/// The state of a node.
public struct NodeState: Hashable, Sendable {
  /// Where it listens; nil if it does not.
  public internal(set) var listening: Endpoint?
  /// The peers that it keeps in step, in the order of their names.
  public internal(set) var peers: [PeerState] = []
  /// The relays that it keeps in step, in the order of their names.
  public internal(set) var relays: [RelayState] = []
  /// The devices with a live session, whichever side dialled, sorted: peers kept in step, and members that
  /// stay connected to this node. `Membership.member(_:)` gives their names.
  public internal(set) var connected: [DeviceID] = []
  /// Devices that two copies seem to use at once, displacing each other, each with the message about it.
  public internal(set) var identityConflicts: [DeviceID: String] = [:]
  /// Whether the node was stopped.
  public internal(set) var isStopped = false

  /// The peer with this name; nil if it is not kept in step.
  public subscript(peer: String) -> PeerState? { peers.first { $0.name == peer } }

  /// The relay with this name; nil if it is not kept in step.
  public subscript(relay name: String) -> RelayState? { relays.first { $0.name == name } }
}

/// The state of a node as it changes. A slow reader gets the newest state, not every one. Ends when the node
/// is stopped.
public struct NodeStates: AsyncSequence, Sendable {
  /// The state.
  public typealias Element = NodeState
  /// It does not fail.
  public typealias Failure = Never

  let publisher: StatePublisher

  /// Reads the states, beginning with the present one.
  public struct AsyncIterator: AsyncIteratorProtocol {
    var inner: AsyncStream<NodeState>.AsyncIterator

    /// The next state; nil once the node was stopped.
    public mutating func next() async -> NodeState? { await inner.next() }

    /// As `next()`, for a caller isolated to an actor.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> NodeState? {
      await inner.next(isolation: actor)
    }
  }

  /// A reader.
  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(inner: publisher.stream().makeAsyncIterator())
  }
}

/// The state of one peer as it changes; no elements while it is not kept in step.
public struct PeerStates: AsyncSequence, Sendable {
  /// The peer's state.
  public typealias Element = PeerState
  /// It does not fail.
  public typealias Failure = Never

  let name: String
  let publisher: StatePublisher

  /// Reads the states, beginning with the present one.
  public struct AsyncIterator: AsyncIteratorProtocol {
    let name: String
    var inner: AsyncStream<NodeState>.AsyncIterator
    var last: PeerState?

    /// The next state that differs from the last; nil once the node was stopped.
    public mutating func next() async -> PeerState? { await next(isolation: nil) }

    /// As `next()`, for a caller isolated to an actor.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> PeerState? {
      while let state = await inner.next(isolation: actor) {
        guard let peer = state[name], peer != last else { continue }
        last = peer
        return peer
      }
      return nil
    }
  }

  /// A reader.
  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(name: name, inner: publisher.stream().makeAsyncIterator())
  }
}

/// Holds the state of a node and notifies its readers.
final class StatePublisher: Sendable {
  private struct Content {
    var state = NodeState()
    var readers: [UInt64: AsyncStream<NodeState>.Continuation] = [:]
    var last: UInt64 = 0
  }

  private let content = LockedField(Content())

  /// The present state.
  var state: NodeState { content.withLock { $0.state } }

  /// Changes the state, and notifies the readers if it differs.
  func change(_ body: (inout NodeState) -> Void) {
    let (state, readers) = content.withLock { content -> (NodeState, [AsyncStream<NodeState>.Continuation]) in
      let before = content.state
      body(&content.state)
      return (content.state, content.state == before ? [] : Array(content.readers.values))
    }
    for reader in readers { reader.yield(state) }
  }

  /// The node has ended.
  func end() {
    change { state in
      state.isStopped = true
      (state.peers, state.relays) = ([], [])
      state.listening = nil
    }
    let readers = content.withLock { content in
      defer { content.readers = [:] }
      return Array(content.readers.values)
    }
    for reader in readers { reader.finish() }
  }

  func stream() -> AsyncStream<NodeState> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: NodeState.self, bufferingPolicy: .bufferingNewest(1))
    let number = content.withLock { content in
      content.last += 1
      continuation.yield(content.state)
      if content.state.isStopped {
        continuation.finish()
      } else {
        content.readers[content.last] = continuation
      }
      return content.last
    }
    continuation.onTermination = { [weak self] _ in
      self?.content.withLock { _ = $0.readers.removeValue(forKey: number) }
    }
    return stream
  }
}
