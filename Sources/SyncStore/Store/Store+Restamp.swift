/// Restamping of writes made while the clock ran ahead, as long as no other copy can have them (F49).
extension Store {
  /// The result of `restampUnsent`.
  public struct RestampReport: Hashable, Sendable {
    /// Writes that were restamped, including deletes and the store's own.
    public var writes = 0
    /// Milliseconds by which this copy's stamps were ahead of its clock.
    public var aheadMilliseconds: UInt64 = 0
  }

  /// Milliseconds by which the stamps of this copy are ahead of its clock. Above
  /// `Limits.clockDriftMilliseconds`, peers park what is written here until it is due.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func clockLead() throws(StoreError) -> UInt64 {
    let now = environment.now()
    let last = try reading { engine throws(StoreError) in engine.state.author.clock.last.milliseconds }
    return last - min(now, last)
  }

  /// Limit on the bytes of the journal that one restamping rewrites.
  static let restampedBytes = 1 << 30

  /// Restamps the writes of this copy that are stamped ahead of its clock with the present time, and resets
  /// the copy's clock.
  ///
  /// The writes keep their order, their transactions and all their content: values, types, deadlines, what
  /// they replaced.
  ///
  /// For a machine whose clock was years ahead, and is right now. Peers receive what it wrote then, but park
  /// it until it is due, and every later write is stamped above that. **Call it before the copy meets a
  /// peer**: writes that may have been sent, or are in a backup, cannot be taken back. The copy becomes a new
  /// actor, as a dot has one content for ever (rule R9). Atomic under crashes, and durable on return; other
  /// processes may use the store. Does nothing if no write is stamped ahead by more than
  /// `Limits.clockDriftMilliseconds`.
  ///
  /// - Throws: `.clock` if this clock was never set, or writes that are ahead may be known elsewhere;
  ///   `.unsettled` if the copy still recovers lost records from a peer; `.outOfBounds` if more than 1 GiB of
  ///   the journal would be rewritten; `.diskFull`, `.damaged` …
  @discardableResult
  public func restampUnsent() throws(StoreError) -> RestampReport {
    try checkWritable()
    if let clockWarning { throw StoreError(.clock, "nothing is restamped: \(clockWarning)", path: path) }
    try sync()
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    let (report, tail): (RestampReport, UInt64)
    do {
      defer { control.unlock() }
      (report, tail) = try core.engine.withLock { engine throws(StoreError) in
        (try restamp(&engine), control.tail)
      }
    }
    try sync(upTo: tail)
    if report.aheadMilliseconds > 0 {
      StoreLog.log(
        .warning, path: path,
        "\(CountText.of(report.writes, noun: "write")) stamped \(RestampPlan.text(milliseconds: report.aheadMilliseconds)) ahead got the "
          + "present time now: this copy goes on under a new name of its own")
    }
    return report
  }

  /// `restampUnsent` for the holder of the writers' mutex.
  private func restamp(_ engine: inout Engine) throws(StoreError) -> RestampReport {
    let wall = environment.now()
    guard var plan = RestampPlan(engine.state, wall: wall) else { throw missingActorError }
    guard engine.state.author.clock.last > plan.limit else { return RestampReport() }
    guard !engine.state.isRecovering else {
      throw StoreError(
        .unsettled, "nothing is restamped while damage is mended: synchronize with a peer first", path: path)
    }
    try engine.feed(&plan)
    if let refusal = plan.refusal {
      throw StoreError(.clock, "nothing is restamped: \(refusal.why): \(refusal.remedy)", path: path)
    }
    guard plan.bytes <= Self.restampedBytes else {
      throw StoreError(
        .outOfBounds,
        "nothing is restamped: \(plan.bytes) bytes of the journal are stamped ahead, \(Self.restampedBytes) can be written anew "
          + "at once: make a new store of what this one holds (`Store.importAll(from:)`)", path: path)
    }
    let lead = engine.state.author.clock.last.milliseconds - wall
    let transactions = try transactions(for: plan, in: engine)
    try begin(with: transactions, wall: wall, &engine)
    return RestampReport(writes: plan.count, aheadMilliseconds: lead)
  }

  /// The transactions to append: first the new replica state, then the restamped transactions. Each begins
  /// with the purges of the records that it replaces.
  private func transactions(
    for plan: RestampPlan, in engine: borrowing Engine
  ) throws(StoreError) -> [[JournalEntry]] {
    var builder = engine.transactionBuilder(wall: plan.wall, limit: .max)
    let former = plan.actor
    let next = environment.newActor()
    try builder.retract(plan, as: next)
    // As after a truncation: earlier backups are still this copy's own.
    for (token, value) in engine.localMetadata.all(beginning: StateKey.backupPrefix)
      .sorted(by: { $0.key.lexicographicallyPrecedes($1.key) })
    where value.starts(with: former.bytes) {
      try builder.setLocal(token, next.bytes + value.dropFirst(former.bytes.count))
    }
    var author = builder.state.author
    var transactions = [builder.entries]
    if plan.count == 0, plan.isHorizonAhead {
      // The floor names the first write.
      let version = try author.nextVersion(wall: plan.wall)
      let record = Record(version: version, key: ReservedKey.restamped, content: .tombstone)
      transactions.append([.write(record, position: nil)])
    }
    let ownFrontier = engine.localMetadata[StateKey.member].flatMap { DeviceID(bytes: $0) }
      .map { ReservedKey.frontier($0) }
    let stays = try engine.lastInTime(of: plan)
    for group in plan.transactions {
      var entries: [JournalEntry] = []
      for record in group {
        let isLive = record.isLive(at: plan.wall)
        entries.append(.purge(Purge(key: record.key, version: record.version, hadValue: isLive)))
      }
      for var record in group {
        let version = try author.nextVersion(wall: plan.wall)
        record.base = stays[record.key] ?? record.base
        (record.dot, record.stamp, record.continues) = (version.dot, version.stamp, false)
        // The frontier names the retracted actor.
        if record.key == ownFrontier, !record.isTombstone {
          record.content = .inline(
            Frontier.bytes(builder.state.vector, isNarrow: builder.state.scope != nil))
        }
        entries.append(.write(record, position: nil))
      }
      transactions.append(entries)
    }
    return transactions
  }

  /// Begins a segment with the transactions at its start, so that all of them exist or none, and applies
  /// them. The caller holds the writers' mutex.
  private func begin(
    with transactions: [[JournalEntry]], wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) {
    let tail = Location(packed: control.tail)
    try writes.segments.syncHeader(of: tail.segment, engine)
    let durable = Location(packed: control.durable)
    let end: Int
    do throws(StoreError) {
      end = try engine.journal.begin(
        after: tail.offset, durable: durable.segment == tail.segment ? durable.offset : SegmentHeader.length,
        position: engine.position, transactions: transactions)
    } catch {
      // As in `Store.begin`: the new segment states where this one ends.
      if engine.journal.isNamed(tail.segment + 1) { control.setPoisoned() }
      throw error
    }
    let segment = engine.journal.segments[engine.journal.segments.count - 1]
    control.raiseLastDurableSegment(to: segment.number)
    engine.compaction.deadBytesReviewThreshold = 0
    writes.publish(end, in: segment, wall: wall, &engine)
  }
}

