/// What scans and snapshots ask of a view: the records in the order of their keys, apart from what changes.
extension Engine {
  /// Applied records in the order of their keys. Takes as long as sorting all keys if nothing is known of their order.
  mutating func orderedView() throws(StoreError) -> OrderedView {
    if let view = try knownOrder() { return view }
    let view = OrderedView(try allLocations(), upTo: applied, in: FrozenSegments(journal))
    ordered = view
    return view
  }

  /// The same if the order is known but for a few changes; nil if all keys are to be sorted anew.
  mutating func knownOrder() throws(StoreError) -> OrderedView? {
    guard var view = ordered else { return nil }
    if view.upTo == applied { return view }
    // Only a fresh view can tell whether what was damaged has been replaced.
    guard view.damaged.isEmpty else { return nil }
    // From some number of changes on, sorting all is no slower: there each key is opened once, if it is sealed, and here as
    // often as it is compared.
    let most = max(view.count / (view.segments.isSealed ? 16 : 4), 256)
    guard let changes = try currentPlaces(from: view.upTo, purged: true, limit: most) else { return nil }
    // Held by nobody else, it is changed in place.
    ordered = nil
    view.merge(changes, upTo: applied, in: FrozenSegments(journal))
    ordered = view
    return view
  }

  /// All that an order is made of, for who makes it without the lock.
  struct Unordered {
    var places: [Location]
    var upTo: Location
    var segments: FrozenSegments
    fileprivate var numbers: [UInt32]
    fileprivate var disorders: Int
  }

  /// What there is to be put in order now.
  func unordered() throws(StoreError) -> Unordered {
    Unordered(
      places: try allLocations(), upTo: applied, segments: FrozenSegments(journal),
      numbers: journal.segments.map(\.number), disorders: disorders)
  }

  /// Takes in an order that was made without the lock, unless something has changed but by appending: a record was applied
  /// that had waited for its time, or a compaction has replaced segments, so that it is not to be told where to read on.
  mutating func install(_ view: OrderedView, madeOf origin: Unordered) {
    guard disorders == origin.disorders, journal.segments.count >= origin.numbers.count,
      zip(journal.segments, origin.numbers).allSatisfy({ $0.number == $1 })
    else { return }
    ordered = view
  }

  /// What damage leaves in doubt; nil if nothing.
  var doubts: Doubts? {
    guard !gaps.isEmpty else { return nil }
    let resolved = state.resolved
    let doubts = Doubts(
      unattributed: unattributed.filter { !resolved.contains($0) },
      keys: damagedKeys.filter { !resolved.contains($0.value) },
      order: journal.segments.map(\.number), in: journal)
    return doubts.unattributed.isEmpty && doubts.keys.isEmpty ? nil : doubts
  }
}

/// Places of a journal whose records were lost: each may have been a newer one of a key (F37).
struct Doubts: Sendable {
  /// Those of which it is not known whose they were.
  let unattributed: [Location]
  /// The latest one of each key of which it is.
  let keys: [[UInt8]: Location]
  private let order: [UInt32]
  private let paths: [Location: String]

  init(unattributed: [Location], keys: [[UInt8]: Location], order: [UInt32], in journal: Journal) {
    (self.unattributed, self.keys, self.order) = (unattributed, keys, order)
    paths = Dictionary(
      (unattributed + keys.values).map { ($0, journal.path(of: $0.segment)) }, uniquingKeysWith: { $1 })
  }

  /// Fails if a lost record may have been a newer one of this key than the one `found`: better no answer than a wrong one.
  func check(_ key: [UInt8], _ found: Location?) throws(StoreError) {
    let suspects = unattributed + [keys[key]].compactMap { $0 }
    guard let gap = suspects.first(where: { gap in found.map { precedes($0, gap) } ?? true }) else { return }
    throw error(at: gap, "this key's latest value")
  }

  /// Fails if a lost record may have been a newer one of any key for which `isMeant` holds.
  func check(
    in order: OrderedView, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) {
    if let gap = unattributed.first { throw error(at: gap, "the latest value of any key") }
    for key in keys.keys where isMeant(key) { try check(key, try order.location(of: key)) }
  }

  /// What may be missing, or be an older value, of what a look at all keys for which `isMeant` holds has shown.
  func listed(
    in order: OrderedView, _ isMeant: ([UInt8]) -> Bool
  ) throws(StoreError) -> [Doubt] {
    var doubts = unattributed.prefix(1).map {
      Doubt(key: nil, error: error(at: $0, "the latest value of any key"))
    }
    for (key, gap) in keys.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) where isMeant(key) {
      if let found = try order.location(of: key), !precedes(found, gap) { continue }
      doubts.append(Doubt(key: Key(unchecked: key), error: error(at: gap, "this key's latest value")))
    }
    return doubts
  }

  private func precedes(_ left: Location, _ right: Location) -> Bool {
    guard left.segment != right.segment else { return left.offset < right.offset }
    return (order.lastIndex(of: left.segment) ?? -1) < (order.lastIndex(of: right.segment) ?? -1)
  }

  private func error(at gap: Location, _ what: String) -> StoreError {
    StoreError(
      .damaged, "a damaged record at offset \(gap.offset) may hold \(what): run `Store.verify`",
      path: paths[gap])
  }
}

/// What a lost record leaves open for who looks at all keys.
package struct Doubt: Sendable {
  /// The key whose latest value is lost; nil if it may be that of any key.
  package let key: Key?
  /// What reading that key fails with.
  package let error: StoreError
}
