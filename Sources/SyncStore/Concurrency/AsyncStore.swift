/// A store for asynchronous code. A call that may wait for other writers, a sync or a disk does so on a
/// thread of its own, never on one of the cooperative pool.
///
/// ```swift
/// let store = try await AsyncStore.open(at: path)
/// try await store.put("a", "1")
/// let value = try store.store.get("a")        // does not wait: call it directly
/// ```
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
/// Work that has begun runs to its end, except that a pausable transaction ends between two steps.
public struct AsyncStore: Sendable {
  /// The store itself, for calls that do not wait and for synchronous code.
  public let store: Store

  /// Wraps an open store.
  public init(_ store: Store) { self.store = store }

  // MARK: Opening

  /// `Store.open`.
  public static func open(
    at path: String, configuration: Configuration = Configuration()
  ) async throws(StoreError) -> AsyncStore {
    try await perform { () throws(StoreError) in
      AsyncStore(try Store.open(at: path, configuration: configuration))
    }
  }

  /// `Store.create`.
  public static func create(
    at path: String, name: String? = nil, id: StoreID? = nil, configuration: Configuration = Configuration()
  ) async throws(StoreError) -> AsyncStore {
    try await perform { () throws(StoreError) in
      AsyncStore(try Store.create(at: path, name: name, id: id, configuration: configuration))
    }
  }

  /// `Store.restore`.
  @discardableResult
  public static func restore(
    from file: String, to path: String, state: Int? = nil, replacing: Bool = false,
    progress: @escaping @Sendable (_ done: UInt64, _ total: UInt64) -> Void = { _, _ in }
  ) async throws(StoreError) -> RestoreReport {
    try await perform { () throws(StoreError) in
      try Store.restore(from: file, to: path, state: state, replacing: replacing, progress: progress)
    }
  }

  /// `Store.close`.
  public func close() async throws(StoreError) {
    // Close even if the task was cancelled.
    try await Self.perform(isCancellable: false) { () throws(StoreError) in try store.close() }
  }

  // MARK: Writing

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

