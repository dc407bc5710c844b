/// An index built before the damage in question: it still names the lost records, which the journal no longer
/// shows.
///
/// Used only if it is sound: complete up to `end`, with no write in progress and no page fault.
struct PreDamageIndex {
  private let index: JournalIndex
  /// Segment numbers, by slot.
  private let numbers: [UInt32]
  /// The index covers records up to here.
  private let end: Location
  private let seqlock: UInt64
  /// Parked records by key, which are in no index. Nil if only the checkpoint lists them.
  private let parked: ParkedRecords?
  /// Damage known when the index was built, or found since by its owner: the index need not name the records
  /// it hit.
  private let known: [JournalDamage]

  /// Nil if the index is not sound. `parked` and `known` come from the engine that owns the index; at opening
  /// there is no engine, and the journal's own records tell what is known.
  init?(_ index: JournalIndex, parked: ParkedRecords? = nil, known: [JournalDamage] = []) {
    (self.index, self.parked, self.known) = (index, parked, known)
    guard index.failure == nil, !index.namesUnmappedSegment, !index.hasFaulted, !index.hashIndex.isRetired,
      index.checkpoint.seqlock & 1 == 0, (try? index.hashIndex.isInterrupted) == false,
      let applied = try? index.hashIndex.applied, let count = try? index.checkpoint.segmentCount,
      let numbers = try? index.checkpoint.segments(in: 0..<count)
    else { return nil }
    (end, seqlock, self.numbers) = (Location(packed: applied), index.checkpoint.seqlock, numbers)
  }

  /// The keys lost in each of these ranges, for those the index can attribute; nil if index and journal
  /// disagree. `engine` has replayed the journal as it is now.
  func keys(
    lostIn damages: [JournalDamage], of engine: borrowing Engine
  ) throws(StoreError) -> [JournalDamage: LostKeyFingerprints]? {
    let places = DamageLocator(damages.filter { covers($0, in: engine.journal) })
    var lost = attributableDamage(places, state: engine.state)
    guard !lost.isEmpty else { return [:] }
    let gaps = DamageLocator(engine.damage.gaps)
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

  /// Whether the index already covered the whole range when it was damaged.
  private func covers(_ damage: JournalDamage, in journal: borrowing Journal) -> Bool {
    let last = Location(segment: damage.segment, offset: damage.bytes.upperBound - 1)
    return numbers.contains(damage.segment) && precedes(last, in: journal)
  }

  /// The damaged ranges that the index can attribute, each with the keys already recorded for a part of it.
  private func attributableDamage(_ places: DamageLocator, state: ReplicaState) -> [JournalDamage:
    LostKeyFingerprints]
  {
    var lost: [JournalDamage: LostKeyFingerprints] = [:]
    for damage in places.all { lost[damage] = LostKeyFingerprints() }
    for damage in known where !state.isHandled(damage) {
      for offset in [damage.bytes.lowerBound, damage.bytes.upperBound - 1] {
        let location = Location(segment: damage.segment, offset: offset)
        if let damage = places.damage(at: location) { lost[damage] = nil }
      }
    }
    for place in state.handledDamage.unresolved.map(\.start) {
      guard let damage = places.damage(at: place) else { continue }
      // The number of seeds is stored in 8 bits.
      if let before = state.handledDamage.lostKeys(of: place), before.fingerprints.count < 255 {
        lost[damage]?.formUnion(before)
      } else {
        lost[damage] = nil
      }
    }
    return lost
  }

  /// Whether the indexed record is whole. If not, more was lost than the journal shows, for example by
  /// truncation of a file.
  private func isIntact(_ found: Location, fingerprint: UInt32, in journal: borrowing Journal) -> Bool {
    guard let segment = journal.segment(found.segment),
      let view = segment.record(at: found.offset, limit: segment.mapping.count), let shape = view.shape
    else { return false }
    return LostKeyFingerprints.fingerprint(of: view.key(shape), seed: index.hashIndex.seed) == fingerprint
  }

  /// Whether the index knows every key that the journal still shows. An unknown key was purged by a record
  /// that is lost.
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
    // A truncated file may end before the record.
    guard found.offset + RecordLayout.fixedLength <= segment.mapping.count else { return true }
    return Engine.matches(key, in: segment, at: found.offset)
  }

  /// Adds the lost records that were parked.
  private func addParked(to lost: inout [JournalDamage: LostKeyFingerprints], _ places: DamageLocator)
    throws(StoreError)
  {
    if let parked {
      for key in parked.keys {
        for damage in (parked[key] ?? []).compactMap({ places.damage(at: $0) }) {
          let seed = index.hashIndex.seed
          lost[damage]?.insert(LostKeyFingerprints.fingerprint(of: key, seed: seed), seed: seed)
        }
      }
      return
    }
    let flags = try index.checkpoint.flags
    if flags.contains(.notesParked), !flags.contains(.parked) { return }
    for place in try index.checkpoint.specialRecords().refs {
      // It may have been a parked record, of any key.
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

  /// Finds the damaged range that contains a location.
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
  /// The index of this view, for attributing damage that it has not found yet.
  var preDamageIndex: PreDamageIndex? { PreDamageIndex(index, parked: parked, known: damage.gaps) }

  /// Attributes damage found by the last replay to keys, with an index from before the damage.
  mutating func attributeDamage(by former: PreDamageIndex) {
    let open = damage.unattributed.filter { lostKeys(in: $0) == nil }
    guard !open.isEmpty, let found = try? former.keys(lostIn: open, of: self) else { return }
    damage.attribute(found)
  }

  /// The keys lost in a damaged range; nil if unknown.
  func lostKeys(in damage: JournalDamage) -> LostKeyFingerprints? {
    if let found = self.damage.lostKeys[damage] { return found }
    guard state.handledDamage.end(of: damage.location).map(Int.init) == damage.bytes.upperBound else {
      return nil
    }
    return state.handledDamage.lostKeys(of: damage.location)
  }
}

extension ReplicaState {
  /// Whether this copy has already handled all of this damage.
  func isHandled(_ damage: JournalDamage) -> Bool {
    handledDamage.end(of: damage.location).map { damage.bytes.upperBound <= Int($0) } ?? false
  }
}
