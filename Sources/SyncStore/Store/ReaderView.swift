private import CLinux
private import Glibc

/// What a thread needs to read keys without a lock: the index, and where the segments are mapped. It never changes; when
/// the segments do, another one is published.
///
/// This is one of the few files that use `unsafe`: segments are bare pointers here, because a counted reference would cost
/// more than the reading. They are good as long as the view is: it holds what they point into.
@safe final class ReaderView {
  let keys: KeyDirectory
  private let ledger: Ledger
  private let segments: UnsafeMutableBufferPointer<MappedSegment>
  /// Keeps them mapped.
  private let held: [Segment?]
  /// Is any of them sealed? Then `find(_:opening:)` is to be used.
  let isSealed: Bool

  init(_ index: JournalIndex, _ table: SegmentTable) {
    (keys, ledger, held) = (index.keys, index.ledger, table.slots)
    isSealed = table.slots.contains { $0?.seal != nil }
    unsafe segments = .allocate(capacity: table.slots.count)
    unsafe segments.initialize(repeating: MappedSegment())
    for (slot, segment) in table.slots.enumerated() {
      if let segment, segment.seal == nil { unsafe segments[slot] = MappedSegment(segment.mapping, segment.header.salt) }
    }
  }

  deinit { unsafe segments.deallocate() }

  /// What is known of a key.
  enum Found {
    case nothing
    case record(MappedRecord)
  }

  /// The record that counts for a key, verified; nil if that is not plain to see, and to be found out under the lock.
  @inline(__always)
  func find(_ key: Span<UInt8>) -> Found? {
    let hash = keys.hash(key)
    for _ in 0..<Self.attempts {
      let before = ledger.changes
      var record: MappedRecord?
      var isKnown = true
      do throws(StoreError) {
        let place = try keys.find(hash) { place in
          guard let candidate = self.record(atPlace: place) else {
            isKnown = false
            return true
          }
          guard candidate.isOf(key) else {
            // One that was damaged since may be of this key.
            isKnown = candidate.checksumHolds
            return !isKnown
          }
          record = candidate
          return true
        }
        guard isKnown else { return nil }
        // A transaction is seen whole or not at all.
        guard before & 1 == 0 else { return nil }
        guard before == ledger.changes else { continue }
        guard place != nil else { return .nothing }
        guard let record, record.checksumHolds else { return nil }
        return .record(record)
      } catch {
        return nil
      }
    }
    return nil
  }

  private static let attempts = 8

  /// The same where records are sealed: they are opened into memory of this thread, which holds them as long as `plain`
  /// lives.
  @inline(never)
  func find(_ key: Span<UInt8>, opening plain: inout Mapping?) -> Found? {
    let hash = keys.hash(key)
    for _ in 0..<Self.attempts {
      let before = ledger.changes
      var record: MappedRecord?
      var opened: Mapping?
      var isKnown = true
      do throws(StoreError) {
        let place = try keys.find(hash) { place in
          opened = nil
          guard let candidate = self.record(atPlace: place, opening: &opened) else {
            isKnown = false
            return true
          }
          guard candidate.isOf(key) else {
            // What could be opened is whole; any other may be of this key, and damaged.
            isKnown = opened != nil || candidate.checksumHolds
            return !isKnown
          }
          record = candidate
          return true
        }
        guard isKnown, before & 1 == 0 else { return nil }
        guard before == ledger.changes else { continue }
        guard place != nil else { return .nothing }
        guard let record, opened != nil || record.checksumHolds else { return nil }
        plain = opened
        return .record(record)
      } catch {
        return nil
      }
    }
    return nil
  }

  private func record(atPlace place: UInt64, opening plain: inout Mapping?) -> MappedRecord? {
    let slot = Int(truncatingIfNeeded: place >> 29)
    guard held.indices.contains(slot), let segment = held[slot], segment.seal != nil else {
      return record(atPlace: place)
    }
    plain = segment.record(at: SegmentTable.offset(ofPlace: place), limit: segment.mapping.count)?.bytes
    return plain.flatMap { MappedRecord(MappedSegment($0, 0), 0) }
  }

