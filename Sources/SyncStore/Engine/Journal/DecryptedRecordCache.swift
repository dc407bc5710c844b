/// Recently read records in decrypted form, shared by all threads that read an encrypted store
/// (`Configuration.openedRecordBytes`).
///
/// Entries cannot be stale: they are keyed by key, location and tag, and the index determines the current
/// record for each read. A write, in any process, makes the index name another location; the old entry is no
/// longer requested and is evicted as the least recently used.
///
/// Invariant: entries are immutable.
final class DecryptedRecordCache: Sendable {
  /// Identifies an encrypted record.
  struct Name: Hashable, Sendable {
    /// Identifies its encryption key, see `SegmentCipher`.
    let id: UInt64
    let place: Int
    let tag: (UInt64, UInt64)

    static func == (left: Name, right: Name) -> Bool {
      left.id == right.id && left.place == right.place && left.tag == right.tag
    }

    /// A tag is effectively random.
    func hash(into hasher: inout Hasher) { hasher.combine(tag.0) }
  }

  private let cache: MemoryCache<Name, Mapping>

  /// Nil if nothing is to be cached.
  init?(bytes: Int) {
    guard bytes > 0 else { return nil }
    cache = MemoryCache(
      name: "opened records", costLimit: bytes, trimInterval: 0, release: .onEvictingThread)
  }

  /// Number of entries.
  var count: Int { cache.count }

  func get(_ name: Name) -> Mapping? { cache.get(name) }

  func insert(_ plain: Mapping, _ name: Name) { cache.set(name, plain, cost: plain.count) }

  /// Removes all entries.
  func removeAll() { cache.removeAll() }
}
