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

  /// The number of keys with a write unknown to the copy of `actor`, and the time of the oldest such write,
  /// in milliseconds since 1970; nil if there is none.
  package func unknown(
    to actor: ActorID?, after position: UInt64, limit: Int
  ) throws(StoreError) -> (count: Int, oldest: UInt64?) {
    try reading { engine throws(StoreError) in
      // The sender of a batch is recorded at its end.
      var (count, inBatch, isTheirs) = (0, 0, false)
      var (oldest, oldestInBatch) = (UInt64.max, UInt64.max)
      try engine.visit(from: engine.start(of: position + 1)) { view throws(StoreError) in
        if let shape = view.shape {
          if !view.isWrite {
            isTheirs = isTheirs || actor.map { view.key(shape) == StateKey.cursor($0) } ?? false
          } else if view.position > position, view.actor != actor, engine.isCurrent(view),
            !ReservedKey.isReserved(view.key(shape))
          {
            inBatch += 1
            oldestInBatch = min(oldestInBatch, view.version?.stamp.milliseconds ?? .max)
          }
        }
        guard !view.flags.contains(.continues) else { return true }
        if !isTheirs { (count, oldest) = (count + inBatch, min(oldest, oldestInBatch)) }
        (inBatch, isTheirs, oldestInBatch) = (0, false, .max)
        return count < limit
      }
      if !isTheirs { (count, oldest) = (count + inBatch, min(oldest, oldestInBatch)) }
      return (min(count, limit), oldest == .max ? nil : oldest)
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
