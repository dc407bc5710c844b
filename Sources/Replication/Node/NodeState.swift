public import SyncStore

/// How a node stands to one peer that it keeps in step.
public struct PeerState: Hashable, Sendable {
  /// What is going on.
  public enum Phase: Hashable, Sendable {
    /// Nothing is under way; it is tried again by itself.
    case waiting
    /// A connection is being made.
    case connecting
    /// A session runs: both copies are being brought together.
    case catchingUp
    /// Both copies are in step, and stay so: new records flow as they become durable.
    case live
  }

  /// Why something did not succeed.
  public struct Failure: Hashable, Sendable {
    /// The kind.
    public let code: ReplicationError.Code
    /// What failed, why, and what to do.
    public let message: String
  }

  /// What the peer is called here.
  public internal(set) var name: String
  /// Its key, once it is known.
  public internal(set) var device: DeviceID?
  /// What is going on.
  public internal(set) var phase = Phase.waiting
  /// Was the present session dialled by the peer?
  public internal(set) var isAccepted = false
  /// Milliseconds from the state's making until the next attempt, while waiting.
  public internal(set) var retryAfter: UInt64?
  /// When the next attempt is made by itself, in milliseconds since 1970, while waiting.
  public internal(set) var nextTry: UInt64?
  /// When this copy and the peer were last brought together, or their live session began, in milliseconds since 1970.
  public internal(set) var lastSuccess: UInt64?
  /// Attempts that have failed in a row.
  public internal(set) var failures = 0
  /// Why the last attempt failed; nil if it did not.
  public internal(set) var lastError: Failure?
  /// What the present session has moved, or the last one.
  public internal(set) var progress = SessionProgress()
  /// The position of this copy's journal up to which the peer holds everything, durably, as far as is known.
  public internal(set) var received: UInt64?
  /// Milliseconds by which the peer's clock is ahead of this one's, once it was met.
  public internal(set) var clockOffset: Int64?

  init(name: String, device: DeviceID?) { (self.name, self.device) = (name, device) }
}

/// What a node does.
public struct NodeState: Hashable, Sendable {
  /// Where it listens; nil if it does not.
  public internal(set) var listening: Endpoint?
  /// The peers that it keeps in step, in the order of their names.
  public internal(set) var peers: [PeerState] = []
  /// The devices with which a session is live at present, whoever has dialled, in their order: peers that are kept in step, and
  /// members that stay connected to this node. `Membership.member(_:)` tells their names.
  public internal(set) var connected: [DeviceID] = []
  /// Devices that seem to be used by two copies at once, which displace each other, with what there is to say of each.
  public internal(set) var identityConflicts: [DeviceID: String] = [:]
  /// Has it been stopped?
  public internal(set) var isStopped = false

  /// The peer with this name; nil if it is not kept in step.
  public subscript(peer: String) -> PeerState? { peers.first { $0.name == peer } }
}

/// The state of a node as it changes. Who reads slowly gets the newest state, not every one. It ends when the node is
/// stopped.
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

    /// The same, for who is isolated to an actor.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> NodeState? {
      await inner.next(isolation: actor)
    }
  }

  /// A reader.
  public func makeAsyncIterator() -> AsyncIterator {
    AsyncIterator(inner: publisher.stream().makeAsyncIterator())
  }
}

/// The state of one peer as it changes; nothing while it is not kept in step.
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

    /// The same, for who is isolated to an actor.
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

/// Where the state of a node is kept, for all who want to know.
final class StatePublisher: Sendable {
  private struct Content {
    var state = NodeState()
    var readers: [UInt64: AsyncStream<NodeState>.Continuation] = [:]
    var last: UInt64 = 0
  }

  private let content = LockedField(Content())

  /// The present state.
  var state: NodeState { content.withLock { $0.state } }

  /// Changes the state, and tells the readers if it is another one then.
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
      state.peers = []
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
