/// What a thread needs to read keys without a lock: the index, and where the segments are mapped. It never changes; when
/// the segments do, another one is published.
final class ReaderView: Sendable {
  private let keys: KeyDirectory
  private let ledger: Ledger
  /// The segments that the index names, by their numbers there.
  private let bytes: MappingTable
  private let salts: [UInt64]
  /// Those of them that are sealed; empty if none are. They are not among the mappings.
  private let sealed: [Segment?]

  init(_ index: JournalIndex, _ table: SegmentTable) {
    (keys, ledger) = (index.keys, index.ledger)
    bytes = MappingTable(table.slots.map { $0?.seal == nil ? $0?.mapping : nil })
    salts = table.slots.map { $0?.header.salt ?? 0 }
    let isSealed = table.slots.contains { $0?.seal != nil }
    sealed = isSealed ? table.slots.map { $0?.seal == nil ? nil : $0 } : []
  }

  /// Is any segment sealed? Then `findOpening` is to be used.
  @inline(__always)
  var isSealed: Bool { !sealed.isEmpty }

  /// Where a record of the ordinary form lies: a value or a tombstone that names no open dots. What it says is to be
  /// believed once its checksum was seen.
  struct Place {
    fileprivate var slot: Int
    /// The plain form of a sealed record, in memory of this thread: that is where it lies then.
    fileprivate var plain: Mapping?
    fileprivate var record: Range<Int>
    /// Where the key begins and where the value does.
    fileprivate var key: Int
    fileprivate var value: Int
    fileprivate var hasDeadline: Bool
    let kind: RecordLayout.Kind
    let type: ValueType
  }

  /// What is known of a key.
  enum Found {
    case nothing
    case record(Place)
  }

