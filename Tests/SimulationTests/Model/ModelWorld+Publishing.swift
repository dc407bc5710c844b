/// Publishing to the relay (L1, L2, L5 to L8).
extension Model.World {
  typealias EntryID = Model.Relay.EntryID

  /// Whether the relay no longer has that entry.
  func isLost(_ id: EntryID) -> Bool { relay.lacks(id, chains: rules.relay.chains) }

  /// L6: where the relay lost entries that the copy has seen or written, the copy starts over.
  mutating func detectLoss(_ copy: Int) {
    guard rules.relay.detectsLoss else { return }
    let state = copies[copy].live.relay
    let own = state.stream.map { EntryID(stream: $0, number: state.number, mark: state.mark) }
    guard own.map(isLost) ?? false || state.seen.contains(where: { isLost($0.id) }) else { return }
    count(.startedOver)
    copies[copy].live.relay.startOver()
  }

  /// Publishes an entry, and a checkpoint where one is needed or requested.
  mutating func publish(
    _ copy: Int, _ loss: Model.RelayOperation.PowerLoss = .never, withCheckpoint isRequested: Bool = false
  ) throws(Violation) {
    guard try wake(copy) else { return }
    detectLoss(copy)
    // L7.
    if rules.relay.publishesSound, !copies[copy].live.isSound { return }
    let stream = copies[copy].live.relay.stream ?? beginStream(copy)
    guard try ownsNextName(copy, stream) else { return }
    markPending(copy)
    let entry = nextEntry(copy, stream)
    let covered = entry.snapshot.relay.covered
    if isLikeStore, !isRequested, !hasNews(entry) { return }
    if !entry.isNarrow, isRequested || rules.relay.lifts && !covered.covers(entry.snapshot.floor) {
      addCheckpoint(entry)
    }
    if loss == .beforeCreation { return try crash(copy) }
    relay.create(entry)
    count(.published)
    if loss == .afterCreation { return try crash(copy) }
    copies[copy].live.relay.published(entry.id, at: entry.snapshot.position, closing: entry.closing)
  }

  /// Whether an entry would tell its readers anything. The store publishes no other ones.
  private func hasNews(_ entry: Model.Relay.Entry) -> Bool {
    let covered = entry.snapshot.relay.covered
    if !covered.covers(entry.snapshot.floor) { return true }
    // What is held and not covered is left to the members whose closes will cover it.
    if covered.covers(entry.snapshot.vector) { return false }
    return !entry.records.isEmpty || !covered.covers(entry.closing)
  }

  private mutating func beginStream(_ copy: Int) -> Int {
    let stream = relay.addStream()
    copies[copy].live.relay.stream = stream
    copies[copy].live.relay.own.append(stream)
    return stream
  }

  /// L2: an entry under the next name is the copy's own if it has the pending mark: the copy lost power after
  /// creating it. With any other mark the copy was rolled back, and false is returned.
  private mutating func ownsNextName(_ copy: Int, _ stream: Int) throws(Violation) -> Bool {
    let number = copies[copy].live.relay.number
    guard rules.relay.createsOnce, relay.length(stream) > number else { return true }
    if let pending = copies[copy].live.relay.pending, let entry = relay.entry(stream, number + 1),
      entry.id.mark == pending
    {
      count(.ownEntryFound)
      // Whatever the snapshot covers is in this entry, or in those before it and its deps.
      copies[copy].live.relay.published(
        entry.id, at: entry.snapshot.position, closing: entry.snapshot.vector)
      sync(copy)
      noteBetween(copy)
      if relay.length(stream) == entry.id.number { return true }
    }
    try rolledBack(copy)
    return false
  }

  /// L2: the mark is durable before the entry leaves.
  private mutating func markPending(_ copy: Int) {
    newMark(copy)
    copies[copy].live.relay.pending = copies[copy].live.mark
    if rules.relay.marksFirst { sync(copy) }
    noteBetween(copy)
  }

  /// L1: the records since the last entry, current in the snapshot, that no entry read so far covers.
  private func nextEntry(_ copy: Int, _ stream: Int) -> Model.Relay.Entry {
    let snapshot = rules.relay.marksFirst ? copies[copy].durable : copies[copy].live
    let covered = snapshot.relay.covered
    let records = snapshot.log.filter { entry in
      entry.position > snapshot.relay.position && snapshot.isCurrent(entry.record)
        && !covered.covers(entry.record.dot) && !snapshot.isSuspect(entry.record)
    }
    return Model.Relay.Entry(
      id: EntryID(stream: stream, number: snapshot.relay.number + 1, mark: snapshot.mark ?? 0),
      snapshot: snapshot, records: records.map(\.record), deps: snapshot.relay.seen.map(\.id),
      isNarrow: copies[copy].scope != nil, wall: wall(copy))
  }

  /// A full state that stands for the entry and all that it presumes, once the entry is there.
  private mutating func addCheckpoint(_ entry: Model.Relay.Entry) {
    let snapshot = entry.snapshot
    let records = snapshot.log.map(\.record).filter { snapshot.isCurrent($0) }
    relay.checkpoints.append(
      Model.Relay.Entry(
        id: entry.id, snapshot: snapshot, records: records, deps: entry.deps + [entry.id], isNarrow: false,
        wall: entry.wall))
    relay.isUnread = true
    count(.checkpoint)
  }
}
