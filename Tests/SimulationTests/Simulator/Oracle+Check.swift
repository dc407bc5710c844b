import SyncStore

/// What the oracle expects of a copy that it looks at in whole.
extension Oracle {
  /// The clocks by which a copy is judged, in milliseconds since 1970.
  struct Clocks {
    /// That of the copy's machine.
    var own: UInt64
    /// The most that any machine has ever shown.
    var latest: UInt64
  }

  /// R6, atomicity, and that what is read is what was asked for: looks at all that a copy holds.
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
      // Where a delete was purged, an older one that comes later is taken for the latest: it is one all the same.
      if top.content.mayBePurged(by: clocks.latest),
        held.map({ !isDoubtful($0.dot) && $0.content.mayBePurged(by: clocks.latest) }) ?? true
      {
        continue
      }
      // What is in doubt beat it where this copy heard of it, and its name is covered here, with another content: it was not taken.
      if mayBeBeaten(top, byOneOf: { _ in true }) { continue }
      guard let held, !(held < top) else {
        throw Violation("\(name) covers \(top) and holds less: \(held.map { "\($0)" } ?? "nothing")")
      }
    }
    try checkTransactions(current, greatest, coverage, clocks, name)
    let awaited = Set(try store.absentBlobs(.awaited).map(\.hash.bytes))
    // Reads leave their order in the packs: it is the same in every process.
    for key in Set(byKey.keys).union(current.keys).sorted() {
      try checkRead(store, key, current[key] ?? [], awaited, clocks.own, name)
    }
  }

  /// If one write of a transaction is here, the others are, or greater ones.
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
        // Its author gave no more than the rest of the transaction: it had deleted the key since, and purged the delete.
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

  /// Of the writes that the journal names as those that count for a key, in order, the greatest is read. One that is stamped beyond the
  /// drift limit may have to wait for its time. A large value that is `awaited` cannot be read yet.
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
    // To read what is awaited would be to ask for it once more.
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
