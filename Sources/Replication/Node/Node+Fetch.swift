private import Dispatch
public import SyncStore

/// Progress of the transfer of one large value.
public struct BlobProgress: Hashable, Sendable {
  /// Bytes stored here.
  public let bytes: UInt64
  /// Size of the value in bytes.
  public let total: UInt64
}

// Fetching large values on demand.
extension Node {
  /// Fetches the large value of a key, unless it is here, from any member that has it, connected or dialled
  /// for it. Resumes at the byte where an earlier attempt broke off. Returns once the value can be read.
  ///
  /// `Store.get` and other reads do this implicitly, and wait (`Configuration.fetchesOnRead`).
  ///
  /// - Parameter progress: called on the event loop as bytes arrive: it must not block.
  /// - Returns: false if the key has no value.
  /// - Throws: `.unavailable` if no reachable member has it: the message states each one's reason; `.store`.
  @discardableResult
  public func fetch(
    _ key: Key, progress: @escaping @Sendable (BlobProgress) -> Void = { _ in }
  ) async throws(ReplicationError) -> Bool {
    let store = store
    let entry = try await context.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in try store.entry(key) }
    }
    guard let entry else { return false }
    guard let blob = entry.blob else { return true }
    let isHere = try await context.workers.run { () throws(ReplicationError) in
      try mappingStoreErrors { () throws(StoreError) in try store.blobs.has(blob) }
    }
    if isHere { return true }
    let core = core
    let result = await withCheckedContinuation { continuation in
      context.loop.execute {
        core.value.blobFetches.fetch(blob) {
          progress(BlobProgress(bytes: $0, total: $1))
        } completion: {
          continuation.resume(returning: $0)
        }
      }
    }
    try result.get()
    return true
  }

  /// Makes reads of a missing large value fetch it, while the reader waits.
  func fetchOnRead() {
    // The store outlives the node, and must not retain it.
    store.setBlobFetching { [weak self] blob throws(StoreError) in
      guard let self else {
        throw StoreError(.blobUnavailable, "the node that would fetch it has ended: start one again")
      }
      let (core, loop) = (core, context.loop)
      guard !loop.isCurrent else {
        throw StoreError(.blobUnavailable, "the thread of the network cannot wait for it: read it on another")
      }
      let (done, failure) = (DispatchSemaphore(value: 0), Locked<ReplicationError?>(nil))
      loop.execute {
        core.value.blobFetches.fetch(blob) { result in
          if case .failure(let error) = result { failure.withLock { $0 = error } }
          done.signal()
        }
      }
      done.wait()
      guard let error = failure.withLock({ $0 }) else { return }
      if let error = error.store { throw error }
      throw StoreError(.blobUnavailable, error.message)
    }
  }
}
