extension Store {
  /// Fixes a durable snapshot of what a receiver lacks: what lies behind its cursor, is current and is not covered. Who must
  /// have full state (rule R8) is also told what else is held here.
  ///
  /// - Throws: `.rolledBack` if the receiver knows a round or a write of this copy that it does not know itself;
  ///   `.unsettled` if full state is needed and this copy cannot give it.
  package func openRound(for receiver: RoundReceiver) throws(StoreError) -> OutgoingRound {
    let begin = receiver.cursor?.position ?? 0
    if try isInDoubt {
      _ = try givesFullState(engine.withLock { $0.state }, to: receiver, isLive: false)
      try reissueUnknown(to: receiver.covered, behind: begin)
    }
    let (round, tail) = try composeRound(for: receiver, behind: begin, isLive: false)
    // The mark and all records of the snapshot are durable before any of them leaves (rules R7, R9).
    try sync(upTo: tail)
    return round
  }

  /// The same for what lies behind a position that may be greater than the cursor's. A live session has no full state. Nothing of
  /// the round may leave before all up to `tail` is durable, and its mark is in use until `releaseLiveMark`.
  ///
  /// Where much is to be looked through, that is done beforehand (`surveyed`, or else here): writers wait only for what was appended since.
  func composeRound(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool, surveyed: RoundSurvey? = nil
  ) throws(StoreError) -> (round: OutgoingRound, tail: UInt64) {
    var survey = surveyed
    for _ in 0..<Self.surveys {
      if survey == nil { survey = try self.survey(for: receiver, behind: begin, isLive: isLive) }
      guard let found = survey else { break }
      if let composed = try composeRound(for: receiver, behind: begin, isLive: isLive, beside: found) {
        return composed
      }
      survey = nil
    }
    guard let composed = try composeRound(for: receiver, behind: begin, isLive: isLive, beside: nil) else {
      preconditionFailure("without a survey nothing can make it worthless")
    }
    return composed
  }

  /// After so many surveys that came to nothing, all is looked through while writers wait.
  private static let surveys = 2

  /// What of a round is fixed under the writers' mutex.
  private struct Opening {
    var close: RoundClose
    /// What lies behind the place up to which was surveyed.
    var items: [OutgoingRound.Item]
    /// Of a full state: up to here the receiver has had an earlier one.
    var start: UInt64
    var moment: RoundSurvey.Moment?
  }

  /// Nil if the survey does not tell what is current at this moment.
  private func composeRound(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool, beside survey: RoundSurvey?
  ) throws(StoreError) -> (round: OutgoingRound, tail: UInt64)? {
    let pin = survey?.pin ?? SnapshotPin()
    var used: RoundMark?
    // Until the round is there its mark is not given to anybody.
    defer { if let used { live.release(used) } }
    let (opening, tail) = try append { composer throws(StoreError) -> Opening? in
      let state = composer.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      let isFull = try givesFullState(state, to: receiver, isLive: isLive)
      // Before there is a mark: what a peer may have been given cannot be restamped.
      if isFull || receiver.lacking != nil { try checkHorizon(state.horizon, at: composer.wall) }
      let choice = RoundChoice(for: receiver, behind: begin, isFull: isFull)
      let found = try reading { engine throws(StoreError) -> ([OutgoingRound.Item], RoundSurvey.Moment?)? in
        guard let survey else {
          engine.hold(pin)
          return (try Self.items(choice, in: engine), nil)
        }
        guard let moment = survey.moment(isFull: isFull, in: engine) else { return nil }
        return (try Self.items(choice, behind: survey.reached, in: engine, group: survey.group), moment)
      }
      guard let (items, moment) = found else { return nil }
      let (position, digest) = engine.withLock { ($0.position, $0.runningDigest) }
      let mark = try self.mark(&composer, position: position, digest: digest, isLive: isLive)
      // While nobody else can let go of it, or make another one.
      if isLive {
        live.use(mark)
        used = mark
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.givenVector,
        floor: state.floor, horizon: state.horizon, isFull: isFull)
      return Opening(close: close, items: items, start: choice.start, moment: moment)
    }
    guard let opening else { return nil }
    var items = opening.items
    if var survey, let moment = opening.moment {
      guard try survey.settle(at: moment) else { return nil }
      items = survey.items + items
    }
    let round = OutgoingRound(store: self, close: opening.close, items: items, start: opening.start, pin: pin)
    used = nil
    return (round, tail)
  }

