/// Memory that holds records of the journal. The fields of a record are decoded here and nowhere else:
/// `schemas/journal.md` is the byte map, `RecordLayout` the offsets.
///
/// `start` is the offset of a record's first byte in the memory. The fixed part must lie within it; what the
/// fields say may be trusted only after the record's checksum was verified.
protocol RecordBytes: ~Escapable {
  /// The little-endian integer at `offset`.
  func load<Integer: FixedWidthInteger & BitwiseCopyable>(_ offset: Int, as: Integer.Type) -> Integer
}

extension RecordBytes where Self: ~Escapable {
  @inline(__always)
  func recordChecksum(at start: Int = 0) -> UInt32 { load(start &+ RecordLayout.checksum, as: UInt32.self) }

  /// Bytes of the record, without padding.
  @inline(__always)
  func recordLength(at start: Int = 0) -> Int { Int(load(start &+ RecordLayout.length, as: UInt32.self)) }

  /// Offset up to which the segment was known durable when the record was written.
  @inline(__always)
  func recordDurable(at start: Int = 0) -> Int { Int(load(start &+ RecordLayout.durable, as: UInt32.self)) }

  /// Kind, flags and type in one load.
  @inline(__always)
  func recordKinds(at start: Int = 0) -> RecordKinds {
    RecordKinds(rawValue: load(start &+ RecordLayout.kind, as: UInt32.self))
  }

  /// The number of the author in the segment, and the length of the key, in one load.
  @inline(__always)
  func recordActorAndKey(at start: Int = 0) -> (actor: UInt16, keyLength: Int) {
    let both = load(start &+ RecordLayout.actor, as: UInt32.self)
    return (UInt16(truncatingIfNeeded: both), Int(both >> 16))
  }

  /// Distance from the base position of the segment.
  @inline(__always)
  func recordPosition(at start: Int = 0) -> UInt64 {
    UInt64(load(start &+ RecordLayout.position, as: UInt32.self))
  }

  @inline(__always)
  func recordSequence(at start: Int = 0) -> UInt64 { load(start &+ RecordLayout.sequence, as: UInt64.self) }

  @inline(__always)
  func recordStamp(at start: Int = 0) -> Stamp {
    Stamp(rawValue: load(start &+ RecordLayout.stamp, as: UInt64.self))
  }

  /// A dot of the variable part: the actor's number and the sequence.
  @inline(__always)
  func recordDot(at place: Int) -> (actor: UInt16, sequence: UInt64) {
    (load(place, as: UInt16.self), load(place &+ 2, as: UInt64.self))
  }

  /// Range of the key of the record of `length` bytes; nil if the lengths contradict each other, which only a
  /// program with another version of the format could have written under a valid checksum.
  @inline(__always)
  func recordKeyRange(at start: Int = 0, length: Int) -> Range<Int>? {
    let (flags, end) = (recordKinds(at: start).flags, start &+ length)
    var key = start &+ RecordLayout.fixedLength
    if !flags.isDisjoint(with: .fields) {
      key &+= flags.bytesBeforeKey
      if flags.contains(.open) {
        guard key &+ 2 <= end else { return nil }
        key &+= 2 &+ Int(load(key, as: UInt16.self)) &* RecordLayout.dotLength
      }
    }
    let keyEnd = key &+ recordActorAndKey(at: start).keyLength
    return keyEnd <= end ? key..<keyEnd : nil
  }

  /// Ranges of the optional fields, the key and the value; nil where `recordKeyRange` is.
  @inline(__always)
  func recordShape(at start: Int = 0, length: Int) -> RecordShape? {
    guard let key = recordKeyRange(at: start, length: length) else { return nil }
    var shape = RecordShape(key: key, value: key.upperBound..<(start &+ length))
    let flags = recordKinds(at: start).flags
    guard !flags.isDisjoint(with: .fields) else { return shape }
    if flags.contains(.base) { shape.base = start &+ RecordLayout.fixedLength }
    if flags.contains(.deadline) { shape.deadline = start &+ RecordLayout.deadline(flags) }
    if flags.contains(.open) {
      let count = start &+ RecordLayout.fixedLength &+ flags.bytesBeforeKey
      (shape.openCount, shape.open) = (Int(load(count, as: UInt16.self)), count &+ 2)
    }
    return shape
  }
}

/// Where the parts of a record are, in the memory that holds it.
struct RecordShape {
  /// Offset of the base dot; nil without one.
  var base: Int?
  /// Offset of the deadline; nil without one.
  var deadline: Int?
  /// Offset of the first open dot.
  var open = 0
  var openCount = 0
  var key: Range<Int>
  var value: Range<Int>
}

/// Kind, flags and type of a record: neighbours in it, so that one load has all.
struct RecordKinds {
  let rawValue: UInt32

  /// The number of the kind, known to this program or not.
  @inline(__always)
  var code: UInt8 { UInt8(truncatingIfNeeded: rawValue) }
  /// Nil for a kind that this program does not know.
  @inline(__always)
  var kind: RecordLayout.Kind? { RecordLayout.Kind(rawValue: code) }
  @inline(__always)
  var flags: RecordLayout.Flags { RecordLayout.Flags(rawValue: UInt8(truncatingIfNeeded: rawValue >> 8)) }
  @inline(__always)
  var type: ValueType { ValueType(rawValue: UInt8(truncatingIfNeeded: rawValue >> 16)) }

  @inline(__always)
  func isOf(_ kind: RecordLayout.Kind) -> Bool { code == kind.rawValue }
}
