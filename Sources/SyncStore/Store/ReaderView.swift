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

  /// A record of the ordinary form: a value or a tombstone that names no open dots. What it says is to be believed once its
  /// checksum was seen. It is there as long as the reading in which it was found.
  struct Place {
    fileprivate let bytes: MappedBytes
    /// Of its checksum; nil for the plain form of a sealed record: what could be opened is what was sealed.
    fileprivate let seed: UInt64?
    /// Where the key begins and where the value does.
    fileprivate let key: Int
    fileprivate let value: Int
    private let kinds: UInt32

    /// Nil if it is of another form, or does not lie within `bytes`, which go on to the end of the segment.
    @inline(__always)
    fileprivate init?(_ bytes: MappedBytes, seed: UInt64?) {
      guard bytes.count >= RecordLayout.fixedLength else { return nil }
      let length = Int(bytes.load(RecordLayout.length, as: UInt32.self))
      kinds = bytes.load(RecordLayout.kind)
      let named = bytes.load(RecordLayout.actor, as: UInt32.self)
      let flags = RecordLayout.Flags(rawValue: UInt8(truncatingIfNeeded: kinds >> 8))
      let kind = UInt8(truncatingIfNeeded: kinds)
      guard length <= bytes.count, !flags.contains(.open),
        kind == RecordLayout.Kind.value.rawValue || kind == RecordLayout.Kind.tombstone.rawValue
      else { return nil }
      key = RecordLayout.fixedLength &+ flags.bytesBeforeKey
      value = key &+ Int(named >> 16)
      guard value <= length else { return nil }
      self.bytes = bytes.prefix(length)
      self.seed = seed
    }

    @inline(__always)
    var isTombstone: Bool {
      UInt8(truncatingIfNeeded: kinds) == RecordLayout.Kind.tombstone.rawValue
    }

    var type: ValueType { ValueType(rawValue: UInt8(truncatingIfNeeded: kinds >> 16)) }

    @inline(__always)
    fileprivate func isOf(_ key: Span<UInt8>) -> Bool {
      value &- self.key == key.count && bytes.equals(self.key, key)
    }

    /// Is the record what was written there?
    @inline(__always)
    var isWhole: Bool {
      guard let seed else { return true }
      let sum = bytes.withBytes(RecordLayout.length..<bytes.count) { XXH3.hash64($0, seed: seed) }
      return UInt32(truncatingIfNeeded: sum) == bytes.load(RecordLayout.checksum)
    }

    /// When it expires, in milliseconds since 1970.
    @inline(__always)
    var deadline: UInt64? {
      let flags = RecordLayout.Flags(rawValue: UInt8(truncatingIfNeeded: kinds >> 8))
      return flags.contains(.deadline) ? bytes.load(key &- 8) : nil
    }

    /// A copy of the value.
    @inline(__always)
    var valueBytes: [UInt8] { bytes.bytes(value..<bytes.count) }

    /// The value in place.
    @inline(__always)
    func withValue<Result>(_ body: (RawSpan) -> Result) -> Result {
      bytes.withBytes(value..<bytes.count, body)
    }
  }

  /// What is known of a key.
  enum Found {
    case nothing
    case record(Place)
    /// That is not plain to see: it is to be found out under the lock.
    case unknown
  }

  /// The record that counts for a key, verified.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found {
    find(key) { place in
      let (slot, offset) = (SegmentTable.slot(ofPlace: place), SegmentTable.offset(ofPlace: place))
      let rest = bytes.rest(slot, offset)
      rest.prefetch()
      guard rest.count > 0 else { return nil }
      return Place(rest, seed: salts[slot] &+ UInt64(truncatingIfNeeded: offset))
    }
  }

  /// The same where records may be sealed: `body` gets the record opened.
  @inline(never)
  func findOpening<Result>(_ key: Span<UInt8>, _ body: (Found) -> Result) -> Result {
    // The memory of the plain form, kept until `body` has returned.
    var plain: Mapping?
    let found = find(key) { place in
      let (slot, offset) = (SegmentTable.slot(ofPlace: place), SegmentTable.offset(ofPlace: place))
      guard slot < sealed.count, let segment = sealed[slot] else {
        let rest = bytes.rest(slot, offset)
        return rest.count > 0 ? Place(rest, seed: salts[slot] &+ UInt64(truncatingIfNeeded: offset)) : nil
      }
      guard let view = segment.record(at: offset, limit: segment.mapping.count) else { return nil }
      plain = view.bytes
      return Place(MappedBytes(view.bytes), seed: nil)
    }
    return withExtendedLifetime(plain) { body(found) }
  }

  @inline(__always)
  private func find(_ key: Span<UInt8>, record: (_ place: UInt64) -> Place?) -> Found {
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
