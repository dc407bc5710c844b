// Fetching missing blobs on read.
extension Store {
  /// Fetches a blob from a member that has it, and returns when it is here: provided by a running node.
  package typealias BlobFetching = @Sendable (BlobReference) throws(StoreError) -> Void

  /// Sets the function that fetches missing blobs on read; nil disables fetching.
  package func setBlobFetching(_ fetching: BlobFetching?) { blobTier.fetching.withLock { $0 = fetching } }

  /// Fetches a blob that could not be read. False if that is impossible: no node runs, or this thread is
  /// within a transaction, for which the arrival would have to wait.
  private func fetch(_ blob: BlobReference, after error: StoreError) throws(StoreError) -> Bool {
    guard error.code == .blobUnavailable || error.code == .damaged, isWritable,
      !isInTransaction, let fetch = blobTier.fetching.withLock({ $0 })
    else { return false }
    try fetch(blob)
    return true
  }

  /// Runs `body` on a blob that may be missing.
  ///
  /// A corrupt or missing blob is fetched if a node runs; otherwise it is recorded, to be fetched in the next
  /// session (F44).
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
      // Within a transaction, or on a full disk, it cannot be recorded now: the next reader does.
      if isWritable { _ = try? want(blob) }
      throw failure
    }
  }

  /// The error for a missing blob, with the reason and its last known holders.
  func unavailable(_ blob: BlobReference, _ error: StoreError) -> StoreError {
    let reason = (try? absence(of: blob.hash))?.reason
    let why =
      switch reason {
      case .evicted: "has left this copy to keep its limits"
      case .leftOut: "was left out of this copy by its policy"
      case .awaited, nil: "is not here"
      }
    let names = ((try? blobs)?.holders(of: blob.hash) ?? []).compactMap { memberName($0) }
    // Keep the node's account of its attempt.
    let attempt =
      error.message.hasPrefix(BlobStore.unavailable(blob.hash).message) ? "" : ": \(error.message)"
    let holders =
      names.isEmpty
      ? "sync with a member that has it" : "sync with \(names.joined(separator: " or ")), who had it last"
    return StoreError(
      .blobUnavailable, "the content of blob \(blob.hash) \(why)\(attempt): \(holders)", path: error.path,
      errno: error.errno)
  }

  /// The name of a member; nil if there is no such member.
  private func memberName(_ device: [UInt8]) -> String? {
    guard let device = DeviceID(bytes: device), let value = try? reserved(ReservedKey.member(device)) else {
      return nil
    }
    let given = (try? reserved(ReservedKey.memberName(device))).flatMap { MemberNameRecord.name(in: $0) }
    return given ?? (try? MemberRecord(bytes: value))?.name
  }
}
