/// What a thread needs to read keys without a lock: the index, and where the segments are mapped. It never changes; when
/// the segments do, another one is published.
final class LockFreeView: Sendable {
  private let keys: HashIndex
  private let checkpoint: IndexCheckpoint
  private let segments: SlotSegments

  init(index: JournalIndex, table: SegmentTable) {
    (keys, checkpoint) = (index.hashIndex, index.checkpoint)
    segments = SlotSegments(table)
  }

  /// Is any segment sealed? Then `find` has to open them.
  @inline(__always)
  var isEncrypted: Bool { segments.isEncrypted }

  /// Has the processor fetch what the index will be asked for a key, and what the key is called there.
  @inline(__always)
  func prefetch(_ key: Span<UInt8>) -> (hash: UInt64, keys: ObjectIdentifier) {
    let hash = keys.hash(key)
    keys.prefetch(hash)
    return (hash, ObjectIdentifier(keys))
  }

  /// What is known of a key.
  enum Found {
    case nothing
    case record(SimpleRecord)
    /// That is not plain to see: it is to be found out under the lock.
    case unknown
  }

  /// The record that counts for a key, verified.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found { find(key) { segments.record(atRef: $0) } }

  /// The same where records may be sealed: what is found is there as long as the caller keeps `opened`.
  @inline(never)
  func find(_ key: Span<UInt8>, opened: inout Mapping?) -> Found {
    find(key) { segments.record(atRef: $0, opened: &opened) }
  }

  /// What a key refers to whose value is a large one; nil if it has another value, or that is not plain to see.
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
          // One that was damaged since may be of this key.
          if candidate.isWhole { return false }
          found = .unknown
          return true
        }
      } catch {
        return .unknown
      }
      if case .unknown = found { return .unknown }
      // A transaction is seen whole or not at all.
      guard before & 1 == 0 else { return .unknown }
      guard before == checkpoint.seqlock else { continue }
      if case .record(let candidate) = found, !candidate.isWhole { return .unknown }
      return found
    }
    return .unknown
  }

  private static let maxAttempts = 8
}
