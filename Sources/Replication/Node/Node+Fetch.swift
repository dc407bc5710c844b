private import Dispatch
public import SyncStore

/// How far the transfer of one large value has come.
public struct BlobProgress: Hashable, Sendable {
  /// Bytes that are here.
  public let bytes: UInt64
  /// Bytes that it has.
  public let total: UInt64
}

// Large values that are read and are not here.
extension Node {
  /// Fetches the large value of a key, if it is not here, from whichever member has it: one that is connected, or one that is
  /// dialled for it. It goes on at the byte where an earlier attempt broke off. Returns when it can be read; false if the key has
  /// no value.
  ///
  /// `Store.get` and whatever else reads it does the same by itself, and waits (`Configuration.fetchesOnRead`).
  ///
  /// - Parameter progress: told on the event loop as bytes come: it must not block.
  /// - Throws: `.unavailable` if no member that can be reached has it: the message says what each one said; `.store`.
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

  /// Has what is read and is not here fetched while the reader waits.
  func fetchOnRead() {
    // The store outlives the node, and must not keep it.
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
