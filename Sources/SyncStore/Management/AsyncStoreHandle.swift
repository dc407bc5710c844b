/// A store handle for asynchronous code. Opening, waiting for exclusive access and disk accesses run on a
/// thread that may block, never on the cooperative pool.
///
/// ```swift
/// let orders = AsyncStoreHandle(.at("orders"))
/// try await orders.withStore { try $0.put("a", 1) }
/// try await orders.close()
/// ```
///
/// A blockade belongs to a thread, and a task moves between threads: use `close(_:)` for exclusive access
/// instead.
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
public struct AsyncStoreHandle: Sendable {
  /// The underlying handle.
  public let handle: StoreHandle

  /// Wraps a handle.
  public init(_ handle: StoreHandle) { self.handle = handle }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (StoreHandle) throws -> Result
  ) async throws -> Result {
    let handle = handle
    return try await AsyncStore.perform { () throws(StoreError) in
      Swift.Result { try work(handle) }
    }.get()
  }

  /// As `StoreHandle.canOpen`.
  public var canOpen: Bool {
    get async { (try? await withStore { _ in true }) ?? false }
  }

  /// As `StoreHandle.withStore`. `body` runs to its end on one thread.
  public func withStore<Result: Sendable>(
    _ body: @escaping @Sendable (Store) throws -> Result
  ) async throws -> Result {
    try await perform { try $0.withStore(body) }
  }

  /// As `StoreHandle.close()`.
  public func close() async throws {
    try await perform { try $0.close() }
  }

  /// Closes the store, and runs `body` on one thread while no task, thread or other process can open it. As
  /// `StoreHandle.close(_:)`.
  public func close<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result
  {
    try await perform { try $0.close(body) }
  }

  /// As `StoreHandle.files`.
  public var files: [String] {
    get async throws { try await perform { try $0.files } }
  }

  /// As `StoreHandle.sizeOfFiles`, in bytes.
  public var sizeOfFiles: UInt64 {
    get async throws { try await perform { try $0.sizeOfFiles } }
  }

  /// As `StoreHandle.remove`.
  @discardableResult
  public func remove() async throws -> Bool {
    try await perform { try $0.remove() }
  }

  /// As `StoreHandle.move`.
  public func move(to newPath: String) async throws -> AsyncStoreHandle {
    try await perform { AsyncStoreHandle(try $0.move(to: newPath)) }
  }

  /// As `StoreHandle.backUp`.
  @discardableResult
  public func backUp(to file: String, replacing: Bool = false) async throws -> BackupReport {
    try await perform { try $0.backUp(to: file, replacing: replacing) }
  }

  /// As `StoreHandle.restore`.
  @discardableResult
  public func restore(from file: String, state: Int? = nil) async throws -> RestoreReport {
    try await perform { try $0.restore(from: file, state: state) }
  }
}
