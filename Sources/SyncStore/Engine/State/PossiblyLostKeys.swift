/// Damaged ranges of the journal, each of which may have held a newer record of a key (F37).
///
/// Computed once for all damage, so that the check of a key costs the same however many ranges are damaged.
struct PossiblyLostKeys: Sendable {
  /// The last damaged range with unknown keys: it casts doubt on every key whose record precedes it.
  private let last: Location?
  /// The latest damaged range of each key known by its bytes.
  let keys: [[UInt8]: Location]
  /// The latest damaged range of each key known only by its hash: by seed, then by fingerprint.
  private let hashed: [UInt64: [UInt32: Location]]
  /// The last damaged range in which a key was lost that is not known by its bytes.
  private let lastUnnamed: Location?
  /// Order of the segments in the journal: their numbers do not tell it once segments were compacted.
  private let order: [UInt32: Int]
  private let paths: [UInt32: String]

  /// Nil if no key is in doubt.
  init?(
    unattributed: [Location], keys: [[UInt8]: Location],
    hashed lost: [(place: Location, keys: LostKeyFingerprints)] = [],
    in journal: Journal
  ) {
    let lost = lost.filter { !$0.keys.isEmpty }
    guard !unattributed.isEmpty || !keys.isEmpty || !lost.isEmpty else { return nil }
    let order = Dictionary(
      journal.segments.enumerated().map { ($1.number, $0) }, uniquingKeysWith: { $1 })
    last = unattributed.max { Self.precedes($0, $1, order: order) }
    let nameless = unattributed + lost.map(\.place)
    lastUnnamed = nameless.max { Self.precedes($0, $1, order: order) }
    var hashed: [UInt64: [UInt32: Location]] = [:]
    for (place, keys) in lost.sorted(by: { Self.precedes($0.place, $1.place, order: order) }) {
      for (seed, fingerprints) in keys.fingerprints {
        for fingerprint in fingerprints { hashed[seed, default: [:]][fingerprint] = place }
      }
    }
    (self.keys, self.hashed, self.order) = (keys, hashed, order)
    let numbers = Set((nameless + keys.values).map(\.segment))
    paths = Dictionary(numbers.map { ($0, journal.path(of: $0)) }, uniquingKeysWith: { $1 })
  }

  /// Fails if a lost record may have been newer than the one `found` of this key: no answer is better than a
  /// wrong one.
  func check(_ key: [UInt8], found: Location?) throws(StoreError) {
    // See `unattributedDamage`.
    let last = found != nil && ReservedKey.isReserved(key) ? nil : last
    if let last, found.map({ precedes($0, last) }) ?? true {
      throw error(at: last, "this key's latest value")
    }
    if let gap = loss(of: key, after: found) { throw error(at: gap, "this key's latest value") }
  }

  /// The damaged range that held a newer record of this key than the one `found`; nil if none is known.
  func loss(of key: [UInt8], after found: Location?) -> Location? {
    let byHash = hashed.map { seed, places in places[LostKeyFingerprints.fingerprint(of: key, seed: seed)] }
    for gap in [keys[key]] + byHash {
      if let gap, found.map({ precedes($0, gap) }) ?? true { return gap }
    }
    return nil
  }

  /// The error if a newer record of any key, member records included, may have been lost; nil if all affected
  /// keys are known.
  ///
  /// Member records that are present are read nevertheless: without them this copy could reach no peer, and
  /// only a peer can send what was lost. A device revoked by the lost record gains nothing by that: until
  /// then this copy accepts no connections, and so talks only to devices that it chooses itself
  /// (`PeerAuthorizer`).
  var unattributedDamage: StoreError? { last.map { error(at: $0, "the latest value of any key") } }

  /// Fails if a lost record may have been a newer one of any key for which `isMeant` holds.
  func check(
    in order: SortedKeyIndex, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) {
    if let lastUnnamed { throw error(at: lastUnnamed, "the latest value of any key") }
    for key in keys.keys where isMeant(key) { try check(key, found: try order.location(of: key)) }
  }

  /// Losses that a pass over all keys for which `isMeant` holds may have missed, or shown in an older
  /// version.
  func possibleLosses(
    in order: SortedKeyIndex, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) -> [PossibleLoss] {
    var doubts: [PossibleLoss] = []
    if let lastUnnamed {
      doubts.append(PossibleLoss(key: nil, error: error(at: lastUnnamed, "the latest value of any key")))
    }
    for (key, gap) in keys.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) where isMeant(key) {
      if let found = try order.location(of: key), !precedes(found, gap) { continue }
      doubts.append(PossibleLoss(key: Key(unchecked: key), error: error(at: gap, "this key's latest value")))
    }
    return doubts
  }

  private func precedes(_ left: Location, _ right: Location) -> Bool {
    Self.precedes(left, right, order: order)
  }

  private static func precedes(_ left: Location, _ right: Location, order: [UInt32: Int]) -> Bool {
    guard left.segment != right.segment else { return left.offset < right.offset }
    return order[left.segment] ?? -1 < order[right.segment] ?? -1
  }

  private func error(at gap: Location, _ what: String) -> StoreError {
    StoreError(
      .damaged, "a damaged record at offset \(gap.offset) may hold \(what): run `Store.verify`",
      path: paths[gap.segment])
  }
}

