/// An index that was built before the damage in question: it names the lost records, which the journal no
/// longer shows.
///
/// It is used only if it is sound, that is, complete up to `end`, with no change under way and no page
/// refused.
struct PreDamageIndex {
  private let index: JournalIndex
  /// The header numbers of the segments, by slot.
  private let numbers: [UInt32]
  /// Records up to here are in the index.
  private let end: Location
  private let seqlock: UInt64
  /// Records that wait for their time, by key: they are in no index. Nil if only the ledger knows of them.
  private let parked: [[UInt8]: [Location]]?
  /// Damage that was known when the index was built, or that its owner has met since: the index need not name
  /// what it hit.
  private let known: [JournalDamage]

  /// Nil if the index is not sound. `parked` and `known` are those of the engine whose index it is; at
  /// opening there is no engine, and the journal's own records tell what is known.
  init?(_ index: JournalIndex, parked: [[UInt8]: [Location]]? = nil, known: [JournalDamage] = []) {
    (self.index, self.parked, self.known) = (index, parked, known)
    guard index.failure == nil, !index.namesUnmappedSegment, !index.hasFaulted, !index.hashIndex.isRetired,
      index.checkpoint.seqlock & 1 == 0, (try? index.hashIndex.isInterrupted) == false,
      let applied = try? index.hashIndex.applied, let count = try? index.checkpoint.segmentCount,
      let numbers = try? index.checkpoint.segments(in: 0..<count)
    else { return nil }
    (end, seqlock, self.numbers) = (Location(packed: applied), index.checkpoint.seqlock, numbers)
  }

  /// The keys lost in each of these places, for the places where the index can tell; nil if index and journal
  /// disagree. `engine` has read the journal as it is now.
  func keys(
    lostIn damages: [JournalDamage], of engine: borrowing Engine
  ) throws(StoreError) -> [JournalDamage: LostKeyFingerprints]? {
    let places = DamageLocator(damages.filter { covers($0, in: engine.journal) })
    var lost = attributableDamage(places, state: engine.state)
    guard !lost.isEmpty else { return [:] }
    let gaps = DamageLocator(engine.gaps)
    var isSound = true
    try index.hashIndex.forEachEntry { place, fingerprint in
      guard let found = location(ofRef: place) else { return isSound = false }
      if let damage = places.damage(at: found) {
        lost[damage]?.insert(fingerprint, seed: index.hashIndex.seed)
      } else if gaps.damage(at: found) == nil, !isIntact(found, fingerprint: fingerprint, in: engine.journal)
      {
        isSound = false
      }
    }
    guard isSound, try coversAllKeys(of: engine, but: places), index.checkpoint.seqlock == seqlock,
      !index.hashIndex.isRetired
    else {
      return nil
    }
    try addParked(to: &lost, places)
    return lost.filter { $0.value.count <= LostKeyFingerprints.limit }
  }

  /// Was all of the damage hit after the index had taken in what stood there?
  private func covers(_ damage: JournalDamage, in journal: borrowing Journal) -> Bool {
    let last = Location(segment: damage.segment, offset: damage.bytes.upperBound - 1)
    return numbers.contains(damage.segment) && precedes(last, in: journal)
  }

  /// The damaged places that the index can attribute, each with the keys already recorded for a part of it.
  private func attributableDamage(_ places: DamageLocator, state: ReplicaState) -> [JournalDamage:
    LostKeyFingerprints]
  {
    var lost: [JournalDamage: LostKeyFingerprints] = [:]
    for damage in places.all { lost[damage] = LostKeyFingerprints() }
    for damage in known where !state.isHandled(damage) {
      for offset in [damage.bytes.lowerBound, damage.bytes.upperBound - 1] {
        let met = Location(segment: damage.segment, offset: offset)
        if let damage = places.damage(at: met) { lost[damage] = nil }
      }
    }
    for place in state.handledDamage.keys where !state.resolvedDamage.contains(place) {
      guard let damage = places.damage(at: place) else { continue }
      // In how many indexes it grew is bounded by the 8 bits of their count.
      if let before = state.lostKeysByDamage[place], before.fingerprints.count < 255 {
        lost[damage]?.formUnion(before)
      } else {
        lost[damage] = nil
      }
    }
    return lost
  }

  /// Is the record that the index names whole? If not, more was lost than the journal shows, as where a file was cut.
  private func isIntact(_ found: Location, fingerprint: UInt32, in journal: borrowing Journal) -> Bool {
    guard let segment = journal.segment(found.segment),
      let view = segment.record(at: found.offset, limit: segment.mapping.count), let shape = view.shape
    else { return false }
    return LostKeyFingerprints.fingerprint(of: view.key(shape), seed: index.hashIndex.seed) == fingerprint
  }

