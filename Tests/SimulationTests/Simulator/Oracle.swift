import SyncStore

/// What all copies together have ever written, as an onlooker knows it who sees everything at once.
///
/// It knows nothing of rounds, cursors or journals: only that the greatest write of a key counts, that a dot names one
/// write, and that a vector may not cover what is neither held nor beaten.
struct Oracle {
  /// A promise was broken.
  struct Violation: Error, CustomStringConvertible {
    let description: String
    init(_ text: String) { description = text }
  }

  /// A write of a user's key.
  struct Write: Hashable {
    var version: Version
    var key: Key
    /// Its part in the state digest, which tells what it holds; 0 for a delete.
    var part: UInt128
    /// Milliseconds since 1970; 0 for none.
    var deadline: UInt64
    /// Writes of one transaction share it.
    var transaction = 0

    /// May it have been purged, so that nothing is held of its key?
    var mayBePurged: Bool { part == 0 || deadline > 0 }
  }

  private(set) var writes: [Dot: Write] = [:]
  private(set) var byKey: [Key: [Dot]] = [:]
  /// Actors of machines that were put back in place, and up to which sequence their names are sure.
  private var sure: [ActorID: UInt64] = [:]
  /// Writes whose dots may name another one, too.
  private(set) var doubtful: [Key: Set<Write>] = [:]
  /// How many transactions there were.
  private(set) var transactions = 0

  var count: Int { writes.count }
  var keys: [Key] { byKey.keys.sorted() }

  /// Takes in what the journal of a copy shows. A dot with another content than it had is a violation.
  mutating func see(_ entry: LogEntry, at copy: String) throws(Violation) {
    guard let key = entry.key else { return }
    let write = Write(entry, of: key)
    if isDoubtful(entry.dot) {
      doubtful[key, default: []].insert(write)
      return
    }
    guard var known = writes[entry.dot] else {
      writes[entry.dot] = write
      byKey[key, default: []].append(entry.dot)
      return
    }
    known.transaction = 0
    guard known == write else {
      throw Violation("\(copy): the dot \(entry.dot) has two contents, \(known) and \(write)")
    }
  }

  /// These were written at once.
  mutating func join(_ dots: [Dot]) {
    transactions += 1
    for dot in dots { writes[dot]?.transaction = transactions }
  }

  // MARK: Machines put back in place

  /// The machine of an actor was put back to where it had written so much, and nothing on it can tell. What it writes from now on may
  /// have the names of what it wrote before: of all these dots nothing is promised but that all copies agree in the end.
  mutating func doubt(_ actor: ActorID, above sequence: UInt64) {
    sure[actor] = min(sure[actor] ?? .max, sequence)
    for (dot, write) in writes where isDoubtful(dot) {
      doubtful[write.key, default: []].insert(write)
      writes[dot] = nil
      byKey[write.key]?.removeAll { $0 == dot }
    }
  }

  func isDoubtful(_ dot: Dot) -> Bool { sure[dot.actor].map { dot.sequence > $0 } ?? false }

  /// May a write whose name is in doubt have taken the place of this one?
  func mayBeBeaten(_ write: Write, byOneOf isMeant: (Write) -> Bool) -> Bool {
    doubtful[write.key]?.contains { $0.version > write.version && isMeant($0) } ?? false
  }

  /// The writes of an actor above a sequence were lost with a tail that was not durable. No other copy may have them
  /// (rule R7): `vectors` and `journals` are those of all others.
  mutating func lose(_ actor: ActorID, above sequence: UInt64, upTo last: UInt64, others: [(String, Store)])
    throws
  {
    guard last > sequence, sure[actor] == nil else { return }
    for (name, store) in others {
      guard try store.versionVector()[actor] <= sequence else {
        throw Violation("\(name) covers writes of \(actor) above \(sequence), which their author lost")
      }
    }
    for number in (sequence + 1)...last {
      let dot = Dot(actor: actor, sequence: number)
      guard let write = writes.removeValue(forKey: dot) else { continue }
      byKey[write.key]?.removeAll { $0 == dot }
    }
  }

  /// The greatest write of a key for which `counts` holds.
  func winner(of key: Key, where counts: (Dot) -> Bool) -> Write? {
    var best: Write?
    for dot in byKey[key] ?? [] where counts(dot) {
      if let write = writes[dot], best.map({ write.version > $0.version }) ?? true { best = write }
    }
    return best
  }

  /// R6 and atomicity: looks at all that a copy holds.
  mutating func check(_ store: Store, _ name: String) throws {
    var greatest: [Key: Version] = [:]
    var present: Set<Dot> = []
    for entry in try store.log(from: 1, limit: .max) {
      try see(entry, at: name)
      guard entry.isCurrent, let key = entry.key else { continue }
      let version = Version(stamp: entry.stamp, dot: entry.dot)
      present.insert(entry.dot)
      if greatest[key].map({ version > $0 }) ?? true { greatest[key] = version }
    }
    let vector = try store.versionVector()
    for key in byKey.keys {
      guard let top = winner(of: key, where: { vector.covers($0) }) else { continue }
      // Where a delete was purged, an older one that comes later is taken for the latest: it is one all the same.
      if top.mayBePurged, greatest[key].map({ writes[$0.dot]?.mayBePurged ?? false }) ?? true { continue }
      if greatest[key] == nil, mayBeBeaten(top, byOneOf: \.mayBePurged) { continue }
      guard let held = greatest[key], held >= top.version else {
        throw Violation(
          "\(name) covers \(top.version.dot) of key \(key) and holds less: \(String(describing: greatest[key]))"
        )
      }
    }
    try checkTransactions(present, greatest, vector, name)
  }

  /// If one write of a transaction is here, the others are, or greater ones.
  private func checkTransactions(
    _ present: Set<Dot>, _ greatest: [Key: Version], _ vector: VersionVector, _ name: String
  ) throws(Violation) {
    let seen = Set(present.compactMap { writes[$0]?.transaction }.filter { $0 > 0 })
    guard !seen.isEmpty else { return }
    for write in writes.values where write.transaction > 0 && seen.contains(write.transaction) {
      if vector.covers(write.version.dot) || write.mayBePurged { continue }
      if greatest[write.key] == nil, mayBeBeaten(write, byOneOf: \.mayBePurged) { continue }
      guard let held = greatest[write.key], held >= write.version else {
        throw Violation("\(name) holds a part of transaction \(write.transaction), but not \(write.key)")
      }
    }
  }
}
