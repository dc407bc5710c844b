import SyncStore

/// Everything all copies together have ever written, as known to an omniscient observer.
///
/// It knows nothing of rounds, cursors or journals: only the requested writes, that a dot names one write,
/// that the greatest write of a key wins, and that a vector may cover only what is held or beaten. It
/// compares against the requests, not against the store's own account, and computes order and coverage
/// itself.
struct Oracle {
  /// A broken promise.
  struct Violation: Error, CustomStringConvertible {
    let description: String
    init(_ text: String) { description = text }
  }

  private(set) var writes: [Dot: Write] = [:]
  /// The writes of each key, the greatest last.
  private(set) var byKey: [Key: [Write]] = [:]
  /// The requested contents of each key, whether or not the call succeeded.
  private var asked: [Key: Set<Content>] = [:]
  /// Those found in a journal.
  private var written: [Key: Set<Content>] = [:]
  /// Requested large values, by their hashes.
  private var large: [[UInt8]: [UInt8]] = [:]
  /// Actors of rolled-back machines, and the sequence up to which their dots are unambiguous.
  private var sure: [ActorID: UInt64] = [:]
  /// Writes whose dots may also name another write.
  private(set) var doubtful: [Key: Set<Write>] = [:]
  /// Transactions: each copy holds all of one or nothing.
  private(set) var transactions: [Int: Transaction] = [:]
  private(set) var transactionOf: [Dot: Int] = [:]
  /// Transactions of requested values that were not found yet.
  private var underway: [[UInt8]: Int] = [:]
  private var lastTransaction = 0
  /// Which write replaced which value, and values that came back.
  var past = Past()

  var keys: [Key] { byKey.keys.sorted() }

  // MARK: Operations of programs

  /// A program is about to request this content for a key. The call may fail and still have taken effect.
  mutating func ask(_ key: Key, _ content: Content) {
    asked[key, default: []].insert(content)
    if let bytes = content.bytes, content.isLarge { large[SHA256.hash(bytes)] = bytes }
  }

  /// As `ask` for the writes of one transaction. Returns the transaction's number.
  mutating func ask(together list: [Asked]) -> Int {
    lastTransaction += 1
    for item in list {
      ask(item.key, item.content)
      // Deletes of a failed call are not told apart.
      if let bytes = item.content.bytes { underway[bytes] = lastTransaction }
    }
    transactions[lastTransaction] = Transaction(count: list.count { $0.content.bytes != nil })
    return lastTransaction
  }

  // MARK: Records in journals

  /// Records the appended entries of a call that returned without an error: exactly its requested writes, in
  /// this order, by this actor. Beyond that a store may only reissue earlier writes. Returns the dots of the
  /// requested writes.
  mutating func see(
    _ entries: [LogEntry], at copy: String, for list: [Asked], by actor: ActorID
  ) throws(Violation) -> [Dot] {
    var found: [Write] = []
    for entry in entries {
      guard let write = try read(entry, at: copy) else { continue }
      if found.count < list.count, write.dot.actor == actor, writes[write.dot] == nil,
        write.key == list[found.count].key, write.content == list[found.count].content
      {
        found.append(write)
        continue
      }
      guard isKnown(write) || written[write.key]?.contains(write.content) ?? false else {
        throw Violation("\(copy): \(write) was appended by a call that was not asked for it")
      }
      try bind(write, at: copy)
    }
    guard found.count == list.count else {
      throw Violation("\(copy): was asked for \(list[found.count]), said that it has done so, and did not")
    }
    for write in found { try bind(write, at: copy) }
    return found.map(\.dot)
  }

  /// Records a journal entry of a copy. A dot that changes its content is a violation, and so is a content
  /// that was never requested for the key. Returns nil for a record that is not a user's.
  @discardableResult
  mutating func see(_ entry: LogEntry, at copy: String) throws(Violation) -> Write? {
    guard let write = try read(entry, at: copy) else { return nil }
    guard isKnown(write) || asked[write.key]?.contains(write.content) ?? false else {
      throw Violation("\(copy): \(write) is what nobody has asked for")
    }
    try bind(write, at: copy)
    return write
  }

  /// The write of an entry.
  private func read(_ entry: LogEntry, at copy: String) throws(Violation) -> Write? {
    guard let key = entry.key else { return nil }
    return Write(
      stamp: entry.stamp.rawValue, dot: entry.dot, key: key, content: try content(of: entry, at: copy))
  }

