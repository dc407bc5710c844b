internal import Synchronization

/// Decides which syncs of a set of packs can be skipped, and which calls share one. Lock-free.
///
/// Invariant: a sync serves the tickets drawn, and the objects added, before it began.
struct PackSyncs: ~Copyable, Sendable {
  /// What a sync serves.
  struct Coverage {
    fileprivate let ticket: UInt64
    fileprivate let added: UInt64
  }

  /// Number of objects added by this process.
  private let added = Atomic<UInt64>(0)
  /// How many of them are known to be durable.
  private let addedDurably = Atomic<UInt64>(0)
  private let tickets = Atomic<UInt64>(0)
  private let servedTickets = Atomic<UInt64>(0)
  private let commits = GroupCommit()

  /// Records that this process has added an object.
  func recordAdded() { added.add(1, ordering: .sequentiallyConsistent) }

  /// Whether all objects that this process has added are known to be durable.
  var isAllDurable: Bool {
    let target = added.load(ordering: .sequentiallyConsistent)
    return addedDurably.load(ordering: .acquiring) >= target
  }

  /// Returns once a sync that began after this call is complete. `work` runs one, for all callers that wait.
  func wait(work: () throws(StoreError) -> Void) throws(StoreError) {
    let ticket = tickets.add(1, ordering: .sequentiallyConsistent).newValue
    try commits.wait { () throws(StoreError) in
      servedTickets.load(ordering: .acquiring) >= ticket
    } work: { () throws(StoreError) in
      try work()
    }
  }

  /// What a sync that begins now serves.
  func begin() -> Coverage {
    let ticket = tickets.load(ordering: .sequentiallyConsistent)
    return Coverage(ticket: ticket, added: added.load(ordering: .sequentiallyConsistent))
  }

  /// Records that the sync is complete.
  func complete(_ coverage: Coverage) {
    addedDurably.store(coverage.added, ordering: .releasing)
    servedTickets.store(coverage.ticket, ordering: .releasing)
  }
}
