internal import SyncStore

/// The directory of a copy that is about to join.
struct NewCopy: Sendable {
  /// Its keys, which exist before the store does.
  let keys: StoreKeys
  private let path: String
  private let scope: KeyScope?
  private let configuration: SyncStore.Configuration
  private let environment: Environment
  private let workers: WorkerPool

  /// Makes the directory, durably. `.store` with `.alreadyExists` if there is a store in it.
  static func prepare(
    at path: String, scope: KeyScope?, configuration: SyncStore.Configuration, runtime: NodeRuntime
  ) async throws(ReplicationError) -> NewCopy {
    let path = try mappingStoreErrors { () throws(StoreError) in
      try runtime.environment.storage.canonicalPath(of: path)
    }
    // Anchored from here on: the directory may be renamed while the answer is pending.
    let environment = try await runtime.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in
        var environment = runtime.environment
        _ = try environment.storage.createDirectory(path)
        try environment.storage.syncParentDirectory(of: path)
        environment.storage = try environment.storage.anchored(at: path)
        guard try environment.storage.status(path + "/" + StoreIdentity.fileName) == nil else {
          throw StoreError(.alreadyExists, "there is a store already: join in another directory", path: path)
        }
        return environment
      }
    }
    return NewCopy(
      keys: StoreKeys(path: path, storage: environment.storage), path: path, scope: scope,
      configuration: configuration, environment: environment, workers: runtime.workers)
  }

  /// Makes the store of a device that was accepted. `introduce` notes where it finds the others, and returns
  /// the name of a relay that it has named.
  func create(
    _ accept: JoinAccept,
    introduce: @escaping @Sendable (Membership) throws(ReplicationError) -> String?
  ) async throws(ReplicationError) -> Joined {
    try await workers.run { () throws(ReplicationError) in
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
      return Joined(
        store: store, memberName: accept.memberName, inviterName: accept.inviterName,
        right: Member.Right(accept.right), relayName: try introduce(Membership(store)))
    }
  }
}