  /// Does it know each key that the journal still shows? One that it does not know was purged by a record
  /// that was lost.
  private func coversAllKeys(of engine: borrowing Engine, but lost: DamageLocator) throws(StoreError) -> Bool
  {
    for found in try engine.locations(isExclusive: true)
    where precedes(found, in: engine.journal) && lost.damage(at: found) == nil {
      guard let segment = engine.journal.segment(found.segment),
        case let view = RecordView(segment: segment, offset: found.offset), view.isReadable,
        let shape = view.shape
      else { return false }
      let key = view.key(shape)
      let place = try index.hashIndex.find(index.hashIndex.hash(key.span)) {
        hasKey(key.span, at: $0, in: engine.journal)
      }
      if place == nil { return false }
    }
    return true
  }

  private func hasKey(_ key: Span<UInt8>, at place: UInt64, in journal: borrowing Journal) -> Bool {
    guard let found = location(ofRef: place), let segment = journal.segment(found.segment) else {
      return false
    }
    // A file that was cut ends before it.
    guard found.offset + RecordLayout.fixedLength <= segment.mapping.count else { return true }
    return Engine.matches(key, in: segment, at: found.offset)
  }

  /// Adds the records that were waiting for their time.
  private func addParked(to lost: inout [JournalDamage: LostKeyFingerprints], _ places: DamageLocator)
    throws(StoreError)
  {
    if let parked {
      for (key, locations) in parked {
        for damage in locations.compactMap({ places.damage(at: $0) }) {
          let seed = index.hashIndex.seed
          lost[damage]?.insert(LostKeyFingerprints.fingerprint(of: key, seed: seed), seed: seed)
        }
      }
      return
    }
    let flags = try index.checkpoint.flags
    if flags.contains(.notesParked), !flags.contains(.parked) { return }
    for place in try index.checkpoint.specialRecords().refs {
      // It may have been such a record, of any key.
      if let found = location(ofRef: place), let damage = places.damage(at: found) { lost[damage] = nil }
    }
  }

  private func location(ofRef place: UInt64) -> Location? {
    let slot = SegmentTable.slot(ofRef: place)
    guard numbers.indices.contains(slot) else { return nil }
    return Location(segment: numbers[slot], offset: SegmentTable.offset(ofRef: place))
  }

  private func precedes(_ location: Location, in journal: borrowing Journal) -> Bool {
    guard location.segment != end.segment else { return location.offset < end.offset }
    guard let place = journal.index(of: location.segment), let last = journal.index(of: end.segment) else {
      return false
    }
    return place < last
  }

  /// Finds the damage that hit a place.
  private struct DamageLocator {
    let all: [JournalDamage]
    private let damages: [UInt32: [JournalDamage]]

    init(_ damages: [JournalDamage]) {
      all = damages
      self.damages = Dictionary(grouping: damages, by: \.segment).mapValues {
        $0.sorted { $0.bytes.lowerBound < $1.bytes.lowerBound }
      }
    }

    func damage(at location: Location) -> JournalDamage? {
      guard let damages = damages[location.segment] else { return nil }
      var (low, high) = (0, damages.count)
      while low < high {
        let middle = (low + high) / 2
        if damages[middle].bytes.upperBound <= location.offset { low = middle + 1 } else { high = middle }
      }
      guard low < damages.count, damages[low].bytes.contains(location.offset) else { return nil }
      return damages[low]
    }
  }
}

extension Engine {
  /// The index of this view, for the keys of damage that it does not know yet.
  var preDamageIndex: PreDamageIndex? { PreDamageIndex(index, parked: parked, known: gaps) }

  /// Finds the keys that were lost in damage met at the last reading of the journal, in an index from before
  /// it.
  mutating func attributeDamage(by former: PreDamageIndex) {
    let open = unattributed.filter { lostKeys(in: $0) == nil }
    guard !open.isEmpty, let found = try? former.keys(lostIn: open, of: self) else { return }
    lostKeysByDamage.merge(found) { $1 }
    possiblyLostKeysCache = nil
  }

  /// The keys lost in a place; nil if they are not known.
  func lostKeys(in damage: JournalDamage) -> LostKeyFingerprints? {
    if let found = lostKeysByDamage[damage] { return found }
    guard state.handledDamage[damage.location].map(Int.init) == damage.bytes.upperBound else { return nil }
    return state.lostKeysByDamage[damage.location]
  }
}

extension ReplicaState {
  /// Did this copy act upon all of this damage?
  func isHandled(_ damage: JournalDamage) -> Bool {
    handledDamage[damage.location].map { damage.bytes.upperBound <= Int($0) } ?? false
  }
}
