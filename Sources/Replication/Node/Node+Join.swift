public import SyncStore

/// The result of redeeming an invitation.
public struct Joined: Sendable {
  /// The new copy, open.
  public let store: Store
  /// The name of this installation among the members: the requested name, made unique.
  public let memberName: String
  /// The inviter's name. It is a peer of this copy under that name.
  public let inviterName: String
  /// The right of this member.
  public let right: Member.Right
}

/// The services that joining runs on. Tests may pass others than those of the process.
struct NodeRuntime: Sendable {
  /// The machine that the store is on.
  var environment: Environment
  /// The event loop of the connections.
  var loop: EventLoop
  /// Runs blocking work.
  var workers: WorkerPool

  /// The real machine, with the loop and the workers that the nodes of this process share.
  static func real() throws(ReplicationError) -> NodeRuntime {
    NodeRuntime(environment: .real(), loop: try EventLoop.shared(), workers: .shared)
  }
}

extension Node {
  /// Redeems an invitation: this installation becomes a member, with a new, empty copy in `path`. Pulls
  /// nothing yet.
  ///
  /// If it fails after the inviter has accepted, it can be called again with the same token and directory.
  ///
  /// - Parameters:
  ///   - token: as returned by `invite`.
  ///   - path: a directory that is empty or does not exist.
  ///   - name: the wanted name; 1 to `Limits.nameBytes` bytes without blanks or slashes.
  ///   - scope: the keys that the copy holds; nil for all. It can be widened later (`widen`).
  ///   - configuration: how the new store is opened.
  ///   - timeout: seconds for which an inviter that answers but is overloaded, or breaks the connection, is
  ///     retried; an address that does not answer is not retried.
  /// - Throws: `.invalidInvitation` if the inviter does not know the token, or no longer does; `.notAMember`
  ///   if another device answers at the inviter's address; `.network`, `.timeout`; `.store` if the copy
  ///   cannot be made.
  public static func join(
    _ token: String, at path: String, name: String, scope: KeyScope? = nil,
    configuration: SyncStore.Configuration = SyncStore.Configuration(), timeout: UInt64 = 180
  ) async throws(ReplicationError) -> Joined {
    try await join(
      token, at: path, name: name, scope: scope, configuration: configuration, timeout: timeout,
      runtime: .real())
  }

  /// `join` with a given runtime, for tests.
  static func join(
    _ token: String, at path: String, name: String, scope: KeyScope? = nil,
    configuration: SyncStore.Configuration, timeout: UInt64 = 180, runtime: NodeRuntime
  ) async throws(ReplicationError) -> Joined {
    let invitation = try Invitation(text: token)
    guard StoreIdentity.isName(name) else {
      throw ReplicationError(
        .invalidInvitation,
        "cannot join as \"\(name)\": use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    let path = try mappingStoreErrors { () throws(StoreError) in
      try runtime.environment.storage.canonicalPath(of: path)
    }
    // Anchored from here on: the directory may be renamed while the inviter's answer is pending.
    let environment = try await runtime.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in
        var environment = runtime.environment
        _ = try environment.storage.createDirectory(path)
        try environment.storage.syncParentDirectory(of: path)
        environment.storage = try environment.storage.anchored(at: path)
        return environment
      }
    }
    let storage = environment.storage
    let keys = StoreKeys(path: path, storage: storage)
    // Made durable before it is presented: an answer that is lost can then be requested again.
    let identity = try await runtime.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in
        guard try storage.status(path + "/" + StoreIdentity.fileName) == nil else {
          throw StoreError(.alreadyExists, "there is a store already: join in another directory", path: path)
        }
      }
      return try keys.makeIdentity()
    }
    let accept = try await redeem(
      invitation, as: identity, name: name, timeout: timeout, runtime: runtime)
    let store = try await runtime.workers.run { () throws(ReplicationError) in
      try keys.replaceGroupKeys(
        with: try GroupKeyRing(text: String(decoding: accept.groupKeys, as: UTF8.self)))
      let store = try mappingStoreErrors { () throws(StoreError) in
        try Store.create(
          at: path, name: accept.storeName, id: accept.store, configuration: configuration,
          environment: environment)
      }
      // The key files were written before the store existed, hence not encrypted.
      try mappingStoreErrors { () throws(StoreError) in
        try store.rewriteKeyFiles()
        if let scope { try store.narrow(to: scope) }
        try store.setWriteDenial(Member.Right(accept.right).denial)
      }
      try Membership(store).add(
        Peer(name: accept.inviterName, addresses: invitation.addresses, device: invitation.inviter))
      return store
    }
    return Joined(
      store: store, memberName: accept.memberName, inviterName: accept.inviterName,
      right: Member.Right(accept.right))
  }

  private static func redeem(
    _ invitation: Invitation, as identity: DeviceIdentity, name: String, timeout: UInt64, runtime: NodeRuntime
  ) async throws(ReplicationError) -> JoinAccept {
    let context = try TLSContext(role: .client, identity: identity)
    let deadline = MonotonicClock.milliseconds() + min(timeout, 86_400) * 1000
    var backoff = Backoff(base: 100, cap: 2_000)
    while true {
      let failure: JoinerDriver.Failure
      switch await attempt(invitation, as: identity, name: name, context, runtime: runtime) {
      case .success(let accept): return accept
      case .failure(let why): failure = why
      }
      let pause = backoff.failed(random: UInt64.random(in: 0 ... .max))
      guard failure.isTransient, MonotonicClock.milliseconds() + pause < deadline else { throw failure.error }
      do {
        try await Task.sleep(for: .milliseconds(pause))
      } catch {
        throw failure.error
      }
    }
  }

  /// Tries one address after the other; the failure is that of the last, but a transient one takes
  /// precedence.
  private static func attempt(
    _ invitation: Invitation, as identity: DeviceIdentity, name: String, _ context: TLSContext,
    runtime: NodeRuntime
  ) async -> Result<JoinAccept, JoinerDriver.Failure> {
    var failure = JoinerDriver.Failure(
      ReplicationError(.network, "the invitation has no address: invite again"), reached: false)
    for address in invitation.addresses {
      guard let endpoint = Endpoint(address) else { continue }
      let result = await withCheckedContinuation { continuation in
        runtime.loop.execute {
          JoinerDriver.run(
            invitation, as: identity.id, name: name, at: endpoint, context: context, runtime: runtime
          ) { continuation.resume(returning: $0) }
        }
      }
      guard case .failure(let why) = result else { return result }
      // Other addresses of the same inviter would refuse as well. A transient failure takes precedence over
      // that of a dead address.
      if why.error.code == .invalidInvitation { return result }
      if why.isTransient || !failure.isTransient { failure = why }
    }
    return .failure(failure)
  }
}
