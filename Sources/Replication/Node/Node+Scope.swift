public import SyncStore

extension Node {
  /// Lets a copy of some of the keys hold more of them: gets what it lacks from a peer that holds all. What it has is not
  /// sent again; broken off, it goes on from there the next time that this, or `synchronize`, is called.
  ///
  /// - Parameters:
  ///   - scope: all that it is to hold, what it holds among it; nil for all keys.
  ///   - peer: as for `synchronize`.
  ///   - progress: as for `synchronize`.
  /// - Throws: `.unavailable` if the peer holds only some of the keys, or lacks writes that this copy covers: another one, or the
  ///   same one later, can give them; `.store` with `.outOfBounds` if `scope` lacks keys that the copy holds; what
  ///   `synchronize` throws.
  public func widen(
    to scope: KeyScope?, from peer: String,
    progress: @escaping @Sendable (SessionProgress) -> Void = { _ in }
  ) async throws(ReplicationError) -> SessionReport {
    let store = store
    try await context.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in _ = try store.widen(to: scope) }
    }
    let report = try await synchronize(with: peer, direction: .pull, progress: progress)
    let isLacking = try await context.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in try store.isWidening }
    }
    guard !isLacking else {
      throw ReplicationError(
        .unavailable,
        "\(report.peer) lacks writes that this copy knows of, and so cannot tell all that is to be held here: let it synchronize "
          + "with the members that made them, or ask another one")
    }
    return report
  }
}
