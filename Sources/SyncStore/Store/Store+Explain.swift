/// The origin of writes, and restoring conflict losers.
extension Store {
  /// The actor of the copy that sent a received write. Nil if it was made here, or if the journal no longer
  /// tells: the sender's cursor follows a received batch until compaction drops it.
  ///
  /// - Throws: `.damaged` if the journal cannot be read there; `.closed`, `.forked`.
  public func origin(of entry: LogEntry) throws(StoreError) -> ActorID? {
    guard entry.position > 0 else { return nil }
    return try reading { engine throws(StoreError) -> ActorID? in
      guard !engine.state.isMine(entry.dot) else { return nil }
      var origin: ActorID?
      var isReached = false
      try engine.visit(from: engine.start(of: entry.position)) { view throws(StoreError) in
        if view.isWrite { isReached = isReached || view.position == entry.position }
        guard isReached else { return true }
        if let shape = view.shape, !view.isWrite {
          let key = view.key(shape)
          if key.starts(with: StateKey.cursorPrefix) {
            origin = ActorID(bytes: key.dropFirst(StateKey.cursorPrefix.count))
            return false
          }
        }
        // The batch ends with its transaction.
        return view.flags.contains(.continues)
      }
      return origin
    }
  }

  /// The number of keys with a write after `position` that the copy of `actor` has neither made nor, as far
  /// as the journal still tells, sent here: an upper bound of what it lacks, once it has acknowledged
  /// everything up to there.
  ///
  /// - Parameter limit: counting stops here.
  package func countUnknown(to actor: ActorID?, after position: UInt64, limit: Int) throws(StoreError) -> Int
  {
    try unknown(to: actor, after: position, limit: limit).count
  }

  /// The keys with a write unknown to the copy of `actor`. Counting stops at `limit`. The engine's lock is
  /// released between parts of the journal: a write that is replaced during the call may be missing.
  package func unknown(
    to actor: ActorID?, after position: UInt64, limit: Int
  ) throws(StoreError) -> UnknownWrites {
    var (all, next) = (UnknownWrites(), position + 1)
    while all.count < limit {
      let (more, last) = try unknown(to: actor, from: next, limit: limit - all.count)
      all.add(more)
      guard let last else { break }
      next = last + 1
    }
    all.count = min(all.count, limit)
    return all
  }

  /// Records scanned per lock acquisition, if a transaction ends there.
  private static let recordsPerScan = 4096

  /// The unknown writes among the next records of the journal, and the last position scanned; nil at its end.
  private func unknown(
    to actor: ActorID?, from position: UInt64, limit: Int
  ) throws(StoreError) -> (writes: UnknownWrites, last: UInt64?) {
    try reading { engine throws(StoreError) in
      // The sender of a batch is recorded at its end.
      var (all, batch, isTheirs) = (UnknownWrites(), UnknownWrites(), false)
      var (last, looked) = (UInt64?.none, 0)
      try engine.visit(from: engine.start(of: position)) { view throws(StoreError) in
        if let shape = view.shape {
          if !view.isWrite {
            isTheirs = isTheirs || actor.map { view.key(shape) == StateKey.cursor($0) } ?? false
          } else if view.position >= position, view.actor != actor, engine.isCurrent(view),
            !ReservedKey.isReserved(view.key(shape))
          {
            batch.count(view, key: view.key(shape))
          }
        }
        looked += 1
        guard !view.flags.contains(.continues) else { return true }
        if !isTheirs { all.add(batch) }
        (batch, isTheirs) = (UnknownWrites(), false)
        guard view.position >= position, looked >= Self.recordsPerScan || all.count >= limit else {
          return true
        }
        last = view.position
        return false
      }
      if !isTheirs { all.add(batch) }
      return (all, last)
    }
  }

  /// Writes a conflict loser again as a new write, which then wins on every copy.
  ///
  /// - Parameter beaten: an entry from `conflicts` or `explain`.
  /// - Throws: `.outOfBounds` if it is not the value of a user's key; `.blobUnavailable` if it is a large
  ///   value that is no longer here.
  public func restore(_ beaten: LogEntry) throws(StoreError) {
    guard let key = beaten.key else {
      throw StoreError(.outOfBounds, "this record is the store's own: it cannot be restored", path: path)
    }
    let content: Record.Content
    if let blob = beaten.blob {
      content = .blob(blob)
    } else if let value = beaten.value {
      content = .inline(value)
    } else {
      content = .tombstone
    }
    let (_, tail) = try writes.append { builder throws(StoreError) in
      let held = try self.writes.heldForWriting(key.bytes, in: builder)
      try self.retainBlob(of: content)
      try builder.issue(
        key: key.bytes, content: content, type: beaten.type, deadline: beaten.deadline, held: held)
    }
    try awaitDurability(tail, durability: nil)
  }
}

/// Writes that another copy is not known to have.
package struct UnknownWrites: Hashable, Sendable {
  /// Number of keys.
  package fileprivate(set) var count = 0
  /// Bytes of their records; a large value is not part of its record.
  package fileprivate(set) var bytes: UInt64 = 0
  /// When the oldest of them was written, in milliseconds since 1970; nil if there is none.
  package fileprivate(set) var oldest: UInt64?
  /// The first of the keys, in the order of the journal.
  package fileprivate(set) var firstKeys: [Key] = []

  private static let namedKeys = 5

  /// None.
  package init() {}

  fileprivate mutating func count(_ view: RecordView, key: [UInt8]) {
    count += 1
    bytes += UInt64(view.end - view.offset)
    if let time = view.version?.stamp.milliseconds { oldest = min(oldest ?? .max, time) }
    if firstKeys.count < Self.namedKeys { firstKeys.append(Key(unchecked: key)) }
  }

  fileprivate mutating func add(_ more: UnknownWrites) {
    (count, bytes) = (count + more.count, bytes + more.bytes)
    if let time = more.oldest { oldest = min(oldest ?? .max, time) }
    firstKeys += more.firstKeys.prefix(Self.namedKeys - firstKeys.count)
  }
}
