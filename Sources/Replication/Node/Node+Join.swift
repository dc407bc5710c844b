public import SyncStore

/// What came of an invitation.
public struct Joined: Sendable {
  /// The new copy, open.
  public let store: Store
  /// What this installation is called among the members: the name it asked for, made unique.
  public let memberName: String
  /// The inviter's name. It is a peer under that name now.
  public let inviterName: String
  /// What this member may do.
  public let right: Member.Right
}

extension Node {
  /// Redeems an invitation: this installation becomes a member, with a new, empty copy in `path`. Nothing is pulled yet.
  /// If it fails after the inviter has said yes, it can be run again with the same token and directory.
  ///
  /// - Parameters:
  ///   - token: what `invite` gave.
  ///   - path: a directory that is empty or does not exist.
  ///   - name: what to be called; 1 to `Limits.nameBytes` bytes without blanks or slashes.
  ///   - scope: which keys the copy is to hold; nil for all. It can hold more later (`widen`).
  ///   - configuration: how the new store is opened.
  /// - Throws: `.invalidInvitation` if the inviter does not know the token, or no longer; `.notAMember` if another device
  ///   answers at the inviter's address; `.network`, `.timeout`; `.store` if the copy cannot be made.
  public static func join(
    _ token: String, at path: String, name: String, scope: KeyScope? = nil,
    configuration: SyncStore.Configuration = SyncStore.Configuration()
  ) async throws(ReplicationError) -> Joined {
    try await join(
      token, at: path, name: name, scope: scope, configuration: configuration, environment: .real(),
      loop: try EventLoop.shared(),
      workers: .shared)
  }

  /// `join` with the surroundings given, for tests.
  package static func join(
    _ token: String, at path: String, name: String, scope: KeyScope? = nil,
    configuration: SyncStore.Configuration, environment: Environment,
    loop: EventLoop, workers: WorkerPool
  ) async throws(ReplicationError) -> Joined {
    let invitation = try Invitation(text: token)
    guard StoreIdentity.isName(name) else {
      throw ReplicationError(
        .invalidInvitation,
        "cannot join as \"\(name)\": use 1 to \(Limits.nameBytes) bytes without blanks or slashes")
    }
    let storage = environment.storage
    let path = try ofStore { () throws(StoreError) in try storage.place(of: path) }
    let keys = StoreKeys(path: path, storage: storage)
    // Kept before it is shown: an answer that gets lost can be asked for again.
    let identity = try await workers.run { () throws(ReplicationError) in
      try ofStore { () throws(StoreError) in
        _ = try storage.createDirectory(path)
        try storage.syncName(of: path)
        guard try storage.status(path + "/" + StoreIdentity.fileName) == nil else {
          throw StoreError(.alreadyExists, "there is a store already: join in another directory", path: path)
        }
      }
      return try keys.makeIdentity()
    }
    let accept = try await redeem(invitation, as: identity, name: name, loop: loop, workers: workers)
    let store = try await workers.run { () throws(ReplicationError) in
      try keys.replaceGroupKeys(
        with: try GroupKeyRing(text: String(decoding: accept.groupKeys, as: UTF8.self)))
      let store = try ofStore { () throws(StoreError) in
        try Store.create(
          at: path, name: accept.storeName, id: accept.store, configuration: configuration,
          environment: environment)
      }
      // They were made before the store was, and so in the clear.
      try ofStore { () throws(StoreError) in
        try store.rewriteKeyFiles()
        if let scope { try store.narrow(to: scope) }
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
    _ invitation: Invitation, as identity: DeviceIdentity, name: String, loop: EventLoop, workers: WorkerPool
  ) async throws(ReplicationError) -> JoinAccept {
    let context = try TLSContext(role: .client, identity: identity)
    var failure = ReplicationError(.network, "the invitation has no address: invite again")
    for address in invitation.addresses {
      guard let endpoint = Endpoint(address) else { continue }
      let result = await withCheckedContinuation { continuation in
        loop.execute {
          JoinerDriver.run(
            invitation, as: identity.id, name: name, at: endpoint, context: context, loop: loop,
            workers: workers
          ) { continuation.resume(returning: $0) }
        }
      }
      switch result {
      case .success(let accept): return accept
      case .failure(let error):
        failure = error
        // Another address of the same inviter answers the same.
        if error.code == .invalidInvitation { throw error }
      }
    }
    throw failure
  }
}