  /// The record that counts for a key, verified; nil if that is not plain to see, and to be found out under the lock.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found? {
    let hash = keys.hash(key)
    for _ in 0..<Self.attempts {
      let before = ledger.changes
      var record: Place?
      var isPlain = true
      do throws(StoreError) {
        let place = try keys.find(hash) { place in
          guard let candidate = self.record(atPlace: place) else {
            isPlain = false
            return true
          }
          guard isOf(key, candidate) else {
            // One that was damaged since may be of this key.
            isPlain = isWhole(candidate)
            return !isPlain
          }
          record = candidate
          return true
        }
        // A transaction is seen whole or not at all.
        guard isPlain, before & 1 == 0 else { return nil }
        guard before == ledger.changes else { continue }
        guard place != nil else { return .nothing }
        guard let record, isWhole(record) else { return nil }
        return .record(record)
      } catch {
        return nil
      }
    }
    return nil
  }

  private static let attempts = 8

  /// The same where records are sealed: they are opened.
  @inline(never)
  func findOpening(_ key: Span<UInt8>) -> Found? {
    let hash = keys.hash(key)
    for _ in 0..<Self.attempts {
      let before = ledger.changes
      var record: Place?
      var isPlain = true
      do throws(StoreError) {
        let place = try keys.find(hash) { place in
          guard let candidate = self.opened(atPlace: place) ?? self.record(atPlace: place) else {
            isPlain = false
            return true
          }
          guard isOf(key, candidate) else {
            isPlain = isWhole(candidate)
            return !isPlain
          }
          record = candidate
          return true
        }
        guard isPlain, before & 1 == 0 else { return nil }
        guard before == ledger.changes else { continue }
        guard place != nil else { return .nothing }
        guard let record, isWhole(record) else { return nil }
        return .record(record)
      } catch {
        return nil
      }
    }
    return nil
  }

  /// Nil, too, if the segment is not sealed.
  private func opened(atPlace place: UInt64) -> Place? {
    let slot = Int(truncatingIfNeeded: place >> 29)
    guard sealed.indices.contains(slot), let segment = sealed[slot],
      let view = segment.record(at: SegmentTable.offset(ofPlace: place), limit: segment.mapping.count)
    else { return nil }
    let plain = view.bytes
    return Self.record(
      slot, 0, Int(plain.load(RecordLayout.length, as: UInt32.self)), kinds: plain.load(RecordLayout.kind),
      counts: plain.load(RecordLayout.actor), plain: plain)
  }

  /// Nil if the segment is not mapped here, or the record not of the ordinary form.
  @inline(__always)
  private func record(atPlace place: UInt64) -> Place? {
    let slot = Int(truncatingIfNeeded: place >> 29)
    let offset = SegmentTable.offset(ofPlace: place)
    let limit = bytes.byteCount(slot)
    guard offset &+ RecordLayout.fixedLength <= limit else { return nil }
    let sum: UInt64 = bytes.load(slot, offset)
    let length = Int(truncatingIfNeeded: sum >> 32)
    guard length <= limit &- offset else { return nil }
    return Self.record(
      slot, offset, length, kinds: bytes.load(slot, offset &+ RecordLayout.kind),
      counts: bytes.load(slot, offset &+ RecordLayout.actor))
  }

  @inline(__always)
  private static func record(
    _ slot: Int, _ offset: Int, _ length: Int, kinds: UInt32, counts: UInt32, plain: Mapping? = nil
  ) -> Place? {
    let flags = RecordLayout.Flags(rawValue: UInt8(truncatingIfNeeded: kinds >> 8))
    guard let kind = RecordLayout.Kind(rawValue: UInt8(truncatingIfNeeded: kinds)),
      kind == .value || kind == .tombstone, !flags.contains(.open)
    else { return nil }
    var key = RecordLayout.fixedLength
    if flags.contains(.base) { key &+= RecordLayout.dotLength }
    if flags.contains(.deadline) { key &+= 8 }
    let value = key &+ Int(truncatingIfNeeded: counts >> 16)
    guard value <= length else { return nil }
    return Place(
      slot: slot, plain: plain, record: offset..<(offset &+ length), key: offset &+ key,
      value: offset &+ value,
      hasDeadline: flags.contains(.deadline), kind: kind,
      type: ValueType(rawValue: UInt8(truncatingIfNeeded: kinds >> 16)))
  }

  @inline(__always)
  private func isOf(_ key: Span<UInt8>, _ place: Place) -> Bool {
    guard place.value &- place.key == key.count else { return false }
    if let plain = place.plain { return plain.equals(place.key..<place.value, key) }
    return bytes.compare(place.slot, place.key..<place.value, key) == 0
  }

  /// Is the record what was written there?
  @inline(__always)
  func isWhole(_ place: Place) -> Bool {
    // What could be opened is what was sealed, and does not change.
    guard place.plain == nil else { return true }
    let start = place.record.lowerBound
    let stored: UInt32 = bytes.load(place.slot, start)
    let seed = salts[place.slot] &+ UInt64(truncatingIfNeeded: start)
    let body = (start &+ RecordLayout.length)..<place.record.upperBound
    return UInt32(truncatingIfNeeded: bytes.withBytes(place.slot, body) { XXH3.hash64($0, seed: seed) })
      == stored
  }

  /// When it expires, in milliseconds since 1970.
  @inline(__always)
  func deadline(_ place: Place) -> UInt64? {
    guard place.hasDeadline else { return nil }
    return place.plain.map { $0.load(place.key &- 8) } ?? bytes.load(place.slot, place.key &- 8)
  }

  /// A copy of the value.
  @inline(__always)
  func value(_ place: Place) -> [UInt8] {
    let range = place.value..<place.record.upperBound
    return place.plain?.bytes(range) ?? bytes.bytes(place.slot, range)
  }

  /// The value in place.
  @inline(__always)
  func withValue<Result>(_ place: Place, _ body: (RawSpan) -> Result) -> Result {
    let range = place.value..<place.record.upperBound
    if let plain = place.plain { return plain.withBytes(range, body) }
    return bytes.withBytes(place.slot, range, body)
  }
}