  /// Does this copy give the receiver full state (rule R8)?
  static func givesFullState(_ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool) -> Bool {
    let isBehind =
      receiver.standing != .settled || state.scope == nil && !receiver.covered.covers(state.floor)
    return !isLive && receiver.lacking == nil && isBehind
  }

  /// The same, once it is sure that it can give what the receiver needs, and was not rolled back.
  private func givesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver, isLive: Bool
  ) throws(StoreError) -> Bool {
    if let cursor = receiver.cursor, state.marks[cursor.mark] == nil {
      throw StoreError(
        .rolledBack, "a peer has received a round that this copy knows nothing of", path: path)
    }
    try requireOwnWrites(in: receiver.covered, state)
    let isFull = Self.givesFullState(state, to: receiver, isLive: isLive)
    if receiver.lacking != nil, state.scope != nil { throw Self.holdsSome }
    if isFull { try checkGivesFullState(state, to: receiver) }
    return isFull
  }

  private func checkGivesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver
  ) throws(StoreError) {
    guard state.scope == nil else { throw Self.holdsSome }
    let canMend = state.isSettled && state.vector.covers(receiver.floor)
    // In doubt, it gives less than it covers: who took over a floor above that could give nobody the full state, this copy neither.
    guard !state.mending, state.givenVector.covers(state.floor), receiver.standing != .mending || canMend
    else {
      throw StoreError(
        .unsettled,
        "a peer needs the full state, and this copy waits for the full state of another one itself: let both synchronize with "
          + "another member", path: path)
    }
  }

  /// Whoever takes over what was purged stamps all that it writes from then on above that. Purged by a clock that ran far ahead, this
  /// would have the others let those writes wait until then (F50).
  private func checkHorizon(_ horizon: Stamp, at wall: UInt64) throws(StoreError) {
    guard horizon > Stamp(milliseconds: wall + Limits.horizonLeadMilliseconds) else { return }
    throw StoreError(
      .clock,
      "deletes that were purged here are stamped \(Restamping.lead(horizon, wall)) ahead of this clock, and a peer that "
        + "was told so would write as far ahead: put this clock right, or, if it is, have what was written ahead restamped "
        + "(`Store.restampUnsent`)", path: path)
  }

  private static let holdsSome = StoreError(
    .unsettled, "a peer needs what only a copy of all keys can give: let it synchronize with one")

  /// What is current and for the receiver, behind a position if one is given, at most so many. `group` numbers the first transaction.
  static func items(
    _ choice: RoundChoice, behind reached: UInt64? = nil, in engine: borrowing Engine,
    group first: UInt32 = 0,
    limit: Int = .max
  ) throws(StoreError) -> [OutgoingRound.Item] {
    var items: [OutgoingRound.Item] = []
    let position = reached ?? choice.begin
    // Local records take no position: thousands of sessions are told in vain that the journal has grown.
    guard engine.position > position else { return items }
    items.reserveCapacity(Int(clamping: min(engine.position - position, engine.keyCount, UInt64(limit))))
    var group = first
    // The index is asked for several at once: the cache misses of all then overlap.
    let keys = engine.index.keys
    var waiting: [(hash: UInt64, item: OutgoingRound.Item)] = []
    waiting.reserveCapacity(askedAtOnce)
    func ask() {
      for (hash, item) in waiting where items.count < limit && engine.isCurrent(at: item.location, hash) {
        items.append(item)
      }
      waiting.removeAll(keepingCapacity: true)
    }
    // A record passed over here would be one that the receiver believes it has (rule R6).
    try engine.visit(from: engine.start(of: position + 1), isComplete: true) { view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { group &+= 1 } }
      guard view.position > position, view.isWrite, let dot = view.dot,
        let isPresent = choice.isPresent(view, dot), !engine.state.isSuspect(dot), let shape = view.shape
      else { return true }
      let hash = view.bytes.withSpan(shape.key) { keys.hash($0) }
      keys.prefetch(hash)
      waiting.append((hash, OutgoingRound.Item(view, hash: hash, group: group, isPresent: isPresent)))
      if waiting.count == min(askedAtOnce, limit) { ask() }
      return items.count < limit
    }
    ask()
    return items
  }

  private static let askedAtOnce = 16
}

