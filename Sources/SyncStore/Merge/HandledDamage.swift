/// The damage of the journal that this copy has handled, by becoming a new actor and clearing its vector.
/// A damaged range is identified by its beginning.
///
/// Invariant: ranges with known lost keys, and resolved ones, are handled ones.
struct HandledDamage: Sendable {
  /// End offset at the time. Records after it may have been damaged since.
  private var ends: [Location: UInt32] = [:]
  /// The keys lost, where they are known.
  private var lostKeys: [Location: LostKeyFingerprints] = [:]
  /// Those whose records were received again from a peer.
  private var resolved: Set<Location> = []

  private mutating func record(
    _ start: Location, end: UInt32, lostKeys: LostKeyFingerprints?, isResolved: Bool
  ) {
    ends[start] = end
    self.lostKeys[start] = lostKeys
    if isResolved { resolved.insert(start) } else { resolved.remove(start) }
  }

  /// Applies the local record of a damaged range: its start, packed, and the value stored under it.
  mutating func apply(start: ArraySlice<UInt8>, value: [UInt8]) {
    var reader = ByteReader(start)
    guard let packed = try? reader.read(UInt64.self) else { return }
    var rest = ByteReader(value)
    let isResolved = (try? rest.read(UInt8.self)) == 1
    // Older programs did not record its end.
    let end = (try? rest.read(UInt32.self)) ?? .max
    let lost = LostKeyFingerprints(from: &rest)
    record(Location(packed: packed), end: end, lostKeys: lost, isResolved: isResolved)
  }

  /// The end of the handled range; nil if none was handled there.
  func end(of start: Location) -> UInt32? { ends[start] }

  /// The keys lost in the range; nil if they are unknown.
  func lostKeys(of start: Location) -> LostKeyFingerprints? { lostKeys[start] }

  /// True if the records lost in the range were received again.
  func isResolved(_ start: Location) -> Bool { resolved.contains(start) }

  /// The handled ranges that are not resolved.
  var unresolved: [(start: Location, end: UInt32)] {
    ends.filter { !resolved.contains($0.key) }.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
  }

  /// Number of ranges with known lost keys.
  var attributedCount: Int { lostKeys.count }
  var resolvedCount: Int { resolved.count }
}
