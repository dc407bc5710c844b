/// The fields at the beginning of an unencrypted record, without checksum and length.
struct FixedPart {
  var kind: RecordLayout.Kind
  var flags: RecordLayout.Flags
  var type: ValueType
  /// The number of its author in the segment.
  var actor: UInt16
  var keyCount: UInt16
  /// Distance from the base position of the segment.
  var position: UInt64
  var sequence: UInt64
  var stamp: Stamp
  /// Offset up to which the segment is known durable.
  var durable: Int

  /// Stores the fields at the beginning of a record of `length` bytes.
  @inline(__always)
  func store(in record: WritableBytes, length: Int) {
    let small =
      UInt32(kind.rawValue) | UInt32(flags.rawValue) << 8 | UInt32(type.rawValue) << 16
    record.store(UInt32(truncatingIfNeeded: length), at: RecordLayout.length)
    record.store(UInt32(truncatingIfNeeded: durable), at: RecordLayout.durable)
    record.store(small, at: RecordLayout.kind)
    record.store(UInt32(actor) | UInt32(keyCount) << 16, at: RecordLayout.actor)
    record.store(UInt32(truncatingIfNeeded: position), at: RecordLayout.position)
    record.store(sequence, at: RecordLayout.sequence)
    record.store(stamp.rawValue, at: RecordLayout.stamp)
  }
}
