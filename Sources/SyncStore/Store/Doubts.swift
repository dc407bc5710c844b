/// Places of a journal whose records were lost: each may have been a newer one of a key (F37).
///
/// Made once for all damage that there is, so that a look at a key costs the same however many places are damaged.
struct Doubts: Sendable {
  /// The last one in the journal of those of which it is not known whose they were: it is in question for each key whose record
  /// comes before it.
  private let last: Location?
  /// The latest one of each key of which it is.
  let keys: [[UInt8]: Location]
  /// Where each segment stands in the journal: numbers do not tell, once segments were compacted.
  private let order: [UInt32: Int]
  private let paths: [UInt32: String]

  /// Nil if nothing is in doubt.
  init?(unattributed: [Location], keys: [[UInt8]: Location], in journal: Journal) {
    guard !unattributed.isEmpty || !keys.isEmpty else { return nil }
    let order = Dictionary(
      journal.segments.enumerated().map { ($1.number, $0) }, uniquingKeysWith: { $1 })
    last = unattributed.max { Self.precedes($0, $1, order) }
    self.keys = keys
    self.order = order
    let numbers = Set((unattributed + keys.values).map(\.segment))
    paths = Dictionary(numbers.map { ($0, journal.path(of: $0)) }, uniquingKeysWith: { $1 })
  }

  /// Fails if a lost record may have been a newer one of this key than the one `found`: better no answer than a wrong one.
  func check(_ key: [UInt8], _ found: Location?) throws(StoreError) {
    for gap in [last, keys[key]] {
      if let gap, found.map({ precedes($0, gap) }) ?? true { throw error(at: gap, "this key's latest value") }
    }
  }

  /// Fails if a lost record may have been a newer one of any key for which `isMeant` holds.
  func check(
    in order: OrderedView, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) {
    if let last { throw error(at: last, "the latest value of any key") }
    for key in keys.keys where isMeant(key) { try check(key, try order.location(of: key)) }
  }

  /// What may be missing, or be an older value, of what a look at all keys for which `isMeant` holds has shown.
  func listed(
    in order: OrderedView, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) -> [Doubt] {
    var doubts: [Doubt] = []
    if let last { doubts.append(Doubt(key: nil, error: error(at: last, "the latest value of any key"))) }
    for (key, gap) in keys.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) where isMeant(key) {
      if let found = try order.location(of: key), !precedes(found, gap) { continue }
      doubts.append(Doubt(key: Key(unchecked: key), error: error(at: gap, "this key's latest value")))
    }
    return doubts
  }

  private func precedes(_ left: Location, _ right: Location) -> Bool { Self.precedes(left, right, order) }

  private static func precedes(_ left: Location, _ right: Location, _ order: [UInt32: Int]) -> Bool {
    guard left.segment != right.segment else { return left.offset < right.offset }
    return order[left.segment] ?? -1 < order[right.segment] ?? -1
  }

  private func error(at gap: Location, _ what: String) -> StoreError {
    StoreError(
      .damaged, "a damaged record at offset \(gap.offset) may hold \(what): run `Store.verify`",
      path: paths[gap.segment])
  }
}

/// What was made of all damage, and of what: it is made anew when any of that has changed.
struct KnownDoubts {
  /// What `Doubts` are made of, as far as it changes: damage is only ever added, and taken away where segments are replaced.
  struct Origin: Equatable {
    var gaps: Int
    var unattributed: Int
    var keys: Int
    var resolved: Int
    var segments: Int
    var replaced: Int
  }

  var origin: Origin
  var doubts: Doubts?
}

extension Engine {
  private var originOfDoubts: KnownDoubts.Origin {
    KnownDoubts.Origin(
      gaps: gaps.count, unattributed: unattributed.count, keys: damagedKeys.count,
      resolved: state.resolved.count, segments: journal.segments.count, replaced: journal.replacedCount)
  }

  /// What damage leaves in doubt; nil if nothing.
  var doubts: Doubts? {
    mutating get {
      guard !gaps.isEmpty else { return nil }
      let origin = originOfDoubts
      if let knownDoubts, knownDoubts.origin == origin { return knownDoubts.doubts }
      let resolved = state.resolved
      let doubts = Doubts(
        unattributed: unattributed.filter { !resolved.contains($0) },
        keys: damagedKeys.filter { !resolved.contains($0.value) }, in: journal)
      knownDoubts = KnownDoubts(origin: origin, doubts: doubts)
      return doubts
    }
  }

  /// Fails if a damaged record may have been a newer one of this key: better no answer than a wrong one (F37).
  mutating func checkCertain(_ key: Span<UInt8>, _ found: Location?) throws(StoreError) {
    try doubts?.check(Array(copying: key), found)
  }
}

extension Engine {
  /// Damage of which it is not known that all that was lost came again from a peer.
  var openDamage: [JournalDamage] { gaps.filter { !state.resolved.contains($0.place) } }

  /// The places of resolved damage in a segment, by where they begin.
  func resolvedDamage(in number: UInt32) -> [Int: Range<Int>] {
    let resolved = gaps.filter { $0.segment == number && state.resolved.contains($0.place) }
    return Dictionary(resolved.map { ($0.bytes.lowerBound, $0.bytes) }, uniquingKeysWith: { $1 })
  }

  /// Forgets damage in segments that a compaction has replaced: all of it is resolved, and no copy has any.
  mutating func forgetDamage(where isGone: (Location) -> Bool) {
    guard !gaps.isEmpty else { return }
    gaps.removeAll { isGone($0.place) }
    knownGaps = knownGaps.filter { !isGone($0.place) }
    unattributed.removeAll(where: isGone)
    damagedKeys = damagedKeys.filter { !isGone($0.value) }
    knownDoubts = nil
  }
}
