/// What a thread needs to read keys without a lock: the index, and where the segments are mapped. It never changes; when
/// the segments do, another one is published.
final class ReaderView: Sendable {
  private let keys: KeyDirectory
  private let ledger: Ledger
  private let plain: PlainSegments
  /// Those that are sealed, by their numbers in the index; empty if none are.
  private let sealed: [Segment?]

  init(_ index: JournalIndex, _ table: SegmentTable) {
    (keys, ledger) = (index.keys, index.ledger)
    plain = PlainSegments(table)
    let isSealed = table.slots.contains { $0?.seal != nil }
    sealed = isSealed ? table.slots.map { $0?.seal == nil ? nil : $0 } : []
  }

  /// Is any segment sealed? Then `findOpening` is to be used.
  @inline(__always)
  var isSealed: Bool { !sealed.isEmpty }

  /// What is known of a key.
  enum Found {
    case nothing
    case record(PlainRecord)
    /// That is not plain to see: it is to be found out under the lock.
    case unknown
  }

  /// The record that counts for a key, verified.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found { find(key) { plain.record(atPlace: $0) } }

  /// The same where records may be sealed: `body` gets the record opened.
  @inline(never)
  func findOpening<Result>(_ key: Span<UInt8>, _ body: (Found) -> Result) -> Result {
    // The memory of the plain form, kept until `body` has returned.
    var opened: Mapping?
    let found = find(key) { place in
      let slot = SegmentTable.slot(ofPlace: place)
      guard slot < sealed.count, let segment = sealed[slot] else { return plain.record(atPlace: place) }
      let offset = SegmentTable.offset(ofPlace: place)
      guard let view = segment.record(at: offset, limit: segment.mapping.count) else { return nil }
      opened = view.bytes
      return PlainRecord(MappedBytes(view.bytes), seed: nil)
    }
    return withExtendedLifetime(opened) { body(found) }
  }

  @inline(__always)
  private func find(_ key: Span<UInt8>, record: (_ place: UInt64) -> PlainRecord?) -> Found {
    let hash = keys.hash(key)
    for _ in 0..<Self.attempts {
      let before = ledger.changes
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
      guard before == ledger.changes else { continue }
      if case .record(let candidate) = found, !candidate.isWhole { return .unknown }
      return found
    }
    return .unknown
  }

  private static let attempts = 8
}
