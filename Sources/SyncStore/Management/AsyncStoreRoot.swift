/// A directory of stores for asynchronous code. File accesses run on a thread that may block, never on the
/// cooperative pool.
///
/// ```swift
/// let root = AsyncStoreRoot(try .standard())
/// let reports = try await root.backUpAll(to: "/var/backups/stores")
/// ```
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
/// Work that has begun runs to its end.
public struct AsyncStoreRoot: Sendable {
  /// The underlying directory.
  public var root: StoreRoot

  /// Wraps a root.
  public init(_ root: StoreRoot) { self.root = root }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (StoreRoot) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let root = root
    return try await AsyncStore.perform { () throws(StoreError) in try work(root) }
  }

  /// The handle of the store of that name. As `StoreRoot.store`.
  public func store(
    _ name: String = StoreRoot.defaultName, creates: Bool = true
  ) async throws(StoreError) -> AsyncStoreHandle {
    try await perform { root throws(StoreError) in
      AsyncStoreHandle(try root.store(name, creates: creates))
    }
  }

  /// The names of all stores in it, sorted. As `StoreRoot.names`.
  public func names() async throws(StoreError) -> [String] {
    try await perform { root throws(StoreError) in try root.names() }
  }

  /// Whether there is a store of that name. As `StoreRoot.contains`.
  public func contains(_ name: String) async throws(StoreError) -> Bool {
    try await perform { root throws(StoreError) in try root.contains(name) }
  }

  /// Backs up all stores, each into `directory/NAME.backup`. As `StoreRoot.backUpAll`.
  ///
  /// - Throws: at the first failure; the stores before it are backed up. `.cancelled` before the first.
  @discardableResult
  public func backUpAll(to directory: String) async throws(StoreError) -> StringDictionary<BackupReport> {
    try await perform { root throws(StoreError) in try root.backUpAll(to: directory) }
  }

  /// Restores each `directory/NAME.backup`, replacing the store of that name if there is one. As
  /// `StoreRoot.restoreAll`.
  ///
  /// - Throws: at the first failure; the stores before it are restored. `.cancelled` before the first.
  @discardableResult
  public func restoreAll(from directory: String) async throws(StoreError) -> StringDictionary<RestoreReport> {
    try await perform { root throws(StoreError) in try root.restoreAll(from: directory) }
  }
}
