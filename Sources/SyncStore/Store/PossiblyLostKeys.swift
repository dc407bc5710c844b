/// Places of a journal whose records were lost: each may have been a newer one of a key (F37).
///
/// Made once for all damage that there is, so that a look at a key costs the same however many places are damaged.
struct PossiblyLostKeys: Sendable {
  /// The last damaged place whose keys are unknown: it casts doubt on each key whose record comes before it.
  private let last: Location?
  /// The latest damaged place of each key known by its bytes.
  let keys: [[UInt8]: Location]
  /// The latest damaged place of each key known by its hash alone: by the seed of the hash, then by the
  /// fingerprint.
  private let hashed: [UInt64: [UInt32: Location]]
  /// The last damaged place in which a key was lost that is not known by its bytes.
  private let lastUnnamed: Location?
  /// Where each segment stands in the journal: numbers do not tell, once segments were compacted.
  private let order: [UInt32: Int]
  private let paths: [UInt32: String]

  /// Nil if nothing is in doubt.
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

  /// Fails if a lost record may have been a newer one of this key than the one `found`: better no answer than a wrong one.
  func check(_ key: [UInt8], found: Location?) throws(StoreError) {
    // See `unattributedDamage`.
    let last = found != nil && ReservedKey.isReserved(key) ? nil : last
    if let last, found.map({ precedes($0, last) }) ?? true {
      throw error(at: last, "this key's latest value")
    }
    if let gap = loss(of: key, after: found) { throw error(at: gap, "this key's latest value") }
  }

  /// Where a newer record of this very key was lost than the one `found`; nil if none is known.
  func loss(of key: [UInt8], after found: Location?) -> Location? {
    let byHash = hashed.map { seed, places in places[LostKeyFingerprints.fingerprint(of: key, seed: seed)] }
    for gap in [keys[key]] + byHash {
      if let gap, found.map({ precedes($0, gap) }) ?? true { return gap }
    }
    return nil
  }

  /// Why a newer record of any key, member records included, may have been lost; nil if it is known which
  /// keys were hit.
  ///
  /// A member record that is there is read nevertheless: without it this copy could reach no peer, and only a
  /// peer can send what was lost. What a device that was revoked by the lost record could gain by it is
  /// refused where this copy does not itself choose the device: it accepts no connections meanwhile
  /// (`PeerAuthorizer`).
  var unattributedDamage: StoreError? { last.map { error(at: $0, "the latest value of any key") } }

  /// Fails if a lost record may have been a newer one of any key for which `isMeant` holds.
  func check(
    in order: SortedKeyIndex, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) {
    if let lastUnnamed { throw error(at: lastUnnamed, "the latest value of any key") }
    for key in keys.keys where isMeant(key) { try check(key, found: try order.location(of: key)) }
  }

  /// What may be missing, or be an older value, of what a look at all keys for which `isMeant` holds has shown.
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

/// What was made of all damage, and of what: it is made anew when any of that has changed.
struct PossiblyLostKeysCache {
  /// What `PossiblyLostKeys` are made of, as far as it changes: damage is only ever added, and taken away where segments are replaced.
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
      gaps: gaps.count, unattributed: unattributed.count,
      lost: lostKeysByDamage.count + state.lostKeysByDamage.count,
      keys: damagedKeys.count,
      resolved: state.resolvedDamage.count, segments: journal.segments.count, replaced: journal.replacedCount)
  }

  /// What damage leaves in doubt; nil if nothing.
  var possiblyLostKeys: PossiblyLostKeys? {
    mutating get {
      guard !gaps.isEmpty else { return nil }
      let origin = lostKeysCacheOrigin
      if let possiblyLostKeysCache, possiblyLostKeysCache.origin == origin {
        return possiblyLostKeysCache.possiblyLostKeys
      }
      let resolved = state.resolvedDamage
      var (unknown, lost): ([Location], [(place: Location, keys: LostKeyFingerprints)]) = ([], [])
      for damage in unattributed where !resolved.contains(damage.location) {
        if let keys = lostKeys(in: damage) {
          lost.append((damage.location, keys))
        } else {
          unknown.append(damage.location)
        }
      }
      let doubts = PossiblyLostKeys(
        unattributed: unknown, keys: damagedKeys.filter { !resolved.contains($0.value) }, hashed: lost,
        in: journal)
      possiblyLostKeysCache = PossiblyLostKeysCache(origin: origin, possiblyLostKeys: doubts)
      return doubts
    }
  }

  /// Is the record that can be read of this key known to be older than one that was lost?
  mutating func isOutdated(_ key: [UInt8]) -> Bool {
    guard let possiblyLostKeys, let found = search(key.span).found?.location else { return false }
    return possiblyLostKeys.loss(of: key, after: found) != nil
  }

  /// Fails if a damaged record may have been a newer one of this key: better no answer than a wrong one (F37).
  mutating func checkNotShadowedByDamage(_ key: Span<UInt8>, found: Location?) throws(StoreError) {
    try possiblyLostKeys?.check(Array(copying: key), found: found)
  }
}

extension Engine {
  /// Damage of which it is not known that all that was lost came again from a peer.
  var unresolvedDamage: [JournalDamage] { gaps.filter { !state.resolvedDamage.contains($0.location) } }

  /// The places of resolved damage in a segment, by where they begin.
  func resolvedDamage(in number: UInt32) -> [Int: Range<Int>] {
    let resolved = gaps.filter { $0.segment == number && state.resolvedDamage.contains($0.location) }
    return Dictionary(resolved.map { ($0.bytes.lowerBound, $0.bytes) }, uniquingKeysWith: { $1 })
  }

  /// Forgets damage in segments that a compaction has replaced: all of it is resolved, and no copy has any.
  mutating func forgetDamage(where isGone: (Location) -> Bool) {
    guard !gaps.isEmpty else { return }
    gaps.removeAll { isGone($0.location) }
    gapSet = gapSet.filter { !isGone($0.location) }
    unattributed.removeAll { isGone($0.location) }
    lostKeysByDamage = lostKeysByDamage.filter { !isGone($0.key.location) }
    damagedKeys = damagedKeys.filter { !isGone($0.value) }
    possiblyLostKeysCache = nil
  }
}
