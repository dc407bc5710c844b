/// A store for asynchronous code: writes of tasks that share their syncs, transactions, and `run` for every
/// other call that may block (`BlockingCalls`). Nothing here blocks a thread of the cooperative pool.
///
/// ```swift
/// let store = try await AsyncStore.open(at: path)
/// try await store.put("a", "1")               // concurrent tasks share one sync
/// let value = try store.store.get("a")        // does not wait: call it directly
/// let keys = try await store.run { try $0.list().count }
/// ```
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
/// Work that has begun runs to its end, except that a pausable transaction ends between two steps.
public struct AsyncStore: Sendable {
  /// The store itself, for calls that do not wait and for synchronous code.
  public let store: Store

  /// Wraps an open store.
  public init(_ store: Store) { self.store = store }

  // MARK: Opening and closing

  /// Opens a store, as `Store.open`.
  public static func open(
    at path: String, configuration: Configuration = Configuration()
  ) async throws(StoreError) -> AsyncStore {
    try await Store.run { () throws(StoreError) in
      AsyncStore(try Store.open(at: path, configuration: configuration))
    }
  }

  /// Opens a store, or creates it if there is none, as `Store.openOrCreate`.
  public static func openOrCreate(
    at path: String, name: String? = nil, configuration: Configuration = Configuration()
  ) async throws(StoreError) -> AsyncStore {
    try await Store.run { () throws(StoreError) in
      AsyncStore(try Store.openOrCreate(at: path, name: name, configuration: configuration))
    }
  }

  /// Creates a store, as `Store.create`.
  public static func create(
    at path: String, name: String? = nil, id: StoreID? = nil, configuration: Configuration = Configuration()
  ) async throws(StoreError) -> AsyncStore {
    try await Store.run { () throws(StoreError) in
      AsyncStore(try Store.create(at: path, name: name, id: id, configuration: configuration))
    }
  }

  /// Closes the store, even if the task was cancelled. As `Store.close`.
  public func close() async throws(StoreError) {
    // A closure that does not throw is not cancelled.
    try await store.run { store in Swift.Result { () throws(StoreError) in try store.close() } }.get()
  }

  // MARK: Calls that block

  /// Makes calls of the store on a thread that may block, as `BlockingCalls.run`: any call that has no form
  /// of its own here.
  ///
  /// - Throws: what `body` throws; `.cancelled`, unless `body` cannot throw a `StoreError`.
  @discardableResult
  public func run<Result: Sendable, Failure: Error>(
    _ body: @escaping @Sendable (Store) throws(Failure) -> Result
  ) async throws(Failure) -> Result {
    try await store.run(body)
  }

  // MARK: Writes that share syncs

  /// Sets a key, as `Store.put` does. Concurrent tasks share one sync (group commit).
  public func put(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) async throws(StoreError) {
    try await write(durability, isLarge: value.count > store.configuration.blobThreshold) {
      durability throws(StoreError) in
      try store.put(key, value, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Sets a key to a value of any type that can be encoded, as `Store.put` does.
  @_disfavoredOverload
  public func put(
    _ key: Key, _ value: some Encodable, expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) {
    let form = try EncodedValue(value)
    try await put(key, form.bytes, type: form.type, expiration: expiration, durability: durability)
  }

  /// Deletes a key, as `Store.delete` does. False if it had no value.
  @discardableResult
  public func delete(_ key: Key, durability: Durability? = nil) async throws(StoreError) -> Bool {
    try await write(durability, isLarge: false) { durability throws(StoreError) in
      try store.delete(key, durability: durability)
    }
  }

  /// Changes when the value of a key expires, as `Store.expire` does.
  @discardableResult
  public func expire(
    _ key: Key, _ expiration: Expiration, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    try await write(durability, isLarge: false) { durability throws(StoreError) in
      try store.expire(key, expiration, durability: durability)
    }
  }

  // MARK: Transactions

  /// Performs several writes atomically, as `Store.transaction` does. `body` runs on one thread; other
  /// writers wait for it.
  public func transaction<Result: Sendable>(
    durability: Durability? = nil, _ body: @escaping @Sendable (inout Transaction) throws -> Result
  ) async throws -> Result {
    try await store.run { try $0.transaction(durability: durability, body) }
  }

  /// Performs a large amount of work in steps, as `Store.pausableTransaction` does. If the task is cancelled,
  /// the next step is not begun: `.cancelled` is thrown, and the earlier steps stay.
  @discardableResult
  public func pausableTransaction(
    durability: Durability? = nil,
    _ step: @escaping @Sendable (inout Transaction) throws -> TransactionStep
  ) async throws -> PausableReport {
    let isCancelled = Locked(false)
    return try await withTaskCancellationHandler {
      try await store.run { store in
        try store.pausableTransaction(durability: durability) { transaction in
          if isCancelled.withLock({ $0 }) { throw StoreError.taskCancelled }
          return try step(&transaction)
        }
      }
    } onCancel: {
      isCancelled.withLock { $0 = true }
    }
  }
}

extension AsyncStore {
  /// Performs a write. A small one that must be durable shares the append and the sync of other tasks' writes
  /// (`AsyncWriter`).
  private func write<Result: Sendable>(
    _ durability: Durability?, isLarge: Bool,
    _ append: @escaping @Sendable (Durability) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let wanted = durability ?? store.configuration.durability
    guard !isLarge, wanted == .full else {
      return try await store.run { _ throws(StoreError) in try append(wanted) }
    }
    let start = StartOrCancel()
    let outcome = Locked<Result?>(nil)
    let store = store
    let failure = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        store.asyncWriter.add { () throws(StoreError) in
          guard start.begin() else { throw .taskCancelled }
          let result = try append(.relaxed)
          outcome.withLock { $0 = result }
          return store
        } finish: { error in
          continuation.resume(returning: error)
        }
      }
    } onCancel: {
      start.cancel()
    }
    if let failure { throw failure }
    guard let result = outcome.withLock({ $0 }) else { preconditionFailure("what did not fail has a result") }
    return result
  }
}
