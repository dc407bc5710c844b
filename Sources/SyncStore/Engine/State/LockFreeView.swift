/// State for reading keys without a lock: the index and the segment mappings. Immutable; a new one
/// is published when the segments change.
final class LockFreeView: Sendable {
  private let keys: HashIndex
  private let checkpoint: IndexCheckpoint
  private let segments: SlotSegments

  init(index: JournalIndex, table: SegmentTable) {
    (keys, checkpoint) = (index.hashIndex, index.checkpoint)
    segments = SlotSegments(table)
  }

  /// Whether any segment is encrypted: reads then need `find(_:opened:)`.
  @inline(__always)
  var isEncrypted: Bool { segments.isEncrypted }

  /// Prefetches the index slot of a key. Returns its hash, and which index that hash belongs to.
  @inline(__always)
  func prefetch(_ key: Span<UInt8>) -> (hash: UInt64, keys: ObjectIdentifier) {
    let hash = keys.hash(key)
    keys.prefetch(hash)
    return (hash, ObjectIdentifier(keys))
  }

  /// Result of a lookup.
  enum Found {
    case nothing
    case record(SimpleRecord)
    /// Undecidable without the lock.
    case unknown
  }

  /// The current record of a key, verified.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found { find(key) { segments.record(atRef: $0) } }

  /// The current record of a key where segments may be encrypted: a decrypted record is valid while the
  /// caller keeps `opened`.
  @inline(never)
  func find(_ key: Span<UInt8>, opened: inout Mapping?) -> Found {
    find(key) { segments.record(atRef: $0, opened: &opened) }
  }

  /// The blob reference of a key with a large value; nil if its value is inline, or if that is undecidable
  /// without the lock.
  @inline(never)
  func findBlob(_ key: Span<UInt8>) -> (blob: BlobReference, type: ValueType, deadline: UInt64?)? {
    var opened: Mapping?
    let found = find(key) { segments.record(atRef: $0, opened: &opened, orBlob: true) }
    return withExtendedLifetime(opened) {
      guard case .record(let record) = found, let blob = record.blob,
        !Mapping.hasAnyFaulted || record.isWhole
      else { return nil }
      return (blob, record.type, record.deadline)
    }
  }

  @inline(__always)
  private func find(_ key: Span<UInt8>, record: (_ place: UInt64) -> SimpleRecord?) -> Found {
    let hash = keys.hash(key)
    for _ in 0..<Self.maxAttempts {
      let before = checkpoint.seqlock
      var found = Found.nothing
      do throws(StoreError) {
        _ = try keys.find(hash) { place in
          guard let candidate = record(place) else {
            found = .unknown
            return true
          }
          if candidate.isOf(key) {
            found = .record(candidate)
            return true
          }
          // A record damaged since may have this key.
          if candidate.isWhole { return false }
          found = .unknown
          return true
        }
      } catch {
        return .unknown
      }
      if case .unknown = found { return .unknown }
      // An odd seqlock means that a transaction is being indexed; it must be seen whole or not at all.
      guard before & 1 == 0 else { return .unknown }
      guard before == checkpoint.seqlock else { continue }
      if case .record(let candidate) = found, !candidate.isWhole { return .unknown }
      return found
    }
    return .unknown
  }

  private static let maxAttempts = 8
}
