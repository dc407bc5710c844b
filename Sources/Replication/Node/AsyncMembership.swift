public import SyncStore

/// `Membership` for asynchronous code: each call runs on a thread that may block, never on the cooperative
/// pool.
///
/// ```swift
/// let membership = AsyncMembership(store)
/// for member in try await membership.members() { print(member.name) }
/// ```
///
/// *Cancellation*: a task cancelled before its work has begun throws `.store` with `.cancelled`; nothing was
/// done.
public struct AsyncMembership: Sendable {
  /// The synchronous counterpart, which this type forwards to.
  public let membership: Membership

  /// The members of `store`.
  public init(_ store: AsyncStore) { self.init(store.store) }

  /// The members of `store`.
  public init(_ store: Store) { membership = Membership(store) }

  private func perform<Answer: Sendable>(
    _ work: @escaping @Sendable (Membership) throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let membership = membership
    return try await Blocking.run { () throws(ReplicationError) in try work(membership) }
  }

  /// `Membership.members`.
  public func members() async throws(ReplicationError) -> [Member] {
    try await perform { membership throws(ReplicationError) in try membership.members() }
  }

  /// `Membership.member(_:)`.
  public func member(_ device: DeviceID) async throws(ReplicationError) -> Member? {
    try await perform { membership throws(ReplicationError) in try membership.member(device) }
  }

  /// `Membership.member(named:)`.
  public func member(named name: String) async throws(ReplicationError) -> Member? {
    try await perform { membership throws(ReplicationError) in try membership.member(named: name) }
  }

  /// `Membership.revoke`.
  public func revoke(_ name: String) async throws(ReplicationError) {
    try await perform { membership throws(ReplicationError) in try membership.revoke(name) }
  }

  /// `Membership.setRight`.
  @discardableResult
  public func setRight(_ right: Member.Right, of name: String) async throws(ReplicationError) -> Bool {
    try await perform { membership throws(ReplicationError) in try membership.setRight(right, of: name) }
  }

  /// `Membership.revokeAndRenewKeys`.
  @discardableResult
  public func revokeAndRenewKeys(_ name: String) async throws(ReplicationError) -> UInt32 {
    try await perform { membership throws(ReplicationError) in try membership.revokeAndRenewKeys(name) }
  }

  /// `Membership.invitations`.
  public func invitations() async throws(ReplicationError) -> [OpenInvitation] {
    try await perform { membership throws(ReplicationError) in try membership.invitations() }
  }

  /// `Membership.withdrawInvitation`.
  public func withdrawInvitation(_ id: String) async throws(ReplicationError) -> Bool {
    try await perform { membership throws(ReplicationError) in try membership.withdrawInvitation(id) }
  }

  /// `Membership.contact`.
  public func contact(of device: DeviceID) async throws(ReplicationError) -> Contact? {
    try await perform { membership throws(ReplicationError) in try membership.contact(of: device) }
  }

  /// `Membership.peers`.
  public func peers() async throws(ReplicationError) -> [Peer] {
    try await perform { membership throws(ReplicationError) in try membership.peers() }
  }

  /// `Membership.peer(named:)`.
  public func peer(named name: String) async throws(ReplicationError) -> Peer? {
    try await perform { membership throws(ReplicationError) in try membership.peer(named: name) }
  }

  /// `Membership.add`.
  public func add(_ peer: Peer) async throws(ReplicationError) {
    try await perform { membership throws(ReplicationError) in try membership.add(peer) }
  }

  /// `Membership.remove(peer:)`.
  public func remove(peer name: String) async throws(ReplicationError) -> Bool {
    try await perform { membership throws(ReplicationError) in try membership.remove(peer: name) }
  }
}

/// Blocking calls of `Node`, for an `AsyncStore`.
extension Node {
  /// Prepares a new store for members, on a thread that may block. As `prepare` of a `Store`.
  public static func prepare(_ store: AsyncStore, name: String) async throws(ReplicationError) {
    try await Blocking.run { () throws(ReplicationError) in try prepare(store.store, name: name) }
  }

  /// Makes an invitation, on a thread that may block. As `invite` to a `Store`, with the same bounds.
  public static func invite(
    to store: AsyncStore, lifetime: UInt64 = 600, right: Member.Right = .readWrite, addresses: [Endpoint] = []
  ) async throws(ReplicationError) -> String {
    try await Blocking.run { () throws(ReplicationError) in
      try invite(to: store.store, lifetime: lifetime, right: right, addresses: addresses)
    }
  }

  /// Makes a node for a store that was prepared or joined; reads its keys on a thread that may block.
  ///
  /// - Throws: as `init(store:configuration:)` of a `Store`.
  public static func make(
    store: AsyncStore, configuration: Configuration = Configuration()
  ) async throws(ReplicationError) -> Node {
    try await Blocking.run { () throws(ReplicationError) in
      try Node(store: store.store, configuration: configuration)
    }
  }
}

/// Runs blocking work for a caller that must not block.
///
/// Not on the workers of nodes: work that waits there for a writer would stall sessions.
private enum Blocking {
  static func run<Answer: Sendable>(
    _ work: @escaping @Sendable () throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let result: Result<Answer, ReplicationError>
    do throws(StoreError) {
      result = try await AsyncStore.perform { () throws(StoreError) in
        Result { () throws(ReplicationError) in try work() }
      }
    } catch {
      throw ReplicationError(error)
    }
    return try result.get()
  }
}
