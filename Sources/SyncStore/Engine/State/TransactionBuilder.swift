/// Builds one atomic append by the rules of versions: a value type without I/O. The caller looks up the
/// currently held records (`held`), except for keys that this append itself has replaced.
struct TransactionBuilder {
  /// The entries to append.
  private(set) var entries: [JournalEntry] = []
  /// Their encoded size.
  private(set) var extent = AppendExtent()
  /// The replica state after this append.
  private(set) var state: ReplicaState
  /// Local writes, to come after the entries, whose replaced records have not been looked up yet.
  private(set) var pending = WriteBatch()
  /// The keys that this append touches, as indices: of `entries`; complemented (`~`), of `unparked`; from
  /// `Self.firstPendingIndex` on, of `pending`.
  private var pendingKeys = PendingKeys()
  private var unparked: [Record] = []
  /// Local keys set or removed by this append.
  private(set) var locals: [[UInt8]: [UInt8]?] = [:]
  /// Wall-clock time in milliseconds since 1970.
  let wall: UInt64
  /// The journal's last position before the append.
  let position: UInt64
  private var pendingBytes = 0
  private var isIssuingPending = false
  /// Number of pending writes issued, so that tests can count the steps.
  private(set) var issuedPendingCount = 0

  /// Upper bound on the bytes of the append so far, including pending writes as far as known: these need a
  /// definition of their author.
  var bytes: Int {
    let isNamed = pending.count == 0 || state.actor.map(extent.actors.contains) ?? false
    return extent.bytes + pendingBytes + (isNamed ? 0 : AppendExtent.definitions)
  }

  /// Limit on the bytes of the append, beaten values excluded.
  private let byteLimit: Int
  /// Bytes of beaten values.
  private var loserBytes = 0
  private let hashSeed: UInt64
  /// Slack for what pending writes turn out to replace, so that commit cannot fail with `.outOfBounds` once
  /// every write was accepted.
  private static let pendingSlackBytes = 512 << 10

  /// `hashSeed` must be unpredictable to anyone who chooses keys: otherwise they could force collisions.
  init(state: ReplicaState, wall: UInt64, position: UInt64, limit: Int, hashSeed: UInt64) {
    (self.state, self.wall, byteLimit, self.hashSeed) = (state, wall, limit, hashSeed)
    self.position = position
  }

  /// Number of positions that the append takes, if no writes are pending.
  var positions: UInt64 {
    entries.reduce(0) { count, entry in
      switch entry {
      case .write(_, nil), .parked(_, nil): count + 1
      default: count
      }
    }
  }

  /// Received records stamped above this are parked.
  var stampLimit: Stamp { Stamp(milliseconds: wall + Limits.clockDriftMilliseconds) }

  // MARK: Local writes

  /// Adds a write of this copy, stamped above everything that it has seen.
  mutating func issue(
    key: [UInt8], content: Record.Content, type: ValueType, deadline: UInt64?, held: ReplacedRecord?,
    names: [Dot] = []
  ) throws(StoreError) {
    try requireWritable(key)
    try stampAndAppend(key: key, content: content, type: type, deadline: deadline, held: held, names: names)
  }

