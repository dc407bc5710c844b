public import SyncStore

extension Node {
  /// Widens the scope of a partial copy: fetches the keys it lacks from a peer that holds all. Keys that it
  /// has are not sent again; if interrupted, the next call of this or of `synchronize` resumes.
  ///
  /// - Parameters:
  ///   - scope: the whole new scope, including what the copy holds already; nil for all keys.
  ///   - peer: as for `synchronize`.
  ///   - progress: as for `synchronize`.
  /// - Throws: `.unavailable` if the peer holds only some of the keys, or lacks writes that this copy covers:
  ///   another peer can give them, or this one later; `.store` with `.outOfBounds` if `scope` lacks keys that
  ///   the copy holds; errors of `synchronize`.
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
