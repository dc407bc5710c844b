/// Durability of appended records, by group commit (rules R4, R7).
extension Store {
  /// Makes everything committed so far durable.
  ///
  /// - Throws: `.poisoned` if the sync fails, or one did before: nothing more is written until the store is
  ///   opened again; `.diskFull`, `.busy` and `.inputOutput` if large values cannot become durable at the
  ///   moment: the next sync tries again; `.closed`, `.forked`.
  public func sync() throws(StoreError) {
    try checkUsable()
    guard isWritable else { return }
    try sync(upTo: control.tail)
  }

  /// Waits until `target`, a packed location, is durable. Callers that arrive during a sync share the next
  /// one.
  package func sync(upTo target: UInt64) throws(StoreError) {
    if control.durable >= target, !control.poisoned { return }
    try syncs.wait { () throws(StoreError) in
      try isDurable(upTo: target)
    } work: { () throws(StoreError) in
      try syncNow()
    }
  }

  /// Calls `body` once when `target` is durable, or with the reason why nothing more becomes durable.
  ///
  /// The call is made before this returns, unless another thread is running the sync: that thread then calls
  /// `body` itself, without waking another one. `body` must return at once.
  package func whenDurable(
    upTo target: UInt64, _ body: @escaping @Sendable (StoreError?) -> Void
  ) {
    syncs.whenDone { [self] () throws(StoreError) in
      try isDurable(upTo: target)
    } work: { [self] () throws(StoreError) in
      try syncNow()
    } then: {
      body($0)
    }
  }

  private func isDurable(upTo target: UInt64) throws(StoreError) -> Bool {
    guard !control.poisoned else { throw poisonedError }
    return control.durable >= target
  }

  /// Least number of bytes for which it pays off to unmap the pages before they are written back.
  private static let minBytesToUnmap = 1 << 18

  private func syncNow() throws(StoreError) {
    try checkUsable()
    let first = Location(packed: control.durable)
    let (tail, segments) = try engine.withLock { engine throws(StoreError) -> (UInt64, [Segment]) in
      try catchUp(&engine)
      let place = engine.journal.index(of: first.segment) ?? 0
      return (engine.applied.packed, Array(engine.journal.segments[place...]))
    }
    try syncBlobs()
    // Segments written by compaction are durable from the beginning.
    for segment in segments where segment.header.compaction == 0 {
      let file = segment.file
      do throws(StoreError) {
        let end =
          segment.number == Location(packed: tail).segment
          ? Location(packed: tail).offset : segment.mapping.count
        let start = segment.number == first.segment ? first.offset & ~4095 : 0
        // For a few pages, writing them back in place is faster than unmapping them and faulting them in
        // again.
        if end - start >= Self.minBytesToUnmap {
          try file.sync(unchanged: start..<end, of: segment.mapping)
        } else {
          try file.sync()
        }
        let status = try file.status()
        // Segments that other processes made durable and then compacted may be gone.
        let durable = control.durable
        guard status.links > 0 || durable >= tail || Location(packed: durable).segment > segment.number else {
          throw StoreError(
            .inputOutput, "was removed while in use: restore it from a backup", path: file.path)
        }
        // Bytes that were cut off were not synced, though the sync succeeded.
        guard status.size >= segment.mapping.count else {
          throw StoreError(
            .damaged,
            "was cut short by another program while in use: \(status.size) of \(segment.mapping.count) bytes left: "
              + "restore it from a backup", path: file.path)
        }
        if let error = segment.faultError { throw error }
      } catch {
        throw poisoned(by: error, file.path)
      }
    }
    // The last segments may have been begun without their names being durable.
    if let last = segments.last?.number, control.lastDurableSegment < UInt64(last) {
      try syncNames()
      control.raiseLastDurableSegment(to: last)
    }
    // Another process may have got the failure for the same pages.
    guard !control.poisoned else { throw poisonedError }
    control.raiseDurable(to: tail)
  }

  /// Poisons the store, so that nothing more is written (rule R4), and returns the error that says so.
  func poisoned(by error: StoreError, _ path: String? = nil) -> StoreError {
    let isFirst = !control.poisoned
    control.setPoisoned()
    if isFirst { StoreLog.log(.error, path: self.path, "\(error.description); \(poisonedError.message)") }
    return poisonedError(by: error, path)
  }

  /// The error of a store that was poisoned by `error`.
  func poisonedError(by error: StoreError, _ path: String? = nil) -> StoreError {
    StoreError(
      .poisoned, "\(error.message); \(poisonedError.message)", path: path ?? error.path, errno: error.errno)
  }

  /// Waits until `target` is durable, or schedules a sync, as the durability mode requires.
  func awaitDurability(_ target: UInt64, durability: Durability?) throws(StoreError) {
    switch durability ?? configuration.durability {
    case .full: try sync(upTo: liveSessions.isAwaited ? appendingMark(to: target) : target)
    case .relaxed: break
    case .interval(let milliseconds): scheduleSync(after: milliseconds)
    }
  }

  /// Schedules a sync after a delay, unless one is scheduled already.
  private func scheduleSync(after milliseconds: Int) {
    let isScheduled = lifecycle.withLock { exchange(&$0.syncScheduled, with: true) }
    guard !isScheduled else { return }
    Background.run(after: milliseconds) { [weak self] in
      guard let self else { return }
      self.lifecycle.withLock { $0.syncScheduled = false }
      do throws(StoreError) { try self.sync() } catch {
        // A failed sync poisons the store, and the next writer gets the error. One that could not even begin,
        // for want of a descriptor for example, was reported to no caller: it is retried.
        guard error.code != .closed, error.code != .poisoned, !self.control.poisoned else { return }
        StoreLog.log(
          .warning, path: self.path, "is not durable yet, and is tried again: \(error.description)")
        self.scheduleSync(after: milliseconds)
      }
    }
  }
}
