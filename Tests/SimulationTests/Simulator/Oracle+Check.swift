import SyncStore

/// Checks of a whole copy.
extension Oracle {
  /// The clocks for judging a copy, in milliseconds since 1970.
  struct Clocks {
    /// The clock of the copy's machine.
    var own: UInt64
    /// The highest time any machine has ever shown.
    var latest: UInt64
  }

  /// Checks a whole copy: R6, atomicity, and that reads return requested values.
  mutating func check(_ store: Store, _ name: String, _ clocks: Clocks) throws {
    var current: [Key: [Write]] = [:]
    for entry in try store.log(from: 1, limit: .max) {
      guard let write = try see(entry, at: name), entry.isCurrent else { continue }
      current[write.key, default: []].append(write)
    }
    var greatest: [Key: Write] = [:]
    for (key, list) in current {
      let sorted = list.sorted { $0 < $1 }
      (current[key], greatest[key]) = (sorted, sorted[sorted.count - 1])
    }
    let coverage = Coverage(try store.versionVector())
    for key in byKey.keys {
      guard let top = winner(of: key, in: coverage) else { continue }
      let held = greatest[key]
      // After a delete was purged, an older one that arrives later becomes the latest: it still is a delete.
      if top.content.mayBePurged(by: clocks.latest),
        held.map({ !isDoubtful($0.dot) && $0.content.mayBePurged(by: clocks.latest) }) ?? true
      {
        continue
      }
      // A doubtful write beat it where this copy learned of it, but its dot is covered here with another
      // content: it was not applied.
      if mayBeBeaten(top, byOneOf: { _ in true }) { continue }
      guard let held, !(held < top) else {
        throw Violation("\(name) covers \(top) and holds less: \(held.map { "\($0)" } ?? "nothing")")
      }
    }
    try checkTransactions(current, greatest, coverage, clocks, name)
    let awaited = Set(try store.absentBlobs(.awaited).map(\.hash.bytes))
    // Sorted, because reads determine the order in the packs, which must be the same in every process.
    for key in Set(byKey.keys).union(current.keys).sorted() {
      try checkRead(store, key, current[key] ?? [], awaited, clocks.own, name)
    }
  }

  /// If one write of a transaction is present, so are the others, or greater ones.
  private func checkTransactions(
    _ current: [Key: [Write]], _ greatest: [Key: Write], _ coverage: Coverage, _ clocks: Clocks,
    _ name: String
  ) throws(Violation) {
    var seen: Set<Int> = []
    for list in current.values {
      for write in list { if let number = transactionOf[write.dot] { seen.insert(number) } }
    }
    for number in seen {
      guard let transaction = transactions[number] else { continue }
      guard transaction.dots.count == transaction.count else {
        throw Violation(
          "\(name): of the \(transaction.count) writes of transaction \(number) there are \(transaction.dots)"
        )
      }
      for dot in transaction.dots {
        guard !coverage.has(dot), let write = writes[dot], !write.content.mayBePurged(by: clocks.latest)
        else {
          continue
        }
        let held = greatest[write.key]
        if mayBeBeaten(write, byOneOf: { _ in true }) { continue }
        // Its author sent only the rest of the transaction: it had deleted the key since, and purged the
        // delete.
        if (byKey[write.key] ?? []).contains(where: {
          write < $0 && $0.content.mayBePurged(by: clocks.latest)
        }) {
          continue
        }
        guard let held, !(held < write) else {
          throw Violation("\(name) holds a part of transaction \(number), but not \(write)")
        }
      }
    }
  }

  /// A read returns the greatest of the key's current records in the journal. One stamped beyond the drift
  /// limit may still be parked. A large value that is `awaited` cannot be read yet.
  private func checkRead(
    _ store: Store, _ key: Key, _ writes: [Write], _ awaited: Set<[UInt8]>, _ time: UInt64, _ name: String
  ) throws {
    let limit = (time + Content.drift) << 16
    var allowed: [Content] = []
    for write in writes.reversed() {
      allowed.append(write.content)
      if write.stamp <= limit { break }
    }
    if writes.first.map({ $0.stamp > limit }) ?? true { allowed.append(.deleted) }
    // Reading an awaited blob would request it again.
    if !awaited.isEmpty,
      allowed.contains(where: { $0.isLarge && awaited.contains(SHA256.hash($0.bytes ?? [])) })
    {
      return
    }
    let bytes = try store.get(key)?.bytes
    guard allowed.contains(where: { ($0.isLive(at: time) ? $0.bytes : nil) == bytes }) else {
      throw Violation("\(name) reads \(Content(bytes: bytes)) of \(key), and was asked for \(allowed)")
    }
  }
}
