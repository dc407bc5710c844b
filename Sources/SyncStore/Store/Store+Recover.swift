/// What the first process that opens a store for writing puts right.
extension Store {
  /// Carries out what recovery decided, and becomes a new actor where rule R9 asks for it. Does nothing if another
  /// process has done it since this control page was begun.
  func recover(lastLife: ControlPage.LastLife?, identity: StoreIdentity) throws(StoreError) {
    if case .afterDeath = control.lock() {
      try engine.withLock { engine throws(StoreError) in try repair(&engine) }
    }
    defer { control.unlock() }
    guard !control.recovered else { return }
    let foreign = try !identity.isAtHome(path, environment)
    var renewal: Composer.Renewal? = foreign ? .copied : nil
    try engine.withLock { engine throws(StoreError) in
      var journal = Journal(
        directory: journalDirectory, environment: environment, store: id, writable: true,
        largestSegment: configuration.segmentBytes)
      let blank = try journal.load()
      guard var plan = journal.plan(atWatermark: foreign) else { return }
      var rescued: [[JournalEntry]] = []
      if let lastLife, lastLife.poisoned {
        // Pages whose sync failed may be called clean though they never reached the disk: what they hold is written
        // once more, elsewhere (rule R4, F31).
        let durable = Location(packed: lastLife.durable)
        rescued = try Self.transactions(behind: durable, in: engine)
        if let index = journal.segments.firstIndex(where: { $0.number == durable.segment }) {
          (plan.tailIndex, plan.tailOffset, plan.cuts) = (index, durable.offset, true)
        }
        renewal = .copied
      }
      if plan.cuts, renewal == nil {
        let cut = Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset)
        // After a loss of power a lost tail may have been seen, if the disk had lied; a killed process ships nothing
        // that was not durable.
        if lastLife.map({ cut.packed < $0.durable }) ?? true { renewal = .copied }
      }
      guard plan.cuts || blank != nil else { return }
      var fresh = Engine(environment: environment, journal: journal)
      fresh.absorb(upTo: Location(segment: journal.segments[plan.tailIndex].number, offset: plan.tailOffset))
      try fresh.journal.carryOut(plan, position: fresh.position, blank: blank)
      guard plan.cuts, let last = fresh.journal.segments.last else { return }
      let tail = Location(segment: last.number, offset: SegmentHeader.length)
      fresh.absorb(upTo: tail)
      control.tail = tail.packed
      control.resetDurable(
        to: Location(segment: last.number - 1, offset: min(plan.watermark, plan.tailOffset)).packed)
      engine = fresh
      for entries in rescued { try commit(entries, &engine) }
    }
    control.clearPoison()
    let damage = engine.withLock { engine in
      engine.gaps.map(\.place).filter { !engine.state.noted.contains($0) }
    }
    if !damage.isEmpty { renewal = .damaged(damage) }
    control.recovered = true
    guard let renewal else { return }
    try engine.withLock { engine throws(StoreError) in try renew(renewal, &engine) }
    try sync(upTo: control.tail)
    if foreign { try StoreIdentity.write(id: id, name: name, path, environment) }
  }

  /// Transactions behind a place, as entries that can be appended once more.
  private static func transactions(
    behind place: Location, in engine: Engine
  ) throws(StoreError) -> [[JournalEntry]] {
    var transactions: [[JournalEntry]] = []
    var open: [JournalEntry] = []
    try engine.visit(from: place) { view throws(StoreError) in
      if let entry = view.entry { open.append(entry) }
      if !view.flags.contains(.continues), !open.isEmpty {
        transactions.append(open)
        open = []
      }
      return true
    }
    return transactions
  }

  /// Becomes a new actor. The caller holds the writers' mutex.
  func renew(_ renewal: Composer.Renewal, _ engine: inout Engine) throws(StoreError) {
    var composer = Composer(state: engine.state, wall: environment.now(), limit: Limits.transactionBytes)
    try composer.renew(renewal, as: environment.newActor())
    try commit(composer.entries, &engine)
  }

  /// After the death of a writer: takes in what it had stored whole, blanks the rest (F2, F13). The caller holds the
  /// writers' mutex.
  func repair(_ engine: inout Engine) throws(StoreError) {
    try catchUp(&engine)
    var tail = Location(packed: control.tail)
    let next = engine.journal.path(of: tail.segment + 1)
    if try environment.storage.status(next) != nil {
      do throws(StoreError) {
        try engine.journal.extend(to: tail.segment + 1)
        tail = Location(segment: tail.segment + 1, offset: SegmentHeader.length)
      } catch {
        // It died before the header was there: the next writer makes the segment anew.
        guard error.code == .damaged else { throw error }
        _ = try environment.storage.remove(next)
      }
    }
    guard let segment = engine.journal.segment(tail.segment) else { return }
    let writing = Location(packed: control.writing)
    let limit = writing.segment == tail.segment ? max(writing.offset, tail.offset) : segment.mapping.count
    let end = engine.journal.endOfUnpublished(from: tail.offset, to: limit, in: segment)
    if end < limit { segment.mapping.clear(end..<min(limit, segment.mapping.count)) }
    control.tail = Location(segment: tail.segment, offset: end).packed
    try catchUp(&engine)
  }
}

extension RecordView {
  /// The record as an entry that can be appended once more; nil for what an append makes by itself.
  fileprivate var entry: JournalEntry? {
    switch kind {
    case .value, .blob, .tombstone:
      guard let record = decoded() else { return nil }
      return flags.contains(.loser) ? .loser(record) : .write(record, position: position)
    case .local: return shape.map { .local(key: key($0), value: value($0)) }
    case .localRemoval: return shape.map { .local(key: key($0), value: nil) }
    case .actor, .checkpoint, nil: return nil
    }
  }
}

extension JournalDamage {
  /// Where it begins.
  var place: Location { Location(segment: segment, offset: bytes.lowerBound) }
}
