private import Synchronization

/// A transaction that is begun, committed and rolled back by calls of its own. Made by `Store.beginTransaction`.
///
/// ```swift
/// var open = try store.beginTransaction()
/// try open.transaction.put("a", "1")
/// try open.commit()                          // or open.rollBack(), or nothing at all
/// ```
///
/// From its beginning to its end no other thread, and no other process, writes. The thread that has begun it
/// ends it: the writers' mutex belongs to a thread, so that the death of one is noticed. Hence it is neither
/// copyable nor sendable, and cannot be begun in asynchronous code, which goes from thread to thread; that
/// takes `AsyncStore.transaction`. One that is dropped is rolled back.
public struct OpenTransaction: ~Copyable {
  /// What is written and read within it.
  public var transaction: Transaction
  private let store: Store
  private let durability: Durability?
  private let hold: WriterLockHold

  fileprivate init(store: Store, durability: Durability?, hold: WriterLockHold) {
    (self.store, self.durability, self.hold) = (store, durability, hold)
    transaction = Transaction(
      store: store, composer: store.newTransactionBuilder(limit: Limits.transactionBytes))
  }

  /// Makes all its writes at once; they are durable as the mode has it when this returns.
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

  /// Ends it without a trace.
  public consuming func rollBack() { hold.end() }
}

/// Has the writers' mutex until its end.
private final class WriterLockHold {
  private let store: Store
  private let thread: UInt
  private var isEnded = false

  /// The caller has taken it.
  init(_ store: Store) {
    (self.store, thread) = (store, SystemCall.thread)
    store.transactionThread.store(thread, ordering: .relaxed)
  }

  func end() {
    guard !isEnded else { return }
    precondition(thread == SystemCall.thread, "a transaction is ended by the thread that has begun it")
    isEnded = true
    store.transactionThread.store(0, ordering: .relaxed)
    store.control.unlock()
  }

  deinit { end() }
}

extension Store {
  /// Begins a transaction that lasts until it is committed or rolled back; see `OpenTransaction`. Waits for
  /// other writers.
  ///
  /// - Throws: as `transaction`; `.busy` within another one of this thread.
  @available(*, noasync, message: "its thread has to end it: use AsyncStore.transaction")
  public func beginTransaction(durability: Durability? = nil) throws(StoreError) -> OpenTransaction {
    try checkWritable()
    throttleWriter()
    try lockWriters()
    return OpenTransaction(store: self, durability: durability, hold: WriterLockHold(self))
  }

  /// The same if nobody else writes at this moment, here or in another process; nil if somebody does.
  ///
  /// - Throws: as `beginTransaction`.
  @available(*, noasync, message: "its thread has to end it: use AsyncStore.transaction")
  public func tryBeginTransaction(durability: Durability? = nil) throws(StoreError) -> OpenTransaction? {
    try checkWritable()
    guard try lockWriters(waits: false) else { return nil }
    return OpenTransaction(store: self, durability: durability, hold: WriterLockHold(self))
  }

  /// Is this thread within a transaction of this store? Then it writes through that, and nobody else writes.
  public var isInTransaction: Bool { transactionThread.load(ordering: .relaxed) == SystemCall.thread }

  /// Appends what a transaction has composed. The caller holds the writers' mutex.
  func commit(_ transaction: inout Transaction) throws(StoreError) {
    if !transaction.pendingBlobs.isEmpty { try blobs.makeDurable(transaction.pendingBlobs, withPacks: false) }
    let composed = transaction.builder
    try engine.withLock { engine throws(StoreError) in try commit(composed, &engine) }
  }
}