/// One transfer to a peer: what changed between two positions, or all that is held, closed by the sender's vector (rule
/// R10). The snapshot is fixed when it is opened; what is written later goes with the next round.
package final class OutgoingRound: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Records of one transaction share it, and those next to it do not; they leave in one batch.
    var group: UInt32
    /// What the record takes up in the journal.
    var bytes: UInt32
    /// A part of the hash of its key.
    var hash: UInt32
    /// Has the receiver got it already, and is only told that it is held here?
    var isPresent: Bool

    init(_ view: RecordView, hash: UInt64, group: UInt32, isPresent: Bool) {
      (location, position, bytes) = (view.location, view.position, UInt32(view.end - view.offset))
      (self.hash, self.group, self.isPresent) = (UInt32(truncatingIfNeeded: hash), group, isPresent)
    }
  }

  /// What will close the round.
  package let close: RoundClose
  private let store: Store
  let items: [Item]
  /// Of a full state: up to here the receiver has had an earlier one.
  private let start: UInt64
  private let next = LockedField(0)
  /// Compaction leaves the places of the items readable.
  private let pin: SnapshotPin

  init(store: Store, close: RoundClose, items: [Item], start: UInt64, pin: SnapshotPin) {
    (self.store, self.close, self.items, self.start, self.pin) = (store, close, items, start, pin)
  }

  /// How many records it has.
  package var count: Int { items.count { !$0.isPresent } }

  /// About how many bytes the records take up that were not given yet.
  package var bytesLeft: Int {
    // Counted no further than anybody wants to know.
    let next = next.withLock { $0 }
    return items[next..<min(items.count, next + (1 << 13))].reduce(0) { $0 + Int($1.bytes) }
  }

  /// Writes that a batch of a full state names beside its records.
  private static let mostPresent = 1 << 15

  /// Gives `writer` the records of the next batch of whole transactions, of about `maximumBytes` bytes of records unless one
  /// transaction has more; nil at the end. What `writer` was given before an error does not count.
  package func next(
    maximumBytes: Int, into writer: inout some BatchWriter
  ) throws(StoreError) -> OutgoingBatch? {
    try next.withLock { next throws(StoreError) in
      guard next < items.count else { return nil }
      let parts = parts(from: next, maximumBytes: maximumBytes)
      var batch = OutgoingBatch(position: max(start, items[parts.end - 1].position))
      for part in parts.list {
        if items[part.lowerBound].isPresent {
          batch.present += try store.dots(items[part], pin)
        } else {
          batch.records += part.count
          batch.users += try store.write(items[part], pin, into: &writer)
        }
      }
      batch.present.sort()
      next = parts.end
      return batch
    }
  }

  /// The next items that go together, transaction by transaction, and apart those that the receiver has.
  private func parts(from first: Int, maximumBytes: Int) -> (list: [Range<Int>], end: Int) {
    var list: [Range<Int>] = []
    var (present, bytes, end) = (0, 0, first)
    while end < items.count, present < Self.mostPresent {
      var partEnd = end + 1
      if items[end].isPresent {
        while partEnd < items.count, items[partEnd].isPresent, partEnd - end < Self.mostPresent - present {
          partEnd += 1
        }
        present += partEnd - end
      } else {
        var size = Int(items[end].bytes)
        while partEnd < items.count, items[partEnd].group == items[end].group, !items[partEnd].isPresent {
          size += Int(items[partEnd].bytes)
          partEnd += 1
        }
        if bytes > 0, bytes + size > maximumBytes { break }
        bytes += size
      }
      list.append(end..<partEnd)
      end = partEnd
    }
    return (list, end)
  }
}

