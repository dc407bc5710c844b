/// What was written while the clock ran ahead is given the present time, as long as nobody else can have it (F49).
extension Store {
  /// What `restampUnsent` did.
  public struct RestampReport: Hashable, Sendable {
    /// Writes that were given the present time, deletes and the store's own among them.
    public var writes = 0
    /// Milliseconds by which this copy's stamps had run ahead of its clock.
    public var aheadMilliseconds: UInt64 = 0
  }

  /// Milliseconds by which the stamps of this copy run ahead of its clock: above `Limits.clockDriftMilliseconds`, peers let what is
  /// written here wait until then.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func clockLead() throws(StoreError) -> UInt64 {
    let now = environment.now()
    let last = try reading { engine throws(StoreError) in engine.state.author.clock.last.milliseconds }
    return last - min(now, last)
  }

  /// Bytes of the journal that are written anew at once, at most.
  static let restampedBytes = 1 << 30

  /// Gives the writes of this copy that are stamped ahead of its clock the present time, and forgets the clock that ran ahead. They
  /// keep their order, their transactions, and all that they say: values, types, deadlines, what they replaced.
  ///
  /// For a machine whose clock stood years ahead, and is right now. Peers take in what it wrote then, but let it wait until its
  /// time has come; and whatever it writes from now on is stamped above that. So this is to be done before it meets a peer: what may
  /// have been sent, or is in a backup, cannot be taken back. The copy becomes a new actor, as a write has one name and one content
  /// for ever (rule R9). All of it happens in one step, whatever breaks meanwhile, and is durable on return; other processes may use
  /// the store. Does nothing where nothing is stamped ahead by more than `Limits.clockDriftMilliseconds`.
  ///
  /// - Throws: `.clock` if this clock was never set, or writes that are ahead may be known elsewhere; `.unsettled` if the copy
  ///   waits for what it lost to come again from a peer; `.outOfBounds` if more than 1 GiB of the journal is to be written anew;
  ///   `.diskFull`, `.damaged` …
  @discardableResult
  public func restampUnsent() throws(StoreError) -> RestampReport {
    try checkWritable()
    if let clockWarning { throw StoreError(.clock, "nothing is restamped: \(clockWarning)", path: path) }
    try sync()
    throttleWriter()
    try lockWriters()
    let (report, tail): (RestampReport, UInt64)
    do {
      defer { control.unlock() }
      (report, tail) = try engine.withLock { engine throws(StoreError) in
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

  /// The same for the holder of the writers' mutex.
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

  /// What is appended: what the copy says of itself from now on, then the transactions, in each of which what goes is given up first.
  private func transactions(
    for plan: RestampPlan, in engine: borrowing Engine
  ) throws(StoreError) -> [[JournalEntry]] {
    var composer = engine.transactionBuilder(wall: plan.wall, limit: .max)
    let former = plan.actor
    let next = environment.newActor()
    try composer.retract(plan, as: next)
    // As where a tail was lost: what was backed up before is this copy's own still.
    for (token, value) in engine.localMetadata.all(beginning: StateKey.backupPrefix)
      .sorted(by: { $0.key.lexicographicallyPrecedes($1.key) })
    where value.starts(with: former.bytes) {
      try composer.setLocal(token, next.bytes + value.dropFirst(former.bytes.count))
    }
    var author = composer.state.author
    var transactions = [composer.entries]
    if plan.count == 0, plan.isHorizonAhead {
      // The floor names the first write.
      let version = try author.nextVersion(wall: plan.wall)
      let record = Record(
        dot: version.dot, stamp: version.stamp, key: ReservedKey.restamped, content: .tombstone)
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
        // It names what is taken back.
        if record.key == ownFrontier, !record.isTombstone {
          record.content = .inline(
            Frontier.bytes(composer.state.vector, isNarrow: composer.state.scope != nil))
        }
        entries.append(.write(record, position: nil))
      }
      transactions.append(entries)
    }
    return transactions
  }

  /// Begins a segment that has the transactions from its beginning, so that all of them are there or none, and takes them in. The
  /// caller holds the writers' mutex.
  private func begin(
    with transactions: [[JournalEntry]], wall: UInt64, _ engine: inout Engine
  ) throws(StoreError) {
    let tail = Location(packed: control.tail)
    try syncSegmentHeader(of: tail.segment, engine)
    let durable = Location(packed: control.durable)
    let end: Int
    do throws(StoreError) {
      end = try engine.journal.begin(
        after: tail.offset, durable: durable.segment == tail.segment ? durable.offset : SegmentHeader.length,
        position: engine.position, transactions: transactions)
    } catch {
      // As in `Store.begin`: the new segment says where this one ends.
      if engine.journal.isNamed(tail.segment + 1) { control.setPoisoned() }
      throw error
    }
    let segment = engine.journal.segments[engine.journal.segments.count - 1]
    control.raiseLastDurableSegment(to: segment.number)
    engine.deadBytesReviewThreshold = 0
    publish(end, in: segment, wall: wall, &engine)
  }
}

extension Engine {
  /// Shows the journal to a plan.
  ///
  /// - Parameter keepsRecords: without them the plan only counts.
  func feed(_ plan: inout RestampPlan, keepsRecords: Bool = true) throws(StoreError) {
    var found = plan
    let start = Location(segment: journal.segments.first?.number ?? 0, offset: SegmentHeader.length)
    // What is passed over here would be lost beneath a clock that is put back.
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

  /// For keys whose write is taken back: the last one of this actor that stays, if the journal has it. It is what others hold, and so
  /// what the write replaces that is issued instead.
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
