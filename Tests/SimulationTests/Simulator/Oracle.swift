import SyncStore

/// What all copies together have ever written, as an onlooker knows it who sees everything at once.
///
/// It knows nothing of rounds, cursors or journals: only what programs have asked for, that a dot names one write, that the greatest
/// write of a key counts, and that a vector may not cover what is neither held nor beaten. What it compares with is what was asked for
/// and not what a store says of it; how writes are ordered and covered it says itself.
struct Oracle {
  /// A promise was broken.
  struct Violation: Error, CustomStringConvertible {
    let description: String
    init(_ text: String) { description = text }
  }

  private(set) var writes: [Dot: Write] = [:]
  /// The writes of each key, the greatest last.
  private(set) var byKey: [Key: [Write]] = [:]
  /// What programs have asked to be kept of each key, whether or not the call succeeded.
  private var asked: [Key: Set<Content>] = [:]
  /// What of it was found in a journal.
  private var written: [Key: Set<Content>] = [:]
  /// Large values that were asked for, by their hashes.
  private var large: [[UInt8]: [UInt8]] = [:]
  /// Actors of machines that were put back in place, and up to which sequence their names are sure.
  private var sure: [ActorID: UInt64] = [:]
  /// Writes whose dots may name another one, too.
  private(set) var doubtful: [Key: Set<Write>] = [:]
  /// Transactions, of which each copy holds all or nothing.
  private(set) var transactions: [Int: Transaction] = [:]
  private(set) var transactionOf: [Dot: Int] = [:]
  /// The transactions of values that were asked for and not found yet.
  private var underway: [[UInt8]: Int] = [:]
  private var lastTransaction = 0
  /// What was replaced by whom, and what came back.
  var past = Past()

  var keys: [Key] { byKey.keys.sorted() }

  // MARK: What programs ask for

  /// A program is about to ask that a key have this content. The call may fail and have done it all the same.
  mutating func ask(_ key: Key, _ content: Content) {
    asked[key, default: []].insert(content)
    if let bytes = content.bytes, content.isLarge { large[SHA256.hash(bytes)] = bytes }
  }

  /// The same for what is to be written at once. Returns the number of the transaction.
  mutating func ask(together list: [Asked]) -> Int {
    lastTransaction += 1
    for item in list {
      ask(item.key, item.content)
      // A delete of a call that failed is not told from others.
      if let bytes = item.content.bytes { underway[bytes] = lastTransaction }
    }
    transactions[lastTransaction] = Transaction(count: list.count { $0.content.bytes != nil })
    return lastTransaction
  }

  // MARK: What journals show

  /// Takes in what was appended by a call that returned without an error: what it was asked for, once and in this order, by this actor.
  /// Besides that a store may only issue again what was written before. Returns the dots of what was asked for.
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

  /// Takes in what the journal of a copy shows. A dot with another content than it had is a violation, and so is one with a content that
  /// nobody ever asked for under its key. Nil for a record that is not a user's.
  @discardableResult
  mutating func see(_ entry: LogEntry, at copy: String) throws(Violation) -> Write? {
    guard let write = try read(entry, at: copy) else { return nil }
    guard isKnown(write) || asked[write.key]?.contains(write.content) ?? false else {
      throw Violation("\(copy): \(write) is what nobody has asked for")
    }
    try bind(write, at: copy)
    return write
  }

  /// The write that an entry shows.
  private func read(_ entry: LogEntry, at copy: String) throws(Violation) -> Write? {
    guard let key = entry.key else { return nil }
    return Write(
      stamp: entry.stamp.rawValue, dot: entry.dot, key: key, content: try content(of: entry, at: copy))
  }

  /// What an entry keeps. Large values are told by their hash.
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

  /// From now on the dot names this write.
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
      // Of what it was written with nothing is promised either.
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
    // What is issued again is no part of the transaction in which it was first written.
    if let bytes = write.content.bytes, let number = underway.removeValue(forKey: bytes) {
      join([write.dot], to: number)
    }
  }

  /// These were written at once, and were all of it.
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

  // MARK: Machines put back in place

  /// The machine of an actor was put back to where it had written so much, and nothing on it can tell. What it writes from now on may
  /// have the names of what it wrote before: of all these dots nothing is promised but that all copies agree in the end.
  mutating func doubt(_ actor: ActorID, above sequence: UInt64) {
    sure[actor] = min(sure[actor] ?? .max, sequence)
    for (dot, write) in writes where isDoubtful(dot) {
      doubtful[write.key, default: []].insert(write)
      remove(write)
      if let number = transactionOf[dot] { transactions[number] = nil }
    }
  }

  /// Was any machine put back in place?
  var hasDoubts: Bool { !sure.isEmpty }

  func isDoubtful(_ dot: Dot) -> Bool { sure[dot.actor].map { dot.sequence > $0 } ?? false }

  /// May a write whose name is in doubt have taken the place of this one?
  func mayBeBeaten(_ write: Write, byOneOf isMeant: (Write) -> Bool) -> Bool {
    doubtful[write.key]?.contains { write < $0 && isMeant($0) } ?? false
  }

  /// The writes of an actor above a sequence were lost with a tail that was not durable. No other copy may have them
  /// (rule R7): `others` are all others.
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

  /// The greatest write of a key that is covered.
  func winner(of key: Key, in coverage: Coverage) -> Write? {
    byKey[key]?.last { coverage.has($0.dot) }
  }
}
