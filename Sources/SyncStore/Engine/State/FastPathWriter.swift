/// Appends and indexes simple records in the active segment, for the holder of the writers' mutex. All
/// lookups are done once, not per write, and no references are counted.
///
/// A write takes the fast path if its value is inline, it has no deadline, and the record that it replaces,
/// if any, is an own one without optional fields such as the base: then the new record needs no base either.
/// Segments written with `pwrite` have no fast path. All other writes go through `TransactionBuilder` and
/// `Store.commit`, by the same rules.
final class FastPathWriter {
  /// The actor that writes.
  let actor: ActorID
  /// The active segment.
  let segment: Segment
  let keys: HashIndex
  private let segments: SlotSegments
  private let epochKey: SegmentCipher.EpochKey?
  /// Number of the actor in each segment, by slot; `unknown` where it has none.
  private let numbers: [UInt32]
  private let liveByteCounters: [LiveByteCounter?]
  private let target: WritableBytes
  private let slot: Int
  private let number: UInt16
  /// Version of the segment table when this was made.
  private let tableVersion: Int

  private static let unknown = UInt32.max

  /// Nil if the segment does not allow the fast path, or not yet.
  init?(_ segment: Segment, of actor: ActorID, index: JournalIndex, table: SegmentTable) {
    guard segment.isReadyToEncrypt, segment.target === segment.mapping, let slot = segment.slot,
      let number = segment.actors.number(of: actor)
    else { return nil }
    epochKey = segment.epochKey
    (self.segment, self.actor, self.slot, self.number) = (segment, actor, slot, number)
    keys = index.hashIndex
    segments = SlotSegments(table)
    numbers = table.bySlot(Self.unknown) { $0.actors.number(of: actor).map(UInt32.init) ?? Self.unknown }
    liveByteCounters = table.bySlot(nil) { $0.liveByteCounter }
    target = WritableBytes(segment.mapping)
    tableVersion = table.version
  }

  /// Whether everything looked up at creation still holds.
  @inline(__always)
  func isValid(for actor: ActorID?, index: JournalIndex, table: SegmentTable) -> Bool {
    tableVersion == table.version && self.actor == actor && keys === index.hashIndex
  }

  // MARK: Held record

  /// The record that a fast-path write replaces.
  enum Held {
    /// The key is not held.
    case nothing
    /// An own record without optional fields.
    case own(ReplacedOwn)
    /// Any other record: the write needs the general path.
    case other
  }

  /// Index reference and length of an own record.
  struct ReplacedOwn {
    var ref: UInt64
    /// Length of the record in bytes.
    fileprivate var extent: Int
  }

  /// A write of the same append.
  func own(at bytes: Range<Int>) -> Held {
    .own(ReplacedOwn(ref: ref(at: bytes.lowerBound), extent: bytes.count))
  }

  /// The record held of a key. The index must cover everything committed.
  @inline(__always)
  func held(_ key: Span<UInt8>, hash: UInt64) throws(StoreError) -> Held {
    var held = Held.nothing
    _ = try keys.find(hash) { place in
      guard let record = segments.record(atRef: place) else { return matches(key, at: place, &held) }
      guard record.isOf(key) else {
        // A record damaged since may have this key.
        if record.isWhole { return false }
        held = .other
        return true
      }
      let slot = SegmentTable.slot(ofRef: place)
      guard slot < numbers.count, numbers[slot] == UInt32(record.actorNumber), !record.hasFields,
        record.isWhole
      else {
        held = .other
        return true
      }
      held = .own(
        ReplacedOwn(ref: place, extent: RecordLayout.aligned(record.bytes.count)))
      return true
    }
    return held
  }

  /// Decides for a record outside unencrypted segments. False if it has another key.
  @inline(never)
  private func matches(_ key: Span<UInt8>, at place: UInt64, _ held: inout Held) -> Bool {
    held = .other
    let slot = SegmentTable.slot(ofRef: place)
    var opened: Mapping?
    defer { withExtendedLifetime(opened) {} }
    guard let record = segments.record(atRef: place, opened: &opened), record.seed == nil else {
      return true
    }
    guard record.isOf(key) else {
      held = .nothing
      return false
    }
    if numbers[slot] == UInt32(record.actorNumber), !record.hasFields {
      held = .own(
        ReplacedOwn(
          ref: place, extent: RecordLayout.aligned(record.bytes.count + EncryptedRecordLayout.overhead)))
    }
    return true
  }

