/// Records stamped too far ahead: replayed, but not applied yet.
struct ParkedRecords {
  private var byKey: [[UInt8]: [Location]] = [:]
  /// Stamp up to which due records could not be applied, because the disk was full; nil if there are none, as
  /// far as this process has tried. Readers and writers see them in place of the applied records
  /// (`effectiveRecord`).
  var overdueUpTo: Stamp?

  var isEmpty: Bool { byKey.isEmpty }

  /// Number of keys with parked records.
  var count: Int { byKey.count }

  var keys: some Collection<[UInt8]> { byKey.keys }

  /// The parked records of each key.
  var groups: some Collection<[Location]> { byKey.values }

  /// All parked records, in no particular order.
  var locations: some Sequence<Location> { byKey.values.joined() }

  /// The parked records of a key; nil if there are none.
  subscript(key: [UInt8]) -> [Location]? { byKey[key] }

  mutating func add(_ location: Location, to key: [UInt8]) { byKey[key, default: []].append(location) }

  mutating func remove(_ gone: some Sequence<Location>, from key: [UInt8]) {
    guard let places = byKey[key] else { return }
    let left = places.filter { !gone.contains($0) }
    byKey[key] = left.isEmpty ? nil : left
  }

  /// Replaces a record of a key by its copy.
  mutating func move(_ original: Location, of key: [UInt8], to copy: Location) {
    guard let index = byKey[key]?.firstIndex(of: original) else { return }
    byKey[key]?[index] = copy
  }
}

/// Losers of conflicts.
struct ConflictLosers {
  var locations: [Location] = []
  /// Digests of the losers, so that a redelivered one is not kept again (F66). By content, not by dot: two
  /// incarnations of one machine may have given the same dot to different values.
  var digests: Set<StateDigest> = []
}
