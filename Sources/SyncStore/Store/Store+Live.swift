private import Synchronization

/// Support for sessions that stay open: notification when the journal grows, and rounds that share one sync
/// with the write they carry.
extension Store {
  /// Calls `body` once the journal has records after `position`; immediately if it already has.
  ///
  /// `body` may be called once or twice, from any thread, and must return at once. It may also be called when
  /// the journal has not grown.
  ///
  /// - Returns: false if the journal could not be checked, for want of descriptors or memory for example:
  ///   then `body` may never be called, and the caller must try again later. A closed store no longer grows:
  ///   that returns true.
  package func notifyWhenGrown(after position: UInt64, _ body: @escaping @Sendable () -> Void) -> Bool {
    guard control.position <= position else {
      body()
      return true
    }
    deltas.live.setAwaited()
    let number = changeSignal.add(body)
    // Under the engine's lock: earlier writes are visible here, later ones call `body`.
    let now: UInt64
    do throws(StoreError) { now = try reading { engine throws(StoreError) in engine.position } } catch {
      changeSignal.remove(number)
      return error.code == .closed || error.code == .forked
    }
    guard now > position else { return true }
    changeSignal.remove(number)
    body()
    return true
  }

  /// `notifyWhenGrown` that never waits for a lock. False if the engine's lock is held: then
  /// `body` may or may not have been called.
  package func notifyWhenGrownIfFree(after position: UInt64, _ body: @escaping @Sendable () -> Void) -> Bool {
    guard control.position <= position else {
      body()
      return true
    }
    deltas.live.setAwaited()
    let number = changeSignal.add(body)
    // As above, earlier writes are visible here. Records that others appended and this view has not replayed
    // have no reliable position yet: a writer moves the tail first.
    let now = core.engine.withLockIfFree { engine in engine.isBehind ? nil : engine.position } ?? nil
    if now == position, !core.closed.load(ordering: .acquiring) { return true }
    changeSignal.remove(number)
    guard let now else { return false }
    if now > position { body() }
    return true
  }

  /// The last position of the journal.
  package var journalPosition: UInt64 { control.position }

  /// A round of a live session that need not be durable yet.
  package struct LiveUpdate: Sendable {
    /// Nil if there are no records for the receiver and it covers everything this copy covers; then nothing
    /// was written.
    package var round: DeltaStream?
    /// The end of the journal.
    package var position: UInt64
    /// The location up to which the journal must be durable before any part of the round is sent (rules R7,
    /// R9).
    package var tail: UInt64
  }

  /// `openRound` for a receiver that needs nothing up to `begin`.
  ///
  /// Does not wait until the round is durable: the data can be prepared for sending
  /// concurrently (`whenDurable`).
  ///
  /// - Throws: `.rolledBack` as `openRound`.
  package func openLiveUpdate(
    for receiver: RoundReceiver, after begin: UInt64
  ) throws(StoreError) -> LiveUpdate {
    try deltas.openLiveUpdate(for: receiver, after: begin)
  }

  /// Called when the peer has confirmed to a session that used `mark` that it is past it.
  package func releaseLiveMark(_ mark: RoundMark) { deltas.live.release(mark) }

  /// Called at the end of a session in which `peer` was given rounds under these marks: its cursor may bear
  /// one of them.
  package func retainLiveMarks(_ marks: [RoundMark], with peer: ActorID) {
    deltas.live.retain(marks, with: peer)
  }

  /// Takes over the marks that earlier sessions retained for `peer`. The caller must retain them again or
  /// release them.
  package func claimLiveMarks(retainedWith peer: ActorID) -> [RoundMark] {
    deltas.live.claimRetained(with: peer)
  }

}

/// State shared by the live sessions of this process.
///
/// Invariants: a live mark is forgotten only when every session that has a round under it has its peer's
/// confirmation of a later one; a session takes a mark into use only under the writers' mutex, and making the
/// next mark, under the same mutex, forgets all marks not in use.
final class LiveSessions: Sendable {
  private struct MarkTable {
    /// For each mark made here: the number of sessions with a round under it whose peer has not confirmed a
    /// later one.
    var uses: [RoundMark: Int] = [:]
    /// Marks not in use: no peer was given a round under them, or all peers are past them.
    var idle: Set<RoundMark> = []
    /// Marks still in use that ended sessions retained, by peer.
    var retained: [ActorID: [RoundMark]] = [:]
  }

  private let awaited = Atomic(false)
  private let markTable = LockedField(MarkTable())

  /// Whether a session waits for the journal to grow.
  @inline(__always)
  var isAwaited: Bool { awaited.load(ordering: .relaxed) }

  func setAwaited() { awaited.store(true, ordering: .relaxed) }
  func clearAwaited() -> Bool { awaited.exchange(false, ordering: .relaxed) }

  func register(_ mark: RoundMark) {
    markTable.withLock { book in
      book.uses[mark] = 0
      book.idle.insert(mark)
    }
  }

  func isOwn(_ mark: RoundMark) -> Bool { markTable.withLock { $0.uses[mark] != nil } }
  func isUsed(_ mark: RoundMark) -> Bool { markTable.withLock { $0.uses[mark] ?? 0 > 0 } }

  func use(_ mark: RoundMark) {
    markTable.withLock { book in
      book.uses[mark, default: 0] += 1
      book.idle.remove(mark)
    }
  }

  func release(_ mark: RoundMark) {
    markTable.withLock { book in
      guard let uses = book.uses[mark], uses > 0 else { return }
      book.uses[mark] = uses - 1
      if uses == 1 { book.idle.insert(mark) }
    }
  }

  /// Marks not in use that are among the known ones, in order.
  ///
  /// Also forgets marks that are no longer known: only then is it certain that the append that removed them
  /// was made.
  func idle(of known: RoundMarks) -> [RoundMark] {
    markTable.withLock { book in
      for mark in book.idle where known[mark] == nil {
        book.uses[mark] = nil
        book.idle.remove(mark)
      }
      return book.idle.sorted()
    }
  }

  func retain(_ marks: [RoundMark], with peer: ActorID) {
    guard !marks.isEmpty else { return }
    markTable.withLock { $0.retained[peer, default: []] += marks }
  }

  func claimRetained(with peer: ActorID) -> [RoundMark] {
    markTable.withLock { $0.retained.removeValue(forKey: peer) ?? [] }
  }
}

extension Store {
  /// Number of round marks kept.
  package func roundMarkCount() throws(StoreError) -> Int {
    try reading { engine throws(StoreError) in engine.state.marks.count }
  }
}

extension Record {
  /// Approximate size on the wire before compression, in bytes.
  package var transferSize: Int {
    let fixed = 32 + key.count + open.count * 10
    switch content {
    case .tombstone: return fixed
    case .inline(let value): return fixed + value.count
    case .blob(let blob): return fixed + 40 + blob.metadata.count
    }
  }
}
