/// The sorted key index and its input, for scans and snapshots.
extension Engine {
  /// Applied records sorted by key. Costs sorting all keys if no order is cached.
  mutating func sortedKeyIndex() throws(StoreError) -> SortedKeyIndex {
    if let view = try cachedSortedKeyIndex() { return view }
    let view = SortedKeyIndex(try allLocations(), upTo: applied, in: SegmentSnapshot(journal))
    sortedKeys.index = view
    return view
  }

  /// The sorted records if a cached order needs few changes; nil if all keys must be sorted anew.
  mutating func cachedSortedKeyIndex() throws(StoreError) -> SortedKeyIndex? {
    guard var view = sortedKeys.index else { return nil }
    if view.upTo == applied { return view }
    // Only a fresh view can tell whether a damaged record has been replaced.
    guard view.damaged.isEmpty else { return nil }
    // Above this number of changes a full sort is no slower: in an encrypted store it decrypts each key once,
    // an update at every comparison.
    let most = max(view.count / (view.segments.isEncrypted ? 16 : 4), 256)
    guard let changes = try liveLocations(from: view.upTo, options: .includesPurged, limit: most) else {
      return nil
    }
    // With a single owner it is changed in place instead of copied.
    sortedKeys.index = nil
    view.merge(changes, upTo: applied, in: SegmentSnapshot(journal))
    sortedKeys.index = view
    return view
  }

  /// Everything needed to build the sorted index without the lock.
  struct SortInput {
    var places: [Location]
    var upTo: Location
    var segments: SegmentSnapshot
    fileprivate var numbers: [UInt32]
    fileprivate var orderInvalidations: Int
  }

  /// The present input of the sorted index.
  func sortInput() throws(StoreError) -> SortInput {
    SortInput(
      places: try allLocations(), upTo: applied, segments: SegmentSnapshot(journal),
      numbers: journal.segments.map(\.number), orderInvalidations: sortedKeys.invalidations)
  }

  /// Installs an order built without the lock. Discarded if anything but appends happened since: a parked
  /// record was applied or segments were replaced, so that the position to continue from is unknown.
  mutating func install(_ view: SortedKeyIndex, builtFrom origin: SortInput) {
    guard sortedKeys.invalidations == origin.orderInvalidations,
      journal.segments.count >= origin.numbers.count,
      zip(journal.segments, origin.numbers).allSatisfy({ $0.number == $1 })
    else { return }
    sortedKeys.index = view
  }

}

/// A lost record that a pass over all keys must report.
package struct PossibleLoss: Sendable {
  /// The key whose latest value is lost; nil if it may be any key.
  package let key: Key?
  /// The error that reading that key throws.
  package let error: StoreError
}
