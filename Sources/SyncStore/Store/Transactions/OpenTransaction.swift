private import Synchronization

/// A transaction that is begun, committed and rolled back by separate calls. Made by
/// `Store.beginTransaction`.
///
/// ```swift
/// var open = try store.beginTransaction()
/// try open.transaction.put("a", "1")
/// try open.commit()                          // or open.rollBack(), or nothing at all
/// ```
///
/// Until it ends, no other thread and no other process can write. **It must be ended by the thread that began
/// it**: the writers' mutex belongs to a thread, so that its death is noticed. Hence the type is neither
/// copyable nor sendable, and a transaction cannot be begun in asynchronous code, which moves between
/// threads; use `AsyncStore.transaction` there. Dropping it rolls it back.
public struct OpenTransaction: ~Copyable {
  /// Reads and writes of the transaction.
  public var transaction: Transaction
  private let store: Store
  private let durability: Durability?
  private let hold: WriterLockHold

  fileprivate init(store: Store, durability: Durability?, hold: WriterLockHold) {
    (self.store, self.durability, self.hold) = (store, durability, hold)
    transaction = Transaction(
      store: store, builder: store.writes.newTransactionBuilder(limit: Limits.transactionBytes))
  }

  /// Commits all its writes atomically. They are as durable as the mode requires when this returns.
  ///
  /// - Throws: as `Store.transaction`: nothing was written then, unless it is `.poisoned`.
  public consuming func commit() throws(StoreError) {
    precondition(transaction.store === store, "it was exchanged for that of another store")
    do throws(StoreError) {
      try store.commit(&transaction)
    } catch {
      hold.end()
      throw error
    }
    let tail = store.control.tail
    hold.end()
    try store.awaitDurability(tail, durability: durability)
  }

  /// Discards all its writes.
  public consuming func rollBack() { hold.end() }
}

/// Holds the writers' mutex until `end`.
private final class WriterLockHold {
  private let store: Store
  private let thread: UInt
  private var isEnded = false

  /// The caller has acquired the mutex.
  init(_ store: Store) {
    (self.store, thread) = (store, SystemCall.thread)
    store.writes.transactionThread.store(thread, ordering: .relaxed)
  }

  func end() {
    guard !isEnded else { return }
    precondition(thread == SystemCall.thread, "a transaction is ended by the thread that has begun it")
    isEnded = true
    store.writes.transactionThread.store(0, ordering: .relaxed)
    store.control.unlock()
  }

  deinit { end() }
}

extension Store {
  /// Begins a transaction that lasts until it is committed or rolled back; see `OpenTransaction`. Waits for
  /// other writers.
  ///
  /// - Throws: as `transaction`; `.busy` within another transaction of this thread.
  @available(*, noasync, message: "its thread has to end it: use AsyncStore.transaction")
  public func beginTransaction(durability: Durability? = nil) throws(StoreError) -> OpenTransaction {
    try checkWritable()
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    return OpenTransaction(store: self, durability: durability, hold: WriterLockHold(self))
  }

  /// Begins a transaction unless another thread or process is writing; nil if one is.
  ///
  /// - Throws: as `beginTransaction`.
  @available(*, noasync, message: "its thread has to end it: use AsyncStore.transaction")
  public func tryBeginTransaction(durability: Durability? = nil) throws(StoreError) -> OpenTransaction? {
    try checkWritable()
    guard try writes.lockWriters(waits: false) else { return nil }
    return OpenTransaction(store: self, durability: durability, hold: WriterLockHold(self))
  }

  /// Whether this thread is within a transaction of this store. If so, it must write through that
  /// transaction.
  public var isInTransaction: Bool { writes.isInTransaction }

  /// Appends the writes of a transaction. The caller holds the writers' mutex.
  func commit(_ transaction: inout Transaction) throws(StoreError) {
    if !transaction.pendingBlobs.isEmpty { try blobs.makeDurable(transaction.pendingBlobs, withPacks: false) }
    let composed = transaction.builder
    try core.engine.withLock { engine throws(StoreError) in try writes.commit(composed, &engine) }
  }
}
