/// Puts together one atomic append by the rules of versions: a value, without I/O. Who drives it looks up what is held
/// (`held`), as far as this append itself has not replaced it.
struct Composer {
  /// What is to be appended.
  private(set) var entries: [JournalEntry] = []
  /// The copy's state as this append will leave it.
  private(set) var state: ReplicaState
  /// What this append makes of the keys it touches.
  private(set) var overlay: [[UInt8]: Record] = [:]
  /// Milliseconds since 1970.
  let wall: UInt64
  private var bytes = 0

  /// Bytes that the append may take up.
  private let largest: Int

  init(state: ReplicaState, wall: UInt64, limit: Int) {
    (self.state, self.wall, largest) = (state, wall, limit)
  }

  /// Stamps above this are parked.
  var limit: Stamp { Stamp(milliseconds: wall + Limits.clockDriftMilliseconds) }

  // MARK: Local writes

  /// A write of this copy: stamped above all that it has seen.
  @discardableResult
  mutating func issue(
    key: [UInt8], content: Record.Content, type: ValueType, deadline: UInt64?, held: Record?,
    names: [Dot] = []
  ) throws(StoreError) -> Record {
    guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
    guard let stamp = state.clock.tick(wall: wall) else {
      throw StoreError(.clock, "the clock stands at its end: set the system's time and restore from a peer")
    }
    state.sequence += 1
    let past = Resolution.past(replacing: held, by: actor, vector: state.vector, names: names)
    let record = Record(
      dot: Dot(actor: actor, sequence: state.sequence), stamp: stamp, base: past.base, open: past.open,
      deadline: deadline, type: type, key: key, content: content)
    state.vector[actor] = state.sequence
    try append(.write(record, position: nil))
    overlay[key] = record
    return record
  }

  /// The record issued again as a new write.
  mutating func reissue(_ record: Record, names: [Dot] = []) throws(StoreError) {
    try issue(
      key: record.key, content: record.content, type: record.type, deadline: record.deadline, held: record,
      names: names)
  }

  /// A key and value of this copy alone; nil ends the key.
  mutating func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    state.absorb(local: key, value)
    try append(.local(key: key, value: value))
  }

  // MARK: Records of peers

  /// A record of a round arrives; `held` is what is held of its key, and parked records of it, if any, are `parked`. Beaten
  /// writes that are `kept` already are not kept again.
  mutating func receive(
    _ record: Record, held stored: Record?, parked: [Record], kept: Set<Dot>
  ) throws(StoreError) {
    let held = overlay[record.key] ?? stored
    let limit = state.mine.contains(record.dot.actor) ? Stamp.maximum : limit
    switch Resolution.receive(record, held: held, vector: state.vector, limit: limit) {
    case .ignore: return
    case .park:
      if !parked.contains(where: { $0.dot == record.dot }) { try append(.write(record, position: nil)) }
      return
    case .win, .lose:
      if parked.contains(where: { $0.dot == record.dot }) { return }
      state.clock.observe(record.stamp)
      try resolve(record, against: held, inJournal: false, kept: kept)
    }
  }

  /// A record whose time has come, already in the journal.
  mutating func release(_ record: Record, held stored: Record?, kept: Set<Dot>) throws(StoreError) {
    state.clock.observe(record.stamp)
    try resolve(record, against: overlay[record.key] ?? stored, inJournal: true, kept: kept)
  }

  private mutating func resolve(
    _ record: Record, against held: Record?, inJournal: Bool, kept: Set<Dot>
  ) throws(StoreError) {
    let verdict = Resolution.apply(record, held: held)
    let (winner, loser, isConflict): (Record, Record?, Bool)
    switch verdict {
    case .win(let conflict):
      (winner, loser, isConflict) = (record, held, conflict)
      if !inJournal { try append(.write(record, position: nil)) }
      overlay[record.key] = record
    case .lose(let conflict):
      guard let held else { return }
      (winner, loser, isConflict) = (held, record, conflict)
    case .ignore, .park: return
    }
    guard let loser else { return }
    if isConflict, !kept.contains(loser.dot) { try append(.loser(loser)) }
    let names = Resolution.names(of: loser, unknownTo: winner, vector: state.vector)
    if !names.isEmpty { try reissue(winner, names: names) }
  }

  // MARK: The append

  mutating func append(_ entry: JournalEntry) throws(StoreError) {
    bytes += RecordEncoder.bound([entry])
    guard bytes <= largest else {
      throw StoreError(.outOfBounds, "the transaction is larger than \(largest) bytes: split it")
    }
    entries.append(entry)
  }
}