  /// Sets a key to the content of a file, as `Store.put` does.
  public func put(
    _ key: Key, fileAt file: String, type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) async throws(StoreError) {
    try await perform { () throws(StoreError) in
      try store.put(key, fileAt: file, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Sets a key if its present state is the expected one, as `Store.put` does.
  public func put(
    _ key: Key, _ value: [UInt8], expecting expectation: Expected, type: ValueType = .bytes,
    expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) -> Dot? {
    try await perform { () throws(StoreError) in
      try store.put(
        key, value, expecting: expectation, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Deletes a key, as `Store.delete` does. False if it had no value.
  @discardableResult
  public func delete(_ key: Key, durability: Durability? = nil) async throws(StoreError) -> Bool {
    try await write(durability, isLarge: false) { durability throws(StoreError) in
      try store.delete(key, durability: durability)
    }
  }

  /// Deletes all keys in a range, as `Store.deleteAll` does.
  @discardableResult
  public func deleteAll(
    _ range: KeyRange = .all, durability: Durability? = nil
  ) async throws(StoreError) -> Int {
    try await perform { () throws(StoreError) in try store.deleteAll(range, durability: durability) }
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

  /// Performs several writes atomically, as `Store.transaction` does. `body` runs on one thread; other
  /// writers wait for it.
  public func transaction<Result: Sendable>(
    durability: Durability? = nil, _ body: @escaping @Sendable (inout Transaction) throws -> Result
  ) async throws -> Result {
    try await Self.performAny { try store.transaction(durability: durability, body) }
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
      try await Self.performAny {
        try store.pausableTransaction(durability: durability) { transaction in
          if isCancelled.withLock({ $0 }) { throw Self.cancelled }
          return try step(&transaction)
        }
      }
    } onCancel: {
      isCancelled.withLock { $0 = true }
    }
  }

  // MARK: Durability and maintenance

  /// Makes everything committed so far durable. As `Store.sync`.
  public func sync() async throws(StoreError) {
    try await perform { () throws(StoreError) in try store.sync() }
  }

  /// The value of a key, which may be in the blob tier; nil if it has none. As `Store.get`.
  public func get(_ key: Key) async throws(StoreError) -> Value? {
    try await perform { () throws(StoreError) in try store.get(key) }
  }

  /// The value that a change has written; nil for a delete. As `Change.value`.
  public func value(of change: Change) async throws(StoreError) -> Value? {
    guard change.blob != nil else { return try change.value() }
    return try await perform { () throws(StoreError) in try change.value() }
  }

  /// Writes the value of a key to a file, as `Store.export` does.
  public func export(_ key: Key, toFileAt file: String) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in try store.export(key, toFileAt: file) }
  }

  /// A snapshot of all keys and values, as `Store.snapshot` makes it; this may have to sort all keys.
  public func snapshot() async throws(StoreError) -> Snapshot {
    try await perform { () throws(StoreError) in try store.snapshot() }
  }

  /// Reads from a snapshot of the store, on a thread that may block. Concurrent writes do not show in it. The
  /// snapshot is closed at the end.
  ///
  /// - Throws: as `Store.snapshot`, and what `body` throws.
  public func withSnapshot<Result: Sendable>(
    _ body: @escaping @Sendable (Snapshot) throws -> Result
  ) async throws -> Result {
    try await Self.performAny {
      let snapshot = try store.snapshot()
      defer { snapshot.close() }
      return try body(snapshot)
    }
  }

  /// Reclaims the space of all superseded records, as `Store.compact` does.
  @discardableResult
  public func compact() async throws(StoreError) -> UInt64 {
    try await perform { () throws(StoreError) in try store.compact() }
  }

  /// Reclaims space in the journal and the blob tier and drops caches, as `Store.trim` does.
  @discardableResult
  public func trim() async throws(StoreError) -> UInt64 {
    try await perform { () throws(StoreError) in try store.trim() }
  }

  /// Backs the store up into one file, as `Store.backUp` does.
  @discardableResult
  public func backUp(
    to file: String, replacing: Bool = false, progress: @escaping @Sendable (UInt64) -> Void = { _ in }
  ) async throws(StoreError) -> BackupReport {
    try await perform { () throws(StoreError) in
      try store.backUp(to: file, replacing: replacing, progress: progress)
    }
  }

  /// Reads every record and every blob, as `Store.verify` does.
  public func verify() async throws(StoreError) -> VerificationReport {
    try await perform { () throws(StoreError) in try store.verify() }
  }

  /// Reads every record and every blob, as `Store.verify` does, and reports to `progress` how many bytes were
  /// read of the total.
  public func verify(
    progress: @escaping @Sendable (_ done: UInt64, _ total: UInt64) -> Void
  ) async throws(StoreError) -> VerificationReport {
    try await perform { () throws(StoreError) in try store.verify(progress: progress) }
  }

  /// Runs any other work with the store that may block, such as a scan, on a thread that may.
  ///
  /// - Throws: what `body` throws; `.cancelled`.
  public func withStore<Result: Sendable>(
    _ body: @escaping @Sendable (Store) throws -> Result
  ) async throws -> Result {
    try await Self.performAny { try body(store) }
  }
}

// MARK: Implementation

extension AsyncStore {
  static let cancelled = StoreError(.cancelled, "the task was cancelled: nothing was done from there on")

  func perform<Result: Sendable>(
    _ work: @escaping @Sendable () throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    try await Self.perform(work)
  }

  /// Runs work on a thread that may block. `.cancelled` if the task was cancelled before it began.
  package static func perform<Result: Sendable>(
    isCancellable: Bool = true, _ work: @escaping @Sendable () throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let cancellation = StartOrCancel()
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        Background.runBlocking {
          if isCancellable, !cancellation.begin() {
            return continuation.resume(returning: Swift.Result<Result, StoreError>.failure(cancelled))
          }
          continuation.resume(returning: Swift.Result { () throws(StoreError) in try work() })
        }
      }
    } onCancel: {
      cancellation.cancel()
    }
    return try result.get()
  }

  /// Runs work that may throw any error, on a thread that may block.
  private static func performAny<Result: Sendable>(
    _ work: @escaping @Sendable () throws -> Result
  ) async throws -> Result {
    try await perform { () throws(StoreError) in Swift.Result { try work() } }.get()
  }

  /// Performs a write. A small one that must be durable shares the append and the sync of other tasks' writes
  /// (`AsyncWriter`).
  private func write<Result: Sendable>(
    _ durability: Durability?, isLarge: Bool,
    _ append: @escaping @Sendable (Durability) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let wanted = durability ?? store.configuration.durability
    guard !isLarge, wanted == .full else {
      return try await perform { () throws(StoreError) in try append(wanted) }
    }
    let cancellation = StartOrCancel()
    let outcome = Locked<Result?>(nil)
    let store = store
    let failure = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        store.asyncWriter.add { () throws(StoreError) in
          guard cancellation.begin() else { throw Self.cancelled }
          let result = try append(.relaxed)
          outcome.withLock { $0 = result }
          return store
        } finish: { error in
          continuation.resume(returning: error)
        }
      }
    } onCancel: {
      cancellation.cancel()
    }
    if let failure { throw failure }
    guard let result = outcome.withLock({ $0 }) else { preconditionFailure("what did not fail has a result") }
    return result
  }
}

/// Decides which came first: the beginning of the work or its cancellation.
private final class StartOrCancel: Sendable {
  private let state = LockedField(State.open)

  private enum State { case open, begun, cancelled }

  /// Claims the beginning; false if the work was cancelled first.
  func begin() -> Bool {
    state.withLock { state in
      if state == .open { state = .begun }
      return state == .begun
    }
  }

  func cancel() {
    state.withLock { state in
      if state == .open { state = .cancelled }
    }
  }
}
