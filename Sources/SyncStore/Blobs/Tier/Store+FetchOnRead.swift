// Reading what is not here.
extension Store {
  /// Fetches a blob from whoever has it, and returns when it is here: what a running node gives.
  package typealias BlobFetching = @Sendable (BlobReference) throws(StoreError) -> Void

  /// Has blobs fetched that are read and are not here; nil ends it.
  package func setBlobFetching(_ fetching: BlobFetching?) { blobFetching.withLock { $0 = fetching } }

  /// Fetches a blob that could not be read. False if that cannot be done: nobody can fetch it, or this thread is within a
  /// transaction, for which the arrival would wait.
  private func fetch(_ blob: BlobReference, after error: StoreError) throws(StoreError) -> Bool {
    guard error.code == .blobUnavailable || error.code == .damaged, isWritable,
      !isInTransaction, let fetch = blobFetching.withLock({ $0 })
    else { return false }
    try fetch(blob)
    return true
  }

  /// Works on a blob. One that turns out rotten or gone is fetched, if a node runs; otherwise it is noted, to be fetched again with
  /// the next session (F44).
  func fetching<Result>(
    _ blob: BlobReference, _ body: (BlobStore) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    do throws(StoreError) { return try body(try blobs) } catch {
      guard error.code == .damaged || error.code == .blobUnavailable else { throw error }
      var failure = error
      do throws(StoreError) {
        if try fetch(blob, after: error) { return try body(try blobs) }
      } catch {
        failure = error
      }
      if failure.code == .blobUnavailable { failure = unavailable(blob, failure) }
      // Within a transaction, or on a full disk, it cannot be noted now: the next reader does.
      if isWritable { _ = try? want(blob) }
      throw failure
    }
  }

  /// The error of a blob that is not here, which says why and who has it as far as is known.
  func unavailable(_ blob: BlobReference, _ error: StoreError) -> StoreError {
    let reason = (try? absence(of: blob.hash))?.reason
    let why =
      switch reason {
      case .evicted: "has left this copy to keep its limits"
      case .leftOut: "was left out of this copy by its policy"
      case .awaited, nil: "is not here"
      }
    let names = ((try? blobs)?.holders(of: blob.hash) ?? []).compactMap { memberName($0) }
    // What a node said of its attempt stays.
    let attempt =
      error.message.hasPrefix(BlobStore.unavailable(blob.hash).message) ? "" : ": \(error.message)"
    let holders =
      names.isEmpty
      ? "sync with a member that has it" : "sync with \(names.joined(separator: " or ")), who had it last"
    return StoreError(
      .blobUnavailable, "the content of blob \(blob.hash) \(why)\(attempt): \(holders)", path: error.path,
      errno: error.errno)
  }

  /// What a member is called; nil if there is no such member.
  private func memberName(_ device: [UInt8]) -> String? {
    guard let device = DeviceID(bytes: device), let value = try? reserved(ReservedKey.member(device)) else {
      return nil
    }
    return (try? MemberRecord(bytes: value))?.name
  }
}
