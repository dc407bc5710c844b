private import Synchronization

/// What sessions that stay open ask of the store: to be told when the journal has grown, and rounds that cost one sync
/// together with the write that they carry.
extension Store {
  /// Has `body` called, once or twice, from any thread, when the journal has something behind `position`; at once if it
  /// has already. It must return at once. The call is also made when the journal may have grown, but has not.
  ///
  /// False if it could not be looked, for want of descriptors or memory maybe: then `body` may not be called, and the caller asks again
  /// after a while. A store that is closed grows no more: that is no failure.
  package func notifyWhenGrown(behind position: UInt64, _ body: @escaping @Sendable () -> Void) -> Bool {
    guard control.position <= position else {
      body()
      return true
    }
    liveSessions.setAwaited()
    let number = changeSignal.add(body)
    // Under the engine's lock: what was written before it is seen here, what is written after it wakes.
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

  /// The same for a caller that must not wait for anybody. False if somebody is at work in the store at this moment: then `body`
  /// may have been called, or not.
  package func notifyWhenGrownIfFree(behind position: UInt64, _ body: @escaping @Sendable () -> Void) -> Bool
  {
    guard control.position <= position else {
      body()
      return true
    }
    liveSessions.setAwaited()
    let number = changeSignal.add(body)
    // What was written before it is seen here, as above. What others have appended and this view has not read has no position yet
    // that could be believed: a writer moves the tail first.
    let now = engine.withLockIfFree { engine in engine.isBehind ? nil : engine.position } ?? nil
    if now == position, !closed.load(ordering: .acquiring) { return true }
    changeSignal.remove(number)
    guard let now else { return false }
    if now > position { body() }
    return true
  }

  /// The last position of the journal.
  package var journalPosition: UInt64 { control.position }

  /// A round of a live session that need not be durable yet.
  package struct LiveUpdate: Sendable {
    /// Nil if nothing is for the receiver, and it covers all that this copy does: then nothing was written.
    package var round: DeltaStream?
    /// Where the journal ended.
    package var position: UInt64
    /// The place up to which the journal must be durable before anything of the round leaves (rules R7, R9).
    package var tail: UInt64
  }

  /// As `openRound`, for a receiver of which it is known that nothing up to `begin` is for it. It does not wait until the
  /// round is durable: what is to leave can be made ready meanwhile (`whenDurable`).
  ///
  /// - Throws: `.rolledBack` as `openRound`.
  package func openLiveUpdate(for receiver: RoundReceiver, behind begin: UInt64) throws(StoreError)
    -> LiveUpdate
  {
    if try isInDoubt { try reissueUnknown(to: receiver.covered, behind: begin) }
    let survey = try deltaScan(for: receiver, behind: begin, isLive: true)
    let (isAny, position) = try reading { engine throws(StoreError) in
      // Thousands of sessions keep it.
      engine.state.foldOwnWrites()
      let choice = DeltaFilter(for: receiver, behind: begin, isFull: false)
      let isFound =
        if let survey, !survey.items.isEmpty {
          true
        } else {
          try !Self.items(choice, behind: survey?.reached, in: engine, limit: 1).isEmpty
        }
      // A write that was beaten before it left is not sent, but covered.
      let isAny = isFound || !engine.state.isRecovering && !receiver.covered.covers(engine.state.vector)
      return (isAny, engine.position)
    }
    guard isAny else { return LiveUpdate(position: position, tail: 0) }
    let (round, tail) = try makeRound(for: receiver, behind: begin, isLive: true, surveyed: survey)
    return LiveUpdate(round: round, position: round.close.position, tail: tail)
  }

  /// A session that used `mark` has its peer's word that it is past it.
  package func releaseLiveMark(_ mark: RoundMark) { liveSessions.release(mark) }

  /// A session is over in which `peer` was given rounds under these marks: its cursor may bear one of them.
  package func retainLiveMarks(_ marks: [RoundMark], with peer: ActorID) {
    liveSessions.retain(marks, with: peer)
  }

  /// What earlier sessions have left with `peer`. Who takes it gives it back, or releases it.
  package func claimLiveMarks(retainedWith peer: ActorID) -> [RoundMark] {
    liveSessions.claimRetained(with: peer)
  }

  /// Puts the mark of the round that will carry what was just written behind it, so that one sync makes both durable: a mark
  /// is durable before any record of its round leaves (R9). Only the first write of a burst does so.
  @inline(never)
  func appendingMark(to target: UInt64) -> UInt64 {
    guard liveSessions.clearAwaited() else { return target }
    // A mark says that its clock may be known elsewhere. One that is ahead leaves with no round before it was restamped.
    if let ahead = try? isClockAhead, ahead { return target }
    let appended = try? append(pacing: false) { composer throws(StoreError) in
      let (position, digest) = engine.withLock { ($0.position, $0.runningDigest) }
      _ = try mark(&composer, position: position, digest: digest, isLive: true)
    }
    // Without it the session makes the mark itself.
    return appended?.1 ?? target
  }
}

/// What the live sessions of this process have in common.
///
/// Invariants: a live mark is forgotten only when every session that has a round under it has its peer's word that it bears a later one; a
/// session takes one into use only under the writers' mutex, and whoever makes the next one, under the same mutex, forgets all that are
/// not in use.
final class LiveSessions: Sendable {
  private struct MarkTable {
    /// The marks that were made here: how many sessions have a round under each, and not been told that the next one arrived.
    var uses: [RoundMark: Int] = [:]
    /// Those in no use: nobody was given a round under them, or all are past it.
    var idle: Set<RoundMark> = []
    /// What sessions that are over have left in use, by their peers.
    var retained: [ActorID: [RoundMark]] = [:]
  }

  private let awaited = Atomic(false)
  private let markTable = LockedField(MarkTable())

  /// Does a session wait for the journal to grow?
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

  /// Those in no use that are among the known ones, in order. What is not known any more is forgotten here, too: only then is it sure that
  /// the append by which it went was made.
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
  /// How many marks of rounds are kept.
  package func roundMarkCount() throws(StoreError) -> Int {
    try reading { engine throws(StoreError) in engine.state.marks.count }
  }
}

extension Record {
  /// About how many bytes it takes on the wire before compression.
  package var transferSize: Int {
    let fixed = 32 + key.count + open.count * 10
    switch content {
    case .tombstone: return fixed
    case .inline(let value): return fixed + value.count
    case .blob(let blob): return fixed + 40 + blob.metadata.count
    }
  }
}
