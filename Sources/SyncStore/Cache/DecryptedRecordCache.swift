/// The opened forms of sealed records that were read lately, for all threads that read an encrypted store
/// (`Configuration.openedRecordBytes`).
///
/// Nothing in it can be out of date: what is kept is called by its key, its place and its tag, and the index says for each
/// read which record counts. Who writes, in whatever process, lets it name another place; what was there before is not
/// asked for any more and leaves as the least recently used.
///
/// Invariant: what is kept is never changed.
final class DecryptedRecordCache: Sendable {
  /// What a sealed record is called.
  struct Name: Hashable, Sendable {
    /// Its key, see `SegmentCipher`.
    let id: UInt64
    let place: Int
    let tag: (UInt64, UInt64)

    static func == (left: Name, right: Name) -> Bool {
      left.id == right.id && left.place == right.place && left.tag == right.tag
    }

    /// A tag is as good as random.
    func hash(into hasher: inout Hasher) { hasher.combine(tag.0) }
  }

  private let cache: MemoryCache<Name, Mapping>

  /// Nil if nothing is to be kept.
  init?(bytes: Int) {
    guard bytes > 0 else { return nil }
    cache = MemoryCache(
      name: "opened records", costLimit: bytes, trimInterval: 0, releasesInBackground: false)
  }

  /// How many there are.
  var count: Int { cache.count }

  func get(_ name: Name) -> Mapping? { cache.get(name) }

  func insert(_ plain: Mapping, _ name: Name) { cache.set(name, plain, cost: plain.count) }

  /// Forgets all of them.
  func removeAll() { cache.removeAll() }
}