  /// Refuses a user's write that would reach no other member, and one of a key outside the scope: this copy
  /// would not learn of others' changes to it. Reserved keys are not restricted.
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
    // A dot of an unconfirmed incarnation may name another value elsewhere, which was unknown here.
    if let base = past.base, state.incarnations.isInUnconfirmedIncarnation(base) {
      past.base = held?.base.flatMap { state.incarnations.isInUnconfirmedIncarnation($0) ? nil : $0 }
    }
    let author = state.author
    let version = try state.author.nextVersion(wall: wall)
    do throws(StoreError) {
      try append(
        write: Record(
          version: version, context: past, deadline: deadline, type: type, key: key, content: content))
    } catch {
      // A dot without a record would leave a gap in the sequence.
      state.author = author
      throw error
    }
  }

  /// Issues the record again as a new write.
  mutating func reissue(_ record: Record, names: [Dot] = []) throws(StoreError) {
    try stampAndAppend(
      key: record.key, content: record.content, type: record.type, deadline: record.deadline,
      held: record.replaced, names: names)
  }

  /// Sets a local key; nil removes it.
  mutating func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try append(.local(key: key, value: value))
    state.apply(local: key, value)
    locals[key] = .some(value)
  }

  // MARK: Received records

  /// Applies a record received in a round. `held` is the applied record of its key, `parked` the parked ones.
  /// Losers whose digests are in `kept` are not kept again.
  ///
  /// A record that is no tombstone, and not newer than this copy's purge horizon, is issued again as a new
  /// write: a tombstone purged here may have beaten it elsewhere (rule R8). A record in the missing scope
  /// `lacking` is new, whatever this copy covers: nothing was purged here under those keys, and an own write
  /// under them would be lost, yet covered, if another session restarts the expansion.
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
      // The held record will be issued again: without this no trace would show that it beat this one.
      try keepBatchLoser(record)
    case .park:
      if parked.contains(where: { $0.dot == record.dot }) { return }
      // Reserved keys resolve without conflicts.
      return try append(record.isReserved ? .write(record, position: nil) : .parked(record, position: nil))
    case .win, .lose:
      if parked.contains(where: { $0.dot == record.dot }) { return }
      state.author.clock.observe(record.stamp)
      let outcome = try resolve(record, against: held, from: .batch, kept: kept)
      if let outcome { try transferDots(outcome.names, to: outcome.winner) }
    }
  }

  /// Not on a copy that does not cover its own floor: a full state, yet to come or being closed, decides
  /// about received records.
  private func mayHaveBeenPurged(_ record: Record, held: Record?) -> Bool {
    record.stamp <= state.purged.horizon && !record.isReserved && !state.isRecovering
      && !state.covers(record.dot)
      && held.map { $0.version < record.version } ?? true && !record.isTombstone
      && state.vector.covers(state.purged.floor)
  }

  /// Applies parked records of one key that are due, already in the journal, in the order of their versions.
  ///
  /// Only the greatest is issued again with the open dots of the beaten ones: a lesser one is superseded, and
  /// issued again it would beat the record that replaced it.
  ///
  /// - Parameter isAlone: no other group was unparked before in this append, so these records cannot be
  ///   postponed to the next one. Losers that exceed the limit of one append are then not kept.
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
          record, against: self.record(of: record.key) ?? stored, from: .journal(keepsAll: !isAlone),
          kept: kept)
      else { continue }
      winner = outcome.winner
      names += outcome.names
    }
    if let winner { try transferDots(names, to: winner) }
  }

  /// Where a record to be resolved comes from.
  private enum RecordSource {
    /// A received batch. Its winner is appended; losing values over the limit are dropped.
    case batch
    /// The journal, where it was parked. With `keepsAll`, losing values over the limit make the append fail.
    case journal(keepsAll: Bool)
  }

  /// Applies the greater of the two records, and keeps the lesser one in a conflict. Returns the greater and
  /// the dots that it must be issued again with; nil if there is only one record.
  private mutating func resolve(
    _ record: Record, against held: Record?, from source: RecordSource, kept: Set<StateDigest>
  ) throws(StoreError) -> (winner: Record, names: [Dot])? {
    let verdict = Resolution.apply(record, held: held)
    let (winner, loser, isConflict): (Record, Record?, Bool)
    switch verdict {
    case .win(let conflict):
      (winner, loser, isConflict) = (record, held, conflict)
      switch source {
      case .batch: try append(write: record)
      case .journal:
        unparked.append(record)
        recordKey(record.key, at: ~(unparked.count - 1))
      }
    case .lose(let conflict):
      guard let held else { return nil }
      (winner, loser, isConflict) = (held, record, conflict)
    case .ignore, .park: return nil
    }
    guard let loser else { return nil }
    if isConflict || isDoubtful(loser, against: winner), !kept.contains(StateDigest(of: loser)) {
      if case .journal(keepsAll: true) = source { try keepLoser(loser) } else { try keepBatchLoser(loser) }
    }
    return (winner, Resolution.openDots(of: loser, unknownTo: winner, covers: { state.covers($0) }))
  }

  /// Issues the winner again with those of the dots that it does not bear itself, if any.
  private mutating func transferDots(_ names: [Dot], to winner: Record) throws(StoreError) {
    let names = names.filter { !winner.open.contains($0) && $0 != winner.dot }
    if !names.isEmpty { try reissue(winner, names: names) }
  }

  /// Whether the record has the dot of an unconfirmed held record, but the content of another incarnation.
  private func isForkedContent(_ record: Record, of held: Record) -> Bool {
    guard held.dot == record.dot, state.incarnations.isUnconfirmed(held.dot), !record.isTombstone,
      !record.isReserved
    else {
      return false
    }
    var (other, held) = (record, held)
    (other.continues, held.continues) = (false, false)
    return other != held
  }

  /// Whether the two come from different incarnations of this copy: neither knew of the other's write,
  /// whatever their dots and bases say.
  private func isDoubtful(_ loser: Record, against winner: Record) -> Bool {
    (state.incarnations.isAmbiguous(loser.dot) || state.incarnations.isUnconfirmed(winner.dot))
      && !loser.isTombstone
      && !loser.isReserved
  }

  /// Keeps a beaten value for a while (`ConflictRetention`). It is never sent, so it does not count against
  /// the transaction limit: small records may beat large ones.
  ///
  /// - Throws: `.outOfBounds` if an append with a limit would have more losers than a compaction keeps.
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

  /// `keepLoser` for a batch or a record unparked alone, which cannot be split: losers over the limit are
  /// dropped, as the next compaction would.
  private mutating func keepBatchLoser(_ loser: Record) throws(StoreError) {
    do throws(StoreError) { try keepLoser(loser) } catch {
      guard error.code == .outOfBounds else { throw error }
    }
  }

  // MARK: Write batch

  /// First index of the pending writes.
  static let firstPendingIndex = 1 << 30

  /// Enqueues a local write of a user key with an inline value and no deadline; nil for the value deletes the
  /// key.
  ///
  /// The replaced records are looked up once all writes are known: many look-ups at once cost less than one
  /// after the other.
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

  /// What this append itself makes of a key.
  enum EarlierWrite {
    /// Nothing: the store tells what the key holds.
    case nothing
    /// A pending delete.
    case deleted
    /// A pending value, with its number among the pending writes.
    case pending(WriteBatch.Write, number: Int)
    /// A write that was issued: a value or a delete.
    case issued(Record)
  }

  /// The last write of a key. Does not issue the pending writes: issuing all of them at each call would be
  /// quadratic.
  func earlierWrite(of key: [UInt8]) -> EarlierWrite {
    guard let index = index(of: key) else { return .nothing }
    guard index >= Self.firstPendingIndex else { return .issued(record(at: index)) }
    let number = index - Self.firstPendingIndex
    let write = pending.list[number]
    return write.isTombstone ? .deleted : .pending(write, number: number)
  }

  /// The version that a pending write will get: each one before it takes one sequence number and one stamp.
  /// Nil if it cannot be issued because the clock has reached its end.
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

  /// Issues the pending writes; `held` looks up the record of a key. On failure the append is unchanged.
  mutating func issuePending(_ held: ([UInt8]) -> ReplacedRecord?) throws(StoreError) {
    let before = (entries: entries.count, extent: extent, state: state, bytes: pendingBytes)
    do throws(StoreError) { try issueEachPending(held) } catch {
      // Undo the writes already issued: all are still pending, and another attempt would issue those twice.
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
      // Its bytes are counted again when it is issued.
      pendingBytes -= AppendExtent.bytes(key: write.key.count, value: write.value.count)
      // The writes before it were issued, one entry each.
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

  // MARK: Append

  /// The record that this append makes of a key, if no writes are pending; nil if it does not touch the key.
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

  /// Adds to the extent. On failure the extent is unchanged: a caller may continue without the entry.
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
