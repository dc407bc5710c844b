/// Following other processes: their records, new segments and compactions.
extension Engine {
  /// Whether there is anything committed that this view has not read.
  @inline(__always)
  var isBehind: Bool {
    // Not `<`: a lost page of the control page reads as zeros.
    applied != Location(packed: context.control.tail) || compaction.count != context.control.compactions
  }

  /// Whether another process has begun to install a copy that this view maps, but has not installed: the
  /// index may refer to records of the copy whose actors are not defined here.
  var missesInstall: Bool {
    index.isShared && !journal.uninstalled.isEmpty && compaction.count != context.control.compactions
      // Without a control page a sole process continues with what it has read.
      && !context.control.isLost
  }

  /// Replays everything committed since.
  @inline(never)
  mutating func catchUp() throws(StoreError) {
    while true {
      let compactions = context.control.compactions
      do throws(StoreError) {
        guard !context.control.isLost else { return try detachFromControlPage() }
        if status.needsRecovery {
          // Nothing is written before recovery has finished.
          guard context.control.recovered else { return }
          return try reloadJournal(compactions)
        }
        if compaction.count != compactions { try applyCompactions(compactions) }
        let tail = Location(packed: context.control.tail)
        if !journal.replaced.isEmpty { releaseReplaced() }
        guard applied < tail else { return }
        if try journal.extend(to: tail.segment) { try loadReplaced() }
        replay(upTo: tail, indexing: !index.isShared)
        if !index.isShared, !journal.replaced.isEmpty { releaseReplaced() }
        if let error = journal.segment(tail.segment)?.faultError { throw error }
        return
      } catch {
        // A compaction may have replaced a segment between listing and opening.
        guard context.control.compactions != compactions else { throw error }
      }
    }
  }

  /// The control page is lost. A sole process continues with what it has read; with other processes this view
  /// would miss their writes, so it fails.
  private func detachFromControlPage() throws(StoreError) {
    guard !context.isSoleProcess else { return }
    throw StoreError(
      .inputOutput,
      "was cut short by another program, or its disk failed: close and open the store again in all processes",
      path: context.files.directory + "/" + StoreLayout.control)
  }

  /// Switches this view to the copies that other processes have compacted.
  private mutating func applyCompactions(_ compactions: UInt64) throws(StoreError) {
    guard let last = journal.segments.last else { return }
    compaction.appliedAt = max(compaction.appliedAt, Location(packed: context.control.tail))
    let names = try SegmentName.all(in: journal.directory, context.environment.storage)
    for name in SegmentName.chain(of: names, from: 1).names
    where name.compaction > 0 && name.covered.lowerBound <= last.number
      && !journal.segments.contains(where: { $0.number == name.number })
    {
      var copy = journal.segment(name.number)
      if copy == nil, name.covered.upperBound < last.number, let segment = try journal.map(name) {
        journal.addUninstalled(segment)
        copy = segment
      }
      guard let copy, name.covered.upperBound < last.number else { return try reloadJournal(compactions) }
      var adoption = SegmentInstall(copy, replacing: journal.numbers(within: name.covered))
      assignSlots(mayAdd: !index.isShared)
      while !installSegment(&adoption, count: .max, indexing: !index.isShared) {}
    }
    assignSlots(mayAdd: !index.isShared)
    try loadReplaced()
    compaction.count = compactions
  }

  /// Reads the journal anew, because records that this view had not read yet were compacted.
  private mutating func reloadJournal(_ compactions: UInt64) throws(StoreError) {
    var journal = journal.emptied()
    _ = try journal.load()
    let tail = Location(packed: context.control.tail)
    if let place = journal.index(of: tail.segment) { journal.drop(after: place) }
    try journal.extend(to: tail.segment)
    try journal.loadReplaced()
    let index =
      index.isShared
      ? self.index : JournalIndex.inMemory(context.files, secret: context.environment.random(16))
    var fresh = Engine(context, journal: journal, index: index, compactions: compactions)
    fresh.fastPath.isOn = fastPath.isOn
    // Pins now protect segments from the start of the reloaded journal.
    fresh.pinned.all = pinned.all.filter { $0.pin != nil }.map { HeldPin(pin: $0.pin, start: 0) }
    if !fresh.pinned.all.isEmpty { fresh.journal.retainMappings(of: self.journal) }
    fresh.replay(upTo: tail, indexing: !index.isShared)
    replace(by: fresh)
    defineReplaced()
  }
}
