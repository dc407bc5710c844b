/// What scans and snapshots ask of a view: the records in the order of their keys, apart from what changes.
extension Engine {
  /// Applied records in the order of their keys. Takes as long as sorting all keys if nothing is known of their order.
  mutating func sortedKeyIndex() throws(StoreError) -> SortedKeyIndex {
    if let view = try cachedSortedKeyIndex() { return view }
    let view = SortedKeyIndex(try allLocations(), upTo: applied, in: SegmentSnapshot(journal))
    sortedIndex = view
    return view
  }

  /// The same if the order is known but for a few changes; nil if all keys are to be sorted anew.
  mutating func cachedSortedKeyIndex() throws(StoreError) -> SortedKeyIndex? {
    guard var view = sortedIndex else { return nil }
    if view.upTo == applied { return view }
    // Only a fresh view can tell whether what was damaged has been replaced.
    guard view.damaged.isEmpty else { return nil }
    // From some number of changes on, sorting all is no slower: there each key is opened once, if it is sealed, and here as
    // often as it is compared.
    let most = max(view.count / (view.segments.isEncrypted ? 16 : 4), 256)
    guard let changes = try liveLocations(from: view.upTo, purged: true, limit: most) else { return nil }
    // Held by nobody else, it is changed in place.
    sortedIndex = nil
    view.merge(changes, upTo: applied, in: SegmentSnapshot(journal))
    sortedIndex = view
    return view
  }

  /// All that an order is made of, for who makes it without the lock.
  struct SortInput {
    var places: [Location]
    var upTo: Location
    var segments: SegmentSnapshot
    fileprivate var numbers: [UInt32]
    fileprivate var orderInvalidations: Int
  }

  /// What there is to be put in order now.
  func sortInput() throws(StoreError) -> SortInput {
    SortInput(
      places: try allLocations(), upTo: applied, segments: SegmentSnapshot(journal),
      numbers: journal.segments.map(\.number), orderInvalidations: orderInvalidations)
  }

  /// Takes in an order that was made without the lock, unless something has changed but by appending: a record was applied
  /// that had waited for its time, or a compaction has replaced segments, so that it is not to be told where to read on.
  mutating func install(_ view: SortedKeyIndex, builtFrom origin: SortInput) {
    guard orderInvalidations == origin.orderInvalidations, journal.segments.count >= origin.numbers.count,
      zip(journal.segments, origin.numbers).allSatisfy({ $0.number == $1 })
    else { return }
    sortedIndex = view
  }

}

/// What a lost record leaves open for who looks at all keys.
package struct PossibleLoss: Sendable {
  /// The key whose latest value is lost; nil if it may be that of any key.
  package let key: Key?
  /// What reading that key fails with.
  package let error: StoreError
}