/// Damaged ranges of committed bytes, as far as the journal was replayed, and the keys known to be affected.
struct KnownDamage {
  private(set) var gaps: [JournalDamage] = []
  /// The elements of `gaps` as a set: there may be as many as a segment has records.
  private(set) var gapSet: Set<JournalDamage> = []
  /// Keys whose record was in a damaged range, where the bytes still tell.
  private(set) var keys: [[UInt8]: Location] = [:]
  /// Damage whose bytes do not reveal the key.
  private(set) var unattributed: [JournalDamage] = []
  /// Fingerprints of lost keys, for the part of `unattributed` that an older index could name.
  var lostKeys: [JournalDamage: LostKeyFingerprints] = [:]
  fileprivate var possiblyLostKeysCache: PossiblyLostKeysCache?

  /// Adds damage found by replay. False if it is known.
  mutating func add(_ damage: JournalDamage, of key: [UInt8]?) -> Bool {
    guard gapSet.insert(damage).inserted else { return false }
    gaps.append(damage)
    if let key {
      // Replay is in journal order: this is the latest location.
      keys[key] = damage.location
    } else {
      unattributed.append(damage)
    }
    return true
  }

  /// Adds what an older index tells about lost keys.
  mutating func attribute(_ found: [JournalDamage: LostKeyFingerprints]) {
    lostKeys.merge(found) { $1 }
    possiblyLostKeysCache = nil
  }

  /// Forgets damage in segments that compaction has replaced: it is resolved, and copied segments have none.
  mutating func forget(where isGone: (Location) -> Bool) {
    guard !gaps.isEmpty else { return }
    gaps.removeAll { isGone($0.location) }
    gapSet = gapSet.filter { !isGone($0.location) }
    unattributed.removeAll { isGone($0.location) }
    lostKeys = lostKeys.filter { !isGone($0.key.location) }
    keys = keys.filter { !isGone($0.value) }
    possiblyLostKeysCache = nil
  }
}

/// The cached `PossiblyLostKeys` and what they were computed from; recomputed when that changes.
struct PossiblyLostKeysCache {
  /// The counts that change with the inputs of `PossiblyLostKeys`: damage is only added, or removed with
  /// replaced segments.
  struct Origin: Equatable {
    var gaps: Int
    var unattributed: Int
    var lost: Int
    var keys: Int
    var resolved: Int
    var segments: Int
    var replaced: Int
  }

  var origin: Origin
  var possiblyLostKeys: PossiblyLostKeys?
}

extension Engine {
  private var lostKeysCacheOrigin: PossiblyLostKeysCache.Origin {
    PossiblyLostKeysCache.Origin(
      gaps: damage.gaps.count, unattributed: damage.unattributed.count,
      lost: damage.lostKeys.count + state.handledDamage.attributedCount,
      keys: damage.keys.count,
      resolved: state.handledDamage.resolvedCount, segments: journal.segments.count,
      replaced: journal.replaced.totalCount)
  }

  /// The keys put in doubt by damage; nil if there are none.
  var possiblyLostKeys: PossiblyLostKeys? {
    mutating get {
      guard !damage.gaps.isEmpty else { return nil }
      let origin = lostKeysCacheOrigin
      if let cached = damage.possiblyLostKeysCache, cached.origin == origin { return cached.possiblyLostKeys }
      let handled = state.handledDamage
      var (unknown, lost): ([Location], [(place: Location, keys: LostKeyFingerprints)]) = ([], [])
      for damage in self.damage.unattributed where !handled.isResolved(damage.location) {
        if let keys = lostKeys(in: damage) {
          lost.append((damage.location, keys))
        } else {
          unknown.append(damage.location)
        }
      }
      let doubts = PossiblyLostKeys(
        unattributed: unknown, keys: damage.keys.filter { !handled.isResolved($0.value) }, hashed: lost,
        in: journal)
      damage.possiblyLostKeysCache = PossiblyLostKeysCache(origin: origin, possiblyLostKeys: doubts)
      return doubts
    }
  }

  /// Whether the readable record of this key is known to be older than a lost one.
  mutating func isOutdated(_ key: [UInt8]) -> Bool {
    guard let possiblyLostKeys, let found = search(key.span).found?.location else { return false }
    return possiblyLostKeys.loss(of: key, after: found) != nil
  }

  /// Fails if a damaged record may have been a newer one of this key: no answer is better than a wrong one
  /// (F37).
  mutating func checkNotShadowedByDamage(_ key: Span<UInt8>, found: Location?) throws(StoreError) {
    try possiblyLostKeys?.check(Array(copying: key), found: found)
  }
}

extension Engine {
  /// Damage whose lost records are not known to have come again from a peer.
  var unresolvedDamage: [JournalDamage] {
    damage.gaps.filter { !state.handledDamage.isResolved($0.location) }
  }

  /// Ranges of resolved damage in a segment, by their start.
  func resolvedDamage(in number: UInt32) -> [Int: Range<Int>] {
    let resolved = damage.gaps.filter { $0.segment == number && state.handledDamage.isResolved($0.location) }
    return Dictionary(resolved.map { ($0.bytes.lowerBound, $0.bytes) }, uniquingKeysWith: { $1 })
  }
}