  /// The content of an entry. Large values are identified by their hash.
  func content(of entry: LogEntry, at copy: String) throws(Violation) -> Content {
    var content = Content(bytes: entry.value, deadline: entry.deadline ?? 0)
    if let blob = entry.blob {
      guard let bytes = large[blob.hash.bytes], blob.size == UInt64(bytes.count), blob.metadata.isEmpty else {
        throw Violation("\(copy): \(entry.dot) refers to a large value that nobody has asked for")
      }
      content.bytes = bytes
    }
    guard entry.isTombstone == (content.bytes == nil), entry.type == .bytes else {
      throw Violation("\(copy): \(entry.dot) is of a kind that nobody has asked for")
    }
    return content
  }

  private func isKnown(_ write: Write) -> Bool {
    writes[write.dot] != nil || isDoubtful(write.dot) && doubtful[write.key]?.contains(write) ?? false
  }

  /// Binds the dot to this write.
  private mutating func bind(_ write: Write, at copy: String) throws(Violation) {
    if let known = writes[write.dot] {
      guard known == write else {
        throw Violation("\(copy): the dot \(write.dot) has two contents, \(known) and \(write)")
      }
      return
    }
    written[write.key, default: []].insert(write.content)
    guard !isDoubtful(write.dot) else {
      doubtful[write.key, default: []].insert(write)
      // Nothing is promised about the rest of its transaction either.
      if let bytes = write.content.bytes, let number = underway.removeValue(forKey: bytes) {
        transactions[number] = nil
      }
      return
    }
    writes[write.dot] = write
    var list = byKey[write.key] ?? []
    byKey[write.key] = nil
    list.insert(write, at: (list.lastIndex { $0 < write }).map { $0 + 1 } ?? 0)
    byKey[write.key] = list
    past.bind(write)
    // A reissued write is not part of its original transaction.
    if let bytes = write.content.bytes, let number = underway.removeValue(forKey: bytes) {
      join([write.dot], to: number)
    }
  }

  /// These dots were written in one transaction and complete it.
  mutating func join(all dots: [Dot], to number: Int) {
    guard !dots.contains(where: { isDoubtful($0) }) else { return transactions[number] = nil }
    join(dots.filter { transactionOf[$0] == nil }, to: number)
    transactions[number]?.count = dots.count
  }

  private mutating func join(_ dots: [Dot], to number: Int) {
    guard !dots.contains(where: { isDoubtful($0) }) else { return transactions[number] = nil }
    for dot in dots { transactionOf[dot] = number }
    transactions[number]?.dots += dots
  }

  private mutating func remove(_ write: Write) {
    writes[write.dot] = nil
    byKey[write.key]?.removeAll { $0.dot == write.dot }
  }

  // MARK: Machines rolled back in place

  /// An actor's machine was rolled back to this sequence, undetectably. Its further writes may reuse dots:
  /// for all of these only the final agreement of all copies is promised.
  mutating func doubt(_ actor: ActorID, above sequence: UInt64) {
    sure[actor] = min(sure[actor] ?? .max, sequence)
    for (dot, write) in writes where isDoubtful(dot) {
      doubtful[write.key, default: []].insert(write)
      remove(write)
      if let number = transactionOf[dot] { transactions[number] = nil }
    }
  }

  /// Whether any machine was rolled back.
  var hasDoubts: Bool { !sure.isEmpty }

  func isDoubtful(_ dot: Dot) -> Bool { sure[dot.actor].map { dot.sequence > $0 } ?? false }

  /// Whether a doubtful write may have beaten this one.
  func mayBeBeaten(_ write: Write, byOneOf isMeant: (Write) -> Bool) -> Bool {
    doubtful[write.key]?.contains { write < $0 && isMeant($0) } ?? false
  }

  /// The writes of an actor above a sequence were lost with a tail that was not durable. No other copy may
  /// have them (rule R7): `others` are all others.
  mutating func lose(_ actor: ActorID, above sequence: UInt64, upTo last: UInt64, others: [(String, Store)])
    throws
  {
    guard last > sequence, sure[actor] == nil else { return }
    for (name, store) in others {
      guard Coverage(try store.versionVector()).last(of: actor) <= sequence else {
        throw Violation("\(name) covers writes of \(actor) above \(sequence), which their author lost")
      }
    }
    for number in (sequence + 1)...last {
      guard let write = writes[Dot(actor: actor, sequence: number)] else { continue }
      remove(write)
      if let number = transactionOf.removeValue(forKey: write.dot) {
        transactions[number]?.dots.removeAll { $0 == write.dot }
      }
    }
  }

  /// The greatest covered write of a key.
  func winner(of key: Key, in coverage: Coverage) -> Write? {
    byKey[key]?.last { coverage.has($0.dot) }
  }
}
