/// What the holder of the writers' mutex needs to append ordinary writes to the segment at the tail and to enter them into
/// the index: looked up once, not for each of them, and used without counting references.
///
/// A write is ordinary if its value lies in the journal, it has no deadline, and the record that it replaces, if there is
/// one, is an own one that names nobody else: then it names nobody, either. Segments that are written with `pwrite` have
/// none. What is not ordinary goes through `TransactionBuilder` and `Store.commit`, by the same rules.
final class FastPathWriter {
  /// Who writes.
  let actor: ActorID
  /// The one at the tail.
  let segment: Segment
  let keys: HashIndex
  private let segments: SlotSegments
  private let epochKey: SegmentCipher.EpochKey?
  /// What the actor is called in each segment; no number where it is not known.
  private let numbers: [UInt32]
  private let liveByteCounters: [IndexCheckpoint.LiveByteCounter?]
  private let target: WritableBytes
  private let slot: Int
  private let number: UInt16
  /// What the table of segments was when this was made.
  private let tableVersion: Int

  private static let unknown = UInt32.max

  /// Nil if there are no ordinary writes to the segment, or not yet.
  init?(_ segment: Segment, of actor: ActorID, index: JournalIndex, table: SegmentTable) {
    guard segment.isReadyToEncrypt, segment.target === segment.mapping, let slot = segment.slot,
      let number = segment.number(of: actor)
    else { return nil }
    epochKey = segment.epochKey
    (self.segment, self.actor, self.slot, self.number) = (segment, actor, slot, number)
    keys = index.hashIndex
    segments = SlotSegments(table)
    numbers = table.bySlot(Self.unknown) { $0.number(of: actor).map(UInt32.init) ?? Self.unknown }
    liveByteCounters = table.bySlot(nil) { $0.liveByteCounter }
    target = WritableBytes(segment.mapping)
    tableVersion = table.version
  }

  /// Is it still true?
  @inline(__always)
  func isValid(for actor: ActorID?, index: JournalIndex, table: SegmentTable) -> Bool {
    tableVersion == table.version && self.actor == actor && keys === index.hashIndex
  }

  // MARK: What is held

  /// What an ordinary write has to know of the record that it replaces.
  enum Held {
    /// There is none.
    case nothing
    /// An own one that names nobody.
    case own(ReplacedOwn)
    /// Another one: the write is not ordinary.
    case other
  }

  /// The place of an own record, in the index.
  struct ReplacedOwn {
    var ref: UInt64
    /// Bytes that it takes up.
    fileprivate var extent: Int
  }

  /// A write of the same append.
  func own(at bytes: Range<Int>) -> Held {
    .own(ReplacedOwn(ref: ref(at: bytes.lowerBound), extent: bytes.count))
  }

  /// What is held of a key. The index has all that was committed.
  @inline(__always)
  func held(_ key: Span<UInt8>, hash: UInt64) throws(StoreError) -> Held {
    var held = Held.nothing
    _ = try keys.find(hash) { place in
      guard let record = segments.record(atRef: place) else { return matches(key, at: place, &held) }
      guard record.isOf(key) else {
        // One that was damaged since may be of this key.
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

  /// The same for a record that is not in a plain segment. False if it is of another key.
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

  /// A write that is to be appended.
  struct RecordHeader {
    var kind = RecordLayout.Kind.value
    var flags: RecordLayout.Flags = []
    var type: ValueType
    var sequence: UInt64
    var stamp: Stamp
    var position: UInt64
    /// Up to where the segment is known durable.
    var durable: Int
  }

  /// The bytes that it takes up.
  @inline(__always)
  func extent(key: Int, value: Int) -> Int {
    RecordLayout.aligned(
      RecordLayout.fixedLength &+ key &+ value &+ (epochKey == nil ? 0 : EncryptedRecordLayout.overhead))
  }

  /// Stores a record at `offset`, where there is room for it. Nobody sees it before the tail is moved behind it. Returns where
  /// it ends.
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

  /// Composes the plain form elsewhere and seals it into its place. Returns its length there.
  @inline(never)
  private func storeEncrypted(
    _ heading: RecordHeader, key: Span<UInt8>, value: Span<UInt8>, length: Int, at offset: Int
  ) -> Int {
    guard let epochKey, let seal = segment.cipher else {
      preconditionFailure("an epoch is defined before anything is sealed under it")
    }
    let plain = SegmentCipher.room(length)
    encode(heading, key: key, value: value, in: WritableBytes(plain), length: length)
    return seal.encrypt(
      plain, length: length, place: offset, writer: epochKey, into: segment.mapping, at: offset)
  }

  /// Stores all fields but the checksum.
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

  // MARK: Entering

  /// What the index calls the record at `offset`.
  @inline(__always)
  func ref(at offset: Int) -> UInt64 { SegmentTable.ref(slot: slot, offset: offset) }

  /// Lets the index name the record at `bytes` for its key. Returns by how much there is more in sealed segments that does
  /// not count.
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
