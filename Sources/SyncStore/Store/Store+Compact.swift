internal import Synchronization

/// How a compaction works: a run of sealed segments is copied without what does not count any more, the copy is made
/// durable and takes its name, every view moves over to it, and the old files go (rule R5).
///
/// At every moment either the old segments count or the copy does: the names alone tell which (F7).
extension Store {
  /// Records that are looked at, or moved, while others wait.
  private static let recordsAtOnce = 512

  /// Gives back all space that superseded records take up, but for the segment at the tail. Others go on reading and
  /// writing meanwhile. Returns the bytes gained.
  ///
  /// - Throws: `.diskFull` if there is no room for the copy: nothing is lost then.
  @discardableResult
  public func compact() throws(StoreError) -> UInt64 {
    try checkWritable()
    return try compacting.withLock { compactions throws(StoreError) in
      var gained: UInt64 = 0
      while let gain = try compactOnce(isThorough: true) {
        (gained, compactions) = (gained + gain, compactions + 1)
      }
      return gained
    }
  }

  /// Has a compaction done in the background if it is time.
  func considerCompaction(_ engine: inout Engine) {
    let (dead, live) = engine.reviewDeadBytes()
    guard CompactionPlan.isDue(dead: dead, live: live) else { return }
    guard environment.compacting != .onRequest else { return }
    let isUrgent =
      environment.compacting == .inTurn
      || CompactionPlan.isUrgent(dead: dead, live: live, largestSegment: configuration.segmentBytes)
    compactionIsUrgent.store(isUrgent, ordering: .relaxed)
    let begins = lifecycle.withLock { lifecycle in
      defer { lifecycle.compactionScheduled = true }
      return !lifecycle.compactionScheduled
    }
    guard begins, environment.compacting == .beside else { return }
    Background.run { [weak self] in self?.compactWhileDue() }
  }

  /// Writers come here before they take their mutex, so that the disk does not fill faster than it is tidied.
  func waitForCompaction() {
    guard compactionIsUrgent.load(ordering: .relaxed) else { return }
    compactWhileDue()
  }

  private func compactWhileDue() {
    compacting.withLock { compactions in
      // What fails here is tried again with the next segment; a full disk stops the writer itself.
      while (try? compactOnce(isThorough: false)) != nil { compactions += 1 }
      lifecycle.withLock { $0.compactionScheduled = false }
      compactionIsUrgent.store(false, ordering: .relaxed)
    }
  }

  /// Compacts one run of segments. Returns the bytes gained; nil if nothing is worth it, or another process is at it.
  private func compactOnce(isThorough: Bool) throws(StoreError) -> UInt64? {
    guard try controlFile.lock(byte: StoreLayout.compactionByte, .exclusive, wait: false) else { return nil }
    defer { _ = try? controlFile.lock(byte: StoreLayout.compactionByte, .none, wait: false) }
    let run = try reading { engine throws(StoreError) -> CompactionRun? in
      guard
        let plan = CompactionPlan(
          engine.candidates, largestSegment: engine.journal.largestSegment, position: engine.position,
          isThorough: isThorough)
      else { return nil }
      return try CompactionRun(plan.run, in: engine)
    }
    guard let run else { return nil }
    return try compact(run) ?? 0
  }

  /// Puts a copy in the place of these segments. Returns the bytes gained; nil if they are damaged. The caller holds the
  /// compaction lock.
  func compact(_ run: CompactionRun) throws(StoreError) -> UInt64? {
    guard let segment = try copy(run) else {
      engine.withLock { _ in run.giveUp() }
      return nil
    }
    let compactions = control.compactions + 1
    engine.withLock { engine in
      engine.journal.show(segment)
      engine.compactions = compactions
    }
    control.compactions = compactions
    var adoption = Adoption(segment, replacing: run.numbers)
    while !engine.withLock({ $0.adopt(&adoption, count: Self.recordsAtOnce) }) {}
    for name in run.names { _ = try environment.storage.remove(journalDirectory + "/" + name.text) }
    return UInt64(max(0, run.fileBytes - segment.mapping.count))
  }

  /// Writes the copy and gives it its name; nil if the run cannot be copied, because it is damaged.
  private func copy(_ run: CompactionRun) throws(StoreError) -> Segment? {
    let storage = environment.storage
    let names = try SegmentName.all(in: journalDirectory, storage)
    var header = SegmentHeader(
      compaction: (names.map(\.compaction).max() ?? 0) + 1, of: run.first, to: run.last,
      salt: environment.randomWord(), created: environment.now())
    header.generation = try seal.generationToBegin()
    var copier = CompactedBytes(header, seal: try seal.seal(for: header, path: run.temporaryPath))
    var walk = CompactionWalk(run)
    var isAtEnd = false
    while !isAtEnd {
      guard
        try engine.withLock({ engine throws(StoreError) in
          try walk.copy(Self.recordsAtOnce, from: engine, to: &copier, isAtEnd: &isAtEnd)
        })
      else { return nil }
      try checkUsable()
    }
    try keepSequence()
    // What replaces the records that were left out is durable before they go (rule R7).
    try sync(upTo: control.tail)
    header.sealedLength = UInt32(copier.end)
    header.size = UInt32((copier.end + 4095) & ~4095)
    let temporary = run.temporaryPath
    _ = try storage.remove(temporary)
    do throws(StoreError) {
      let file = try storage.open(temporary, .create)
      try file.allocate(to: Int(header.size))
      try file.write(header.encoded(), at: 0)
      try file.write(copier.bytes, at: SegmentHeader.length)
      try file.sync()
      try storage.rename(temporary, to: journalDirectory + "/" + header.name.text)
      try storage.syncDirectory(journalDirectory)
      return try engine.withLock { engine throws(StoreError) in try engine.journal.map(header.name) }
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  /// Notes the last own sequence: the record that bears it may be one that a peer's has beaten, and go.
  private func keepSequence() throws(StoreError) {
    try append(pacing: false) { composer throws(StoreError) in
      let vector = ReplicaState.encode(composer.state.vector)
      if engine.withLock({ $0.locals[StateKey.vector] }) != vector {
        try composer.setLocal(StateKey.vector, vector)
      }
    }
  }

  /// Moves this view over to what other processes have compacted.
  func takeInCompactions(_ engine: inout Engine, _ compactions: UInt64) throws(StoreError) {
    guard let last = engine.journal.segments.last else { return }
    let names = try SegmentName.all(in: journalDirectory, environment.storage)
    for name in SegmentName.chain(of: names, from: 1).names
    where name.compaction > 0 && engine.journal.segment(name.number) == nil
      && name.stands.lowerBound <= last.number
    {
      guard name.stands.upperBound < last.number, let segment = try engine.journal.map(name) else {
        return try startAfresh(&engine, compactions)
      }
      var adoption = Adoption(segment, replacing: engine.journal.numbers(within: name.stands))
      engine.journal.show(segment)
      while !engine.adopt(&adoption, count: .max) {}
    }
    engine.compactions = compactions
  }

  /// Reads the journal anew: what this view had still to read was compacted.
  private func startAfresh(_ engine: inout Engine, _ compactions: UInt64) throws(StoreError) {
    var journal = Journal(
      directory: journalDirectory, environment: environment, store: id, writable: isWritable,
      largestSegment: configuration.segmentBytes, seal: seal)
    _ = try journal.load()
    let tail = Location(packed: control.tail)
    if let place = journal.place(of: tail.segment) { journal.drop(behind: place) }
    try journal.extend(to: tail.segment)
    engine.startAfresh(with: journal, compactions: compactions)
    engine.absorb(upTo: tail)
  }
}
