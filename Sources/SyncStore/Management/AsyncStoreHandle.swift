/// A handle for asynchronous code: what waits for the store to be opened, for those who work with it, or for the disk, does
/// so on a thread that may block, never on one of the cooperative pool.
///
/// ```swift
/// let orders = AsyncStoreHandle(.at("orders"))
/// try await orders.withStore { try $0.put("a", 1) }
/// try await orders.close()
/// ```
///
/// A blockade belongs to a thread, and a task goes from thread to thread: keep others out by `close(_:)` instead.
///
/// *Cancellation*: a task that is cancelled before its work was begun gets `.cancelled`, and nothing was done.
public struct AsyncStoreHandle: Sendable {
  /// The handle itself.
  public let handle: StoreHandle

  /// That of a handle.
  public init(_ handle: StoreHandle) { self.handle = handle }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (StoreHandle) throws -> Result
  ) async throws -> Result {
    let handle = handle
    return try await AsyncStore.perform { () throws(StoreError) in
      Swift.Result { try work(handle) }
    }.get()
  }

  /// `StoreHandle.canOpen`.
  public var canOpen: Bool {
    get async { (try? await withStore { _ in true }) ?? false }
  }

  /// `StoreHandle.withStore`. `body` runs to its end on one thread.
  public func withStore<Result: Sendable>(
    _ body: @escaping @Sendable (Store) throws -> Result
  ) async throws -> Result {
    try await perform { try $0.withStore(body) }
  }

  /// `StoreHandle.close()`.
  public func close() async throws {
    try await perform { try $0.close() }
  }

  /// Closes the store, and runs `body` on one thread while nobody can open it: no task, no thread, no other process. As
  /// `StoreHandle.close(_:)`.
  public func close<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result
  {
    try await perform { try $0.close(body) }
  }

  /// `StoreHandle.files`.
  public var files: [String] {
    get async throws { try await perform { try $0.files } }
  }

  /// `StoreHandle.sizeOfFiles`, in bytes.
  public var sizeOfFiles: UInt64 {
    get async throws { try await perform { try $0.sizeOfFiles } }
  }

  /// `StoreHandle.remove`.
  @discardableResult
  public func remove() async throws -> Bool {
    try await perform { try $0.remove() }
  }

  /// `StoreHandle.move`.
  public func move(to newPath: String) async throws -> AsyncStoreHandle {
    try await perform { AsyncStoreHandle(try $0.move(to: newPath)) }
  }

  /// `StoreHandle.backUp`.
  @discardableResult
  public func backUp(to file: String, replacing: Bool = false) async throws -> BackupReport {
    try await perform { try $0.backUp(to: file, replacing: replacing) }
  }

  /// `StoreHandle.restore`.
  @discardableResult
  public func restore(from file: String, state: Int? = nil) async throws -> RestoreReport {
    try await perform { try $0.restore(from: file, state: state) }
  }
}
