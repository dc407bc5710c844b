/// Puts together one atomic append by the rules of versions: a value, without I/O. Who drives it looks up what is held
/// (`held`), as far as this append itself has not replaced it.
struct TransactionBuilder {
  /// What is to be appended.
  private(set) var entries: [JournalEntry] = []
  /// What that takes up.
  private(set) var extent = AppendExtent()
  /// The copy's state as this append will leave it.
  private(set) var state: ReplicaState
  /// Local writes that come behind the entries, of which it was not looked up yet what they replace.
  private(set) var pending = WriteBatch()
  /// The keys that this append touches: indices of `entries`, from behind (`~`) of `released`, or, from `Self.firstPendingIndex`
  /// on, of `postponed`.
  private var pendingKeys = PendingKeys()
  private var unparked: [Record] = []
  /// What this append makes of keys of this copy alone.
  private(set) var locals: [[UInt8]: [UInt8]?] = [:]
  /// Milliseconds since 1970.
  let wall: UInt64
  /// The journal's last position before the append.
  let position: UInt64
  private var pendingBytes = 0
  private var isIssuingPending = false
  /// How many postponed writes were issued: tests count the steps.
  private(set) var issuedPendingCount = 0

  /// Bytes that the append takes up at most so far, what is postponed among them as far as that is known: their author has to be
  /// named.
  var bytes: Int {
    let isNamed = pending.count == 0 || state.actor.map(extent.actors.contains) ?? false
    return extent.bytes + pendingBytes + (isNamed ? 0 : AppendExtent.definitions)
  }

  /// Bytes that the append may take up, beaten values not counted.
  private let byteLimit: Int
  /// Bytes of beaten values.
  private var loserBytes = 0
  private let hashSeed: UInt64
  /// Bytes by which postponed writes may exceed the bound once it is known what they replace: nobody is refused at the end who was
  /// not when he wrote.
  private static let pendingSlackBytes = 512 << 10

  /// `hashSeed` is not to be guessed by who chooses the keys.
  init(state: ReplicaState, wall: UInt64, position: UInt64, limit: Int, hashSeed: UInt64) {
    (self.state, self.wall, byteLimit, self.hashSeed) = (state, wall, limit, hashSeed)
    self.position = position
  }

  /// How many positions the append takes, nothing being postponed.
  var positions: UInt64 {
    entries.reduce(0) { count, entry in
      switch entry {
      case .write(_, nil), .parked(_, nil): count + 1
      default: count
      }
    }
  }

  /// Stamps above this are parked.
  var stampLimit: Stamp { Stamp(milliseconds: wall + Limits.clockDriftMilliseconds) }

  // MARK: Local writes

  /// A write of this copy: stamped above all that it has seen.
  mutating func issue(
    key: [UInt8], content: Record.Content, type: ValueType, deadline: UInt64?, held: ReplacedRecord?,
    names: [Dot] = []
  ) throws(StoreError) {
    try requireWritable(key)
    try stampAndAppend(key: key, content: content, type: type, deadline: deadline, held: held, names: names)
  }

  /// Refuses a write of the user's that would reach no other member, and one of a key that this copy does not hold: it
  /// would not be told when others change that. The store's own keys are not restricted.
  private func requireWritable(_ key: [UInt8]) throws(StoreError) {
    if let denial = state.writeDenial, !ReservedKey.isReserved(key) { throw denial.error }
    guard let scope = state.scope, !scope.contains(key) else { return }
    throw StoreError(
      .outOfBounds,
      "this copy holds only what begins with \(scope): write other keys on another copy, or let this one hold more"
    )
  }

  private mutating func stampAndAppend(
    key: [UInt8], content: Record.Content, type: ValueType, deadline: UInt64?, held: ReplacedRecord?,
    names: [Dot]
  ) throws(StoreError) {
    var past = Resolution.causalContext(
      replacing: held, by: state.actor, names: names, covers: { state.covers($0) })
    // A name of a life in doubt may be that of another value elsewhere, which was not known here.
    if let base = past.base, state.isInUnconfirmedLife(base) {
      past.base = held?.base.flatMap { state.isInUnconfirmedLife($0) ? nil : $0 }
    }
    let author = state.author
    let version = try state.author.nextVersion(wall: wall)
    do throws(StoreError) {
      try append(
        write: Record(
          dot: version.dot, stamp: version.stamp, base: past.base, open: past.open, deadline: deadline,
          type: type, key: key, content: content))
    } catch {
      // A name that no record bears would be a hole in the sequence.
      state.author = author
      throw error
    }
  }