  // MARK: Appending

  /// Header fields of a record to be appended.
  struct RecordHeader {
    var kind = RecordLayout.Kind.value
    var flags: RecordLayout.Flags = []
    var type: ValueType
    var sequence: UInt64
    var stamp: Stamp
    var position: UInt64
    /// Durable offset of the segment.
    var durable: Int
  }

  /// Length of a record in bytes.
  @inline(__always)
  func extent(key: Int, value: Int) -> Int {
    RecordLayout.aligned(
      RecordLayout.fixedLength &+ key &+ value &+ (epochKey == nil ? 0 : EncryptedRecordLayout.overhead))
  }

  /// Stores a record at `offset`, where there must be room, and returns its end. It is invisible until the
  /// tail is moved past it.
  @inline(__always)
  func store(_ heading: RecordHeader, key: Span<UInt8>, value: Span<UInt8>, at offset: Int) -> Int {
    let end = offset &+ extent(key: key.count, value: value.count)
    let record = target.extracting(offset..<end)
    var length = RecordLayout.fixedLength &+ key.count &+ value.count
    if epochKey == nil {
      encode(heading, key: key, value: value, in: record, length: length)
    } else {
      length = storeEncrypted(heading, key: key, value: value, length: length, at: offset)
    }
    record.close(length: length, seed: segment.header.salt &+ UInt64(truncatingIfNeeded: offset))
    return end
  }

  /// Encodes the record in a scratch buffer and encrypts it into its place. Returns the encrypted length.
  @inline(never)
  private func storeEncrypted(
    _ heading: RecordHeader, key: Span<UInt8>, value: Span<UInt8>, length: Int, at offset: Int
  ) -> Int {
    guard let epochKey, let cipher = segment.cipher else {
      preconditionFailure("an epoch is defined before anything is encrypted under it")
    }
    let plain = SegmentCipher.room(length)
    encode(heading, key: key, value: value, in: WritableBytes(plain), length: length)
    return cipher.encrypt(
      plain, length: length, place: offset, writer: epochKey, into: segment.mapping, at: offset)
  }

  /// Stores all fields except the checksum.
  @inline(__always)
  private func encode(
    _ heading: RecordHeader, key: Span<UInt8>, value: Span<UInt8>, in record: WritableBytes, length: Int
  ) {
    FixedPart(
      kind: heading.kind, flags: heading.flags, type: heading.type, actor: number,
      keyCount: UInt16(truncatingIfNeeded: key.count),
      position: heading.position &- segment.header.basePosition, sequence: heading.sequence,
      stamp: heading.stamp, durable: heading.durable
    ).store(in: record, length: length)
    record.store(key, at: RecordLayout.fixedLength)
    record.store(value, at: RecordLayout.fixedLength &+ key.count)
  }

  // MARK: Indexing

  /// Record ref of the record at `offset`.
  @inline(__always)
  func ref(at offset: Int) -> UInt64 { SegmentTable.ref(slot: slot, offset: offset) }

  /// Points the index to the record at `bytes`. Returns the dead bytes that this adds to closed segments.
  @inline(__always)
  func indexWrite(_ hash: UInt64, bytes: Range<Int>, replacing held: Held) throws(StoreError) -> Int {
    let place = ref(at: bytes.lowerBound)
    var dead = 0
    if case .own(let old) = held {
      guard try keys.replace(hash, old.ref, with: place) else {
        throw StoreError(.damaged, "does not find what it has found: it is to be built anew")
      }
      let slot = SegmentTable.slot(ofRef: old.ref)
      liveByteCounters[slot]?.live -= old.extent
      if slot != self.slot { dead = old.extent }
    } else {
      try keys.insert(hash, place)
    }
    liveByteCounters[slot]?.live += bytes.count
    return dead
  }
}
