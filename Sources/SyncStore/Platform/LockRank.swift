private import CLinux

/// The order in which a thread takes locks: each of them must rank above all that it holds.
///
/// Checked in debug builds at every acquisition: any test that inverts the order fails, not only the schedule
/// that deadlocks. A thread that holds the engine's lock, or one that ranks above it, never waits for the
/// writers' mutex (`ControlPage.lock`).
package enum LockRank: UInt64, Sendable {
  // Callers of a store: they hold their own lock while they call it.
  case workerPool, session, link, handle, handleTable, stream
  // Parts of a store.
  case compaction, keyFiles, keyOrder, blobTier, engine
  // The blob tier.
  case diskCache, blobTransfer, catalogue, packLoading, packMoving, packContents, packWriter, packs
  // Notified under any of the above.
  case pages
  /// Held while the program's log handler runs (`StoreLog`).
  case log
  /// Under which no other lock is taken, but for those of the storage.
  case leaf
  /// Taken when an object is released, which may happen under any lock.
  case release
  /// Locks within an implementation of `Storage`, which any other code may call under its own lock.
  case storage

  /// Only this rank and lower ones set a bit.
  private var bit: UInt64 { 1 << rawValue }

  /// Records that this thread takes a lock of this rank.
  @inline(__always)
  func willAcquire() {
    #if DEBUG
      let held = sync_held_ranks()
      check(held)
      sync_set_held_ranks(held | bit)
    #endif
  }

  /// Records that this thread has released a lock of this rank.
  @inline(__always)
  func didRelease() {
    #if DEBUG
      sync_set_held_ranks(sync_held_ranks() & ~bit)
    #endif
  }

  /// Checks that this thread may wait for a lock of this rank, without recording that it has it.
  @inline(__always)
  func checkMayWait() {
    #if DEBUG
      check(sync_held_ranks())
    #endif
  }

  /// Runs `body` as if this thread held no lock: for tests that use another store within a call of the first
  /// one's storage.
  package static func suspended<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    #if DEBUG
      let held = sync_held_ranks()
      sync_set_held_ranks(0)
      defer { sync_set_held_ranks(held) }
    #endif
    return try body()
  }

  #if DEBUG
    private func check(_ held: UInt64) {
      guard held >> rawValue != 0 else { return }
      let highest = LockRank(rawValue: UInt64(63 - held.leadingZeroBitCount))
      preconditionFailure(
        "a lock of rank \(self) is taken under one of rank \(highest.map { "\($0)" } ?? "?")")
    }
  #endif
}