  /// The record issued again as a new write.
  mutating func reissue(_ record: Record, names: [Dot] = []) throws(StoreError) {
    try stampAndAppend(
      key: record.key, content: record.content, type: record.type, deadline: record.deadline,
      held: record.replaced, names: names)
  }

  /// A key and value of this copy alone; nil ends the key.
  mutating func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try append(.local(key: key, value: value))
    state.apply(local: key, value)
    locals[key] = .some(value)
  }

  // MARK: Records of peers

  /// A record of a round arrives; `held` is what is held of its key, and parked records of it, if any, are `parked`. Beaten
  /// writes that are `kept` already are not kept again.
  ///
  /// One that is no tombstone, and as old as what this copy has purged, is issued again as a new write: a delete that was purged here may
  /// have beaten it elsewhere (rule R8). One of keys that were `lacking` is new, whatever this copy covers: nothing was purged here under
  /// those keys, and an own write under them would be gone, and covered, if another session begins anew with them.
  mutating func receive(
    _ record: Record, held stored: Record?, parked: [Record], kept: Set<StateDigest>,
    lacking: MissingScope? = nil
  ) throws(StoreError) {
    let isLacking = lacking?.contains(record.key) ?? false
    guard isLacking || state.scope.holds(record.key) else { return }
    let held = self.record(of: record.key) ?? stored
    let limit = state.isMine(record.dot) ? Stamp.maximum : stampLimit
    if !isLacking, mayHaveBeenPurged(record, held: held), !parked.contains(where: { $0.dot == record.dot }) {
      state.author.clock.observe(record.stamp)
      return try reissue(record)
    }
    let verdict = Resolution.receive(
      record, held: held, limit: limit, covers: { !isLacking && state.covers($0) })
    switch verdict {
    case .ignore:
      guard let held, isForkedContent(record, of: held), !kept.contains(StateDigest(of: record))
      else { return }
      // What is held is issued again, and nobody could tell that this was beaten by it.
      try keepBatchLoser(record)
    case .park:
      if parked.contains(where: { $0.dot == record.dot }) { return }
      // What the store keeps for itself beats without a word: nothing has to be judged.
      return try append(record.isReserved ? .write(record, position: nil) : .parked(record, position: nil))
    case .win, .lose:
      if parked.contains(where: { $0.dot == record.dot }) { return }
      state.author.clock.observe(record.stamp)
      let outcome = try resolve(record, against: held, inJournal: false, keepsAll: false, kept: kept)
      if let outcome { try transferDots(outcome.names, to: outcome.winner) }
    }
  }

  /// Not on a copy that does not cover its own floor: a full state is still to come, or is being closed, and judges what has come.
  private func mayHaveBeenPurged(_ record: Record, held: Record?) -> Bool {
    record.stamp <= state.horizon && !record.isReserved && !state.isRecovering && !state.covers(record.dot)
      && held.map { $0.version < record.version } ?? true && !record.isTombstone
      && state.vector.covers(state.floor)
  }

  /// Records of one key whose time has come, already in the journal, in the order of their versions.
  ///
  /// Only the greatest is issued again with the names that beaten ones had open: one that is not is over, and issued again it would
  /// beat what had replaced it.
  ///
  /// - Parameter isAlone: nothing was released before them, so that they cannot come with the next append instead. Of beaten values
  ///   that are too many for one append the last ones are not kept then.
  /// - Throws: `.outOfBounds` if they do not fit and are not alone.
  mutating func unpark(
    _ records: [Record], held stored: Record?, kept: Set<StateDigest>, isAlone: Bool
  ) throws(StoreError) {
    var winner = stored
    var names: [Dot] = []
    for record in records {
      state.author.clock.observe(record.stamp)
      guard
        let outcome = try resolve(
          record, against: self.record(of: record.key) ?? stored, inJournal: true, keepsAll: !isAlone,
          kept: kept)
      else { continue }
      winner = outcome.winner
      names += outcome.names
    }
    if let winner { try transferDots(names, to: winner) }
  }

  /// Takes in the greater of the two, and keeps the lesser where nobody knew of it. Returns the greater, and the names that it has to be
  /// issued again with; nil where there is only one.
  private mutating func resolve(
    _ record: Record, against held: Record?, inJournal: Bool, keepsAll: Bool, kept: Set<StateDigest>
  ) throws(StoreError) -> (winner: Record, names: [Dot])? {
    let verdict = Resolution.apply(record, held: held)
    let (winner, loser, isConflict): (Record, Record?, Bool)
    switch verdict {
    case .win(let conflict):
      (winner, loser, isConflict) = (record, held, conflict)
      if inJournal {
        unparked.append(record)
        recordKey(record.key, at: ~(unparked.count - 1))
      } else {
        try append(write: record)
      }
    case .lose(let conflict):
      guard let held else { return nil }
      (winner, loser, isConflict) = (held, record, conflict)
    case .ignore, .park: return nil
    }
    guard let loser else { return nil }
    if isConflict || isDoubtful(loser, besides: winner), !kept.contains(StateDigest(of: loser)) {
      if keepsAll { try keepLoser(loser) } else { try keepBatchLoser(loser) }
    }
    return (winner, Resolution.openDots(of: loser, unknownTo: winner, covers: { state.covers($0) }))
  }

  /// Issues the winner again with these names, if there are any that it does not bear itself.
  private mutating func transferDots(_ names: [Dot], to winner: Record) throws(StoreError) {
    let names = names.filter { !winner.open.contains($0) && $0 != winner.dot }
    if !names.isEmpty { try reissue(winner, names: names) }
  }

  /// Does the record bear the name of what is held in doubt here, and is a value of another life?
  private func isForkedContent(_ record: Record, of held: Record) -> Bool {
    guard held.dot == record.dot, state.isUnconfirmed(held.dot), !record.isTombstone, !record.isReserved
    else {
      return false
    }
    var (other, held) = (record, held)
    (other.continues, held.continues) = (false, false)
    return other != held
  }

  /// Of two lives of this copy neither knew what the other one wrote, whatever their names and bases say.
  private func isDoubtful(_ loser: Record, besides winner: Record) -> Bool {
    (state.isAmbiguous(loser.dot) || state.isUnconfirmed(winner.dot)) && !loser.isTombstone
      && !loser.isReserved
  }

  /// Keeps a beaten value for a while (`ConflictRetention`). It stays here and is sent to nobody, so that it does not count
  /// against what a transaction may be: records that are small may beat large ones.
  ///
  /// - Throws: `.outOfBounds` if an append that has a bound would have more of them than a compaction keeps.
  mutating func keepLoser(_ loser: Record) throws(StoreError) {
    var conflicts = state.conflicts
    if conflicts.recordConflict(at: wall, after: position) {
      try setLocal(StateKey.conflicts, conflicts.bytes)
    }
    var grown = extent
    grown.add(.loser(loser))
    let bytes = loserBytes + grown.bytes - extent.bytes
    guard byteLimit == .max || bytes <= Limits.conflictBytes else { throw isFull }
    (extent, loserBytes) = (grown, bytes)
    entries.append(.loser(loser))
  }

  /// The same for what cannot be taken in parts, a batch or what is released alone, and those that are too many would be gone with the next
  /// compaction.
  private mutating func keepBatchLoser(_ loser: Record) throws(StoreError) {
    do throws(StoreError) { try keepLoser(loser) } catch {
      guard error.code == .outOfBounds else { throw error }
    }
  }

  // MARK: Postponed writes

  /// The indices of postponed writes begin here.
  static let firstPendingIndex = 1 << 30

  /// A local write of a key of the user's, whose value lies in the journal, without a deadline; nil for the value ends the key.
  /// What it replaces is looked up when all of them are known: many look-ups at once cost less than one after the other.
  mutating func enqueue(key: [UInt8], value: [UInt8]?, type: ValueType) throws(StoreError) {
    try requireWritable(key)
    let more = AppendExtent.bytes(key: key.count, value: value?.count ?? 0)
    guard extent.bytes + pendingBytes + more + AppendExtent.definitions <= byteLimit else { throw isFull }
    pendingBytes += more
    let hash = XXH3.hash64(key, seed: hashSeed)
    pendingKeys.reserve()
    let slot = pendingKeys.slot(of: hash) { isKey(key, at: $0) }
    let previous = pendingKeys.index(in: slot)
    pendingKeys.set(slot, hash: hash, to: Self.firstPendingIndex + pending.count)
    pending.append(key: key, value: value, type: type, hash: hash, previous: previous)
  }

  /// The number among the postponed writes of the one that is the last word of this append on a key; nil if there is none.
  func pendingWrite(of key: [UInt8]) -> Int? {
    guard pending.count > 0, let index = index(of: key), index >= Self.firstPendingIndex else { return nil }
    return index - Self.firstPendingIndex
  }

  /// The name that a postponed write will have, and its stamp: each of those before it takes one of either. Nil where it cannot be
  /// issued: the clock stands at its end.
  func version(ofPending number: Int) -> Version? {
    guard let actor = state.actor else { return nil }
    var clock = state.author.clock
    let (sequence, isOver) = state.sequence.addingReportingOverflow(UInt64(number) + 1)
    guard !isOver, let first = clock.tick(wall: wall),
      Stamp.maximum.rawValue - 1 - first.rawValue >= UInt64(number)
    else { return nil }
    return Version(
      stamp: Stamp(rawValue: first.rawValue + UInt64(number)), dot: Dot(actor: actor, sequence: sequence))
  }

  /// Issues what was postponed; `held` looks up what is held of a key. All of it, or the append stays as it was.
  mutating func issuePending(_ held: ([UInt8]) -> ReplacedRecord?) throws(StoreError) {
    let before = (entries: entries.count, extent: extent, state: state, bytes: pendingBytes)
    do throws(StoreError) { try issueEachPending(held) } catch {
      // Some were issued, and all are still postponed: another attempt would issue those twice.
      for (number, write) in pending.list.enumerated() {
        recordKey(pending.bytes(write.key), at: Self.firstPendingIndex + number)
      }
      entries.removeSubrange(before.entries...)
      (extent, state, pendingBytes) = (before.extent, before.state, before.bytes)
      throw error
    }
  }

  private mutating func issueEachPending(_ held: ([UInt8]) -> ReplacedRecord?) throws(StoreError) {
    let writes = pending
    let first = entries.count
    isIssuingPending = true
    defer { isIssuingPending = false }
    for write in writes.list {
      // They are counted as they are issued, once more.
      pendingBytes -= AppendExtent.bytes(key: write.key.count, value: write.value.count)
      // Those before it were issued, one entry each.
      let previous = write.previous.map {
        record(at: $0 >= Self.firstPendingIndex ? first + $0 - Self.firstPendingIndex : $0).replaced
      }
      let key = writes.bytes(write.key)
      try issue(
        key: key, content: write.isTombstone ? .tombstone : .inline(writes.bytes(write.value)),
        type: write.type, deadline: nil, held: previous ?? held(key))
      issuedPendingCount += 1
    }
    pending = WriteBatch()
  }

  // MARK: The append

  /// What this append has made of a key, nothing being postponed; nil if it has not touched it.
  func record(of key: [UInt8]) -> Record? { index(of: key).map(record(at:)) }

  private func index(of key: [UInt8]) -> Int? {
    guard !pendingKeys.isEmpty else { return nil }
    return pendingKeys.find(XXH3.hash64(key, seed: hashSeed)) { isKey(key, at: $0) }
  }

  private func isKey(_ key: [UInt8], at index: Int) -> Bool {
    index >= Self.firstPendingIndex
      ? pending.isKey(key, at: index - Self.firstPendingIndex) : record(at: index).key == key
  }

  private func record(at index: Int) -> Record {
    precondition(index < Self.firstPendingIndex, "what was postponed is settled before it is asked for")
    if index < 0 { return unparked[~index] }
    guard case .write(let record, _) = entries[index] else {
      preconditionFailure("only writes are noted by their keys")
    }
    return record
  }

  private mutating func append(write record: consuming Record) throws(StoreError) {
    try growExtent { $0.add(record) }
    recordKey(record.key, at: entries.count)
    entries.append(.write(record, position: nil))
  }

  private mutating func recordKey(_ key: [UInt8], at index: Int) {
    let hash = XXH3.hash64(key, seed: hashSeed)
    pendingKeys.reserve()
    pendingKeys.set(pendingKeys.slot(of: hash) { isKey(key, at: $0) }, hash: hash, to: index)
  }

  mutating func append(_ entry: JournalEntry) throws(StoreError) {
    try growExtent { $0.add(entry) }
    entries.append(entry)
  }

  /// Counts what comes next. What does not fit leaves no trace: a caller may go on without it.
  private mutating func growExtent(_ add: (inout AppendExtent) -> Void) throws(StoreError) {
    add(&extent)
    guard
      extent.bytes - loserBytes + pendingBytes > byteLimit + (isIssuingPending ? Self.pendingSlackBytes : 0)
    else {
      return
    }
    extent = AppendExtent(entries)
    throw isFull
  }

  private var isFull: StoreError {
    StoreError(
      .outOfBounds, "the transaction is larger than \(CountText.of(byteLimit, noun: "byte")): split it")
  }
}