extension Engine {
  /// Feeds the journal to a plan.
  ///
  /// - Parameter keepsRecords: if false, the plan only counts.
  func feed(_ plan: inout RestampPlan, keepsRecords: Bool = true) throws(StoreError) {
    var found = plan
    let start = Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    // A record skipped here would be lost once the clock is set back.
    try visit(from: start, isComplete: true) { view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { found.endTransaction() } }
      guard view.isWrite, let version = view.version else { return true }
      let isAhead = version.stamp > found.limit
      let isCurrent = isAhead && isCurrent(view) && !isParked(view)
      guard found.classify(version, isCurrent ? .current : .passive) else { return true }
      if keepsRecords {
        found.add(try decoded(view), bytes: view.end - view.offset)
      } else {
        found.countOnly()
      }
      return true
    }
    plan = found
  }

  /// For each key with a retracted write: this actor's last write that stays, if the journal has it. Others
  /// hold that one, so the restamped write replaces it.
  fileprivate func lastInTime(of plan: RestampPlan) throws(StoreError) -> [[UInt8]: Dot] {
    let keys = Set(plan.transactions.joined().map(\.key))
    var last: [[UInt8]: Version] = [:]
    guard !keys.isEmpty, plan.kept > 0 else { return [:] }
    let start = Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    try visit(from: start) { view throws(StoreError) in
      guard view.isWrite, let version = view.version, version.dot.actor == plan.actor,
        version.dot.sequence <= plan.kept, let key = view.keyBytes, keys.contains(key)
      else { return true }
      last[key] = max(last[key] ?? version, version)
      return true
    }
    return last.mapValues(\.dot)
  }
}
