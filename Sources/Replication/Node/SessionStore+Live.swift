internal import SyncStore

/// What live sessions ask of the store.
extension SessionStore {
  /// Opens a round for the journal's growth, and gives its first batch with it.
  func openBurst(_ receiver: RoundReceiver, behind begin: UInt64) throws -> SessionEvent {
    if let why = try renewed() { return .overtaken(why) }
    let (round, position) = try store.openBurst(for: receiver, behind: begin)
    guard let round else { return .burstEmpty(position: position) }
    // Rounds follow each other only on the other side's word: its cursor has the mark of the last one, or this one's.
    let passed = state.withLock { state in
      state.marks.append(round.close.mark)
      return state.marks.count > 2 ? state.marks.removeFirst() : nil
    }
    if let passed { store.releaseLiveMark(passed) }
    let first = try nextBatch(of: round, 0)
    let isWhole = first.map { $0.batch.records == round.count } ?? true
    state.withLock { $0.round = isWhole ? nil : round }
    let opening = first.map {
      BurstOpening.Batch(sealed: $0.sealed, position: $0.batch.position, records: $0.batch.users)
    }
    return .burstOpened(
      BurstOpening(records: UInt64(round.count), close: round.close, first: opening, isWhole: isWhole))
  }

  /// The session goes on live: from now on it is noticed what others do for the same two copies.
  package func goLive() { state.withLock { $0.isLive = true } }

  /// Why this session must not go on: another one has received from the same copy, or the own copy is another one now
  /// (rule R9). Both copies find out what holds when they greet each other anew.
  func overtaken(by sender: ActorID) throws -> String? {
    let (isLive, cursor) = state.withLock { ($0.isLive, $0.cursor) }
    guard isLive else { return nil }
    if let why = try renewed() { return why }
    guard try store.cursor(for: sender) != cursor else { return nil }
    return "another session of the same two copies has gone on meanwhile"
  }

  private func renewed() throws -> String? {
    guard let actor = state.withLock({ $0.actor }), try store.actor != actor else { return nil }
    return "this copy has taken a new actor meanwhile"
  }

  /// A round was closed: the cursor is known, and group keys that came before it are kept.
  func closed(_ close: RoundClose) throws {
    let given = state.withLock { state in
      // Keys that were lacking have a cursor of their own.
      if close.widening == nil {
        state.cursor = Cursor(position: close.position, mark: close.mark, closed: true)
      }
      defer { state.givenKeys = nil }
      return state.givenKeys
    }
    guard let given else { return }
    try keys.merge(given)
  }

  /// Keys that the other side gave: for what follows in this session.
  func take(_ given: GroupKeyRing) throws {
    var ring = try ring()
    try ring.merge(given)
    let merged = ring
    state.withLock { state in
      state.ring = merged
      state.givenKeys = given
    }
  }
}