extension Store {
  /// The records of one transaction of a round whose snapshot still stands. Returns how many are of users.
  fileprivate func write(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin, into writer: inout some BatchWriter
  ) throws(StoreError) -> Int {
    try reading { engine throws(StoreError) in
      try pin.check(path)
      var users = 0
      for (index, item) in zip(items.indices, items) {
        // In the journal what follows may be no record of the round: superseded, or of this copy alone.
        let continues = index < items.endIndex - 1
        if let isOfUser = try engine.write(item, continues: continues, into: &writer) {
          users += isOfUser ? 1 : 0
          continue
        }
        var record = try engine.record(at: item.location)
        record.continues = continues
        users += record.isReserved ? 0 : 1
        writer.write(PositionedRecord(position: item.position, record: record))
      }
      return users
    }
  }

  /// The names of records of a round whose snapshot still stands.
  fileprivate func dots(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin
  ) throws(StoreError) -> [Dot] {
    try reading { engine throws(StoreError) in
      try pin.check(path)
      var dots: [Dot] = []
      dots.reserveCapacity(items.count)
      for item in items {
        guard let dot = try engine.journal.record(at: item.location).dot else {
          throw StoreError(
            .damaged, "a record lost the definition of its actor: run `Store.verify`", path: path)
        }
        dots.append(dot)
      }
      return dots
    }
  }
}

extension Engine {
  /// Gives a record of the ordinary form to `writer`, from its bytes in the journal. Nil if it is of another form, or cannot be
  /// read as it is; else whether it is of a user.
  fileprivate func write(
    _ item: OutgoingRound.Item, continues: Bool, into writer: inout some BatchWriter
  ) throws(StoreError) -> Bool? {
    guard let segment = journal.segment(item.location.segment), segment.seal == nil else { return nil }
    let bytes = MappedBytes(segment.mapping)
    let offset = item.location.offset
    guard offset < bytes.count,
      let record = PlainRecord(
        bytes.extracting(offset..<bytes.count),
        seed: segment.header.salt &+ UInt64(truncatingIfNeeded: offset)),
      record.isWhole, !record.flags.contains(.deadline), !record.flags.contains(.loser),
      record.key < record.value, let actor = segment.actor(numbered: record.actorNumber)
    else { return nil }
    var base: Dot?
    if record.flags.contains(.base) {
      let number: UInt16 = record.bytes.load(RecordLayout.fixedLength)
      guard let actor = segment.actor(numbered: number) else { return nil }
      base = Dot(actor: actor, sequence: record.bytes.load(RecordLayout.fixedLength + 2))
    }
    let heading = OutgoingHeading(
      position: item.position,
      version: Version(
        stamp: Stamp(rawValue: record.bytes.load(RecordLayout.stamp)),
        dot: Dot(actor: actor, sequence: record.bytes.load(RecordLayout.sequence))),
      base: base, type: record.type, isTombstone: record.isTombstone, continues: continues)
    let isOfUser = record.bytes.load(record.key, as: UInt8.self) != ReservedKey.first
    record.withKey { key in
      record.bytes.withSpan(record.value..<record.bytes.count) { value in
        writer.write(heading, key: key, value: value)
      }
    }
    try segment.checkUnchanged(at: offset)
    return isOfUser
  }
}