  /// Nil if the segment is not mapped here, or the record not of a kind that can be read in place.
  @inline(__always)
  private func record(atPlace place: UInt64) -> MappedRecord? {
    let slot = Int(truncatingIfNeeded: place >> 29)
    guard unsafe slot < segments.count else { return nil }
    return unsafe MappedRecord(segments[slot], SegmentTable.offset(ofPlace: place))
  }
}

/// Where a segment is mapped. `ReaderView` has those that the index names, by their numbers there.
@safe struct MappedSegment {
  fileprivate var base: UnsafePointer<UInt8>?
  fileprivate var count = 0
  fileprivate var salt: UInt64 = 0

  init() { unsafe base = nil }

  fileprivate init(_ mapping: Mapping, _ salt: UInt64) {
    unsafe base = mapping.withPointer(0, to: UInt8.self) { unsafe UnsafePointer($0) }
    (count, self.salt) = (mapping.count, salt)
  }
}

/// A record of the ordinary form in place: a value or a tombstone that names no open dots.
@safe struct MappedRecord {
  private let base: UnsafePointer<UInt8>
  private let length: Int
  private let seed: UInt64
  private let key: Int
  private let value: Int
  let kind: RecordLayout.Kind
  private let hasDeadline: Bool

  /// Nil if there is none of that form in these bounds. What it says is to be believed once `checksumHolds` was seen.
  @inline(__always)
  fileprivate init?(_ segment: MappedSegment, _ offset: Int) {
    guard let start = unsafe segment.base, offset + RecordLayout.fixedLength <= segment.count else { return nil }
    unsafe base = start + offset
    length = Int(UInt32(littleEndian: unsafe Self.load(base, RecordLayout.length)))
    seed = segment.salt &+ UInt64(offset)
    let kind: UInt8 = unsafe Self.load(base, RecordLayout.kind)
    let flags = RecordLayout.Flags(rawValue: unsafe Self.load(base, RecordLayout.flags))
    guard offset + length <= segment.count, kind == 1 || kind == 3, !flags.contains(.open),
      let kind = RecordLayout.Kind(rawValue: kind)
    else { return nil }
    self.kind = kind
    hasDeadline = flags.contains(.deadline)
    key =
      RecordLayout.fixedLength + (flags.contains(.base) ? RecordLayout.dotLength : 0) + (hasDeadline ? 8 : 0)
    value = key + Int(UInt16(littleEndian: unsafe Self.load(base, RecordLayout.keyLength)))
    guard value <= length else { return nil }
  }

  @inline(__always)
  fileprivate func isOf(_ other: Span<UInt8>) -> Bool {
    guard value - key == other.count else { return false }
    return unsafe other.withUnsafeBufferPointer {
      unsafe $0.isEmpty || memcmp(base + key, $0.baseAddress!, $0.count) == 0
    }
  }

  @inline(__always)
  fileprivate var checksumHolds: Bool {
    let stored = UInt32(littleEndian: unsafe Self.load(base, RecordLayout.checksum))
    let body = unsafe UnsafeRawBufferPointer(
      start: base + RecordLayout.length, count: length - RecordLayout.length)
    return UInt32(truncatingIfNeeded: XXH3.hash64(unsafe body.bytes, seed: seed)) == stored
  }

  /// Was every byte that was read there one that was written?
  @inline(__always)
  var isUnchanged: Bool { sync_any_fault() == 0 || checksumHolds }

  var type: ValueType { ValueType(rawValue: unsafe Self.load(base, RecordLayout.type)) }

  /// When it expires, in milliseconds since 1970.
  var deadline: UInt64? {
    guard hasDeadline else { return nil }
    return UInt64(littleEndian: unsafe Self.load(base, key - 8))
  }

  /// A copy of the value.
  @inline(__always)
  var bytes: [UInt8] { unsafe Array(UnsafeBufferPointer(start: base + value, count: length - value)) }

  /// The value in place.
  @inline(__always)
  func withValue<Result, Failure: Error>(_ body: (RawSpan) throws(Failure) -> Result) throws(Failure) -> Result {
    try body(unsafe UnsafeRawBufferPointer(start: base + value, count: length - value).bytes)
  }

  @inline(__always)
  private static func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ base: UnsafePointer<UInt8>, _ offset: Int
  ) -> Integer {
    unsafe UnsafeRawPointer(base).loadUnaligned(fromByteOffset: offset, as: Integer.self)
  }
}
