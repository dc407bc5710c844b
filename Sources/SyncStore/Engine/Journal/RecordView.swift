/// A record in place or, if it is encrypted, its decrypted form. Its fields may be read only after
/// `checksumHolds`.
struct RecordView {
  let segment: Segment
  let offset: Int
  /// The decrypted form of an encrypted record.
  private let decrypted: Mapping?
  /// The bytes of `bytes`, without a reference that each access would count: this view keeps them mapped.
  private let fields: MappedBytes

  /// Decrypts the record if it is encrypted.
  @inline(__always)
  init(segment: Segment, offset: Int) {
    (self.segment, self.offset) = (segment, offset)
    decrypted = segment.cipher == nil ? nil : segment.cipher?.decrypt(segment.mapping, at: offset)
    fields = MappedBytes(decrypted ?? segment.mapping)
  }

  /// A view without decryption: of an encrypted record, only the cleartext fields may be read.
  @inline(__always)
  init(encrypted segment: Segment, offset: Int) {
    (self.segment, self.offset) = (segment, offset)
    decrypted = nil
    fields = MappedBytes(segment.mapping)
  }

  /// The memory of the fields: offsets in a `shape` refer to it.
  @inline(__always)
  var bytes: Mapping { decrypted ?? segment.mapping }
  /// Offset of the record in `bytes`.
  @inline(__always)
  var start: Int { decrypted == nil ? offset : 0 }

  /// False for an encrypted record that could not be decrypted: none of its fields may be trusted.
  var isReadable: Bool { segment.cipher == nil || decrypted != nil }

  var location: Location { Location(segment: segment.number, offset: offset) }
  /// Bytes of the record, or of its decrypted form.
  var length: Int { fixed { $0.recordLength(at: $1) } }
  var end: Int {
    offset + RecordLayout.aligned(length) + (decrypted == nil ? 0 : EncryptedRecordLayout.overhead)
  }
  var durable: Int { fixed { $0.recordDurable(at: $1) } }
  /// Nil for a kind that this program does not know.
  var kind: RecordLayout.Kind? { kinds.kind }
  var flags: RecordLayout.Flags { kinds.flags }
  var type: ValueType { kinds.type }
  private var kinds: RecordKinds { fixed { $0.recordKinds(at: $1) } }
  var position: UInt64 { segment.header.basePosition + fixed { $0.recordPosition(at: $1) } }
  var sequence: UInt64 { fixed { $0.recordSequence(at: $1) } }
  var stamp: Stamp { fixed { $0.recordStamp(at: $1) } }
  var actorNumber: UInt16 { fixed { $0.recordActorAndKey(at: $1).actor } }
  /// Nil if the definition of the number was lost.
  var actor: ActorID? { actor(numbered: actorNumber) }
  var dot: Dot? { actor.map { Dot(actor: $0, sequence: sequence) } }
  var version: Version? { dot.map { Version(stamp: stamp, dot: $0) } }
  /// True for a write of a key that is no conflict loser and whose author is known.
  var isWrite: Bool {
    switch kind {
    case .value, .blob, .tombstone: !flags.contains(.loser) && actor != nil
    default: false
    }
  }

  /// Verifies the checksum for a record of that length. Only for a view that was not decrypted: the checksum
  /// covers the stored bytes. Bytes may change between two reads, so the length is read once.
  func checksumHolds(length: Int) -> Bool {
    let stored = fixed { $0.recordChecksum(at: $1) }
    let body = (offset + RecordLayout.length)..<(offset + length)
    return segment.mapping.withBytes(body) {
      UInt32(truncatingIfNeeded: XXH3.hash64($0, seed: segment.seed(at: offset))) == stored
    }
  }

  /// Ranges of the optional fields, the key and the value; nil if the lengths contradict each other.
  var shape: RecordShape? {
    let length = length
    // A record may have been damaged since its checksum was verified.
    guard start + length <= fields.count else { return nil }
    return fixed { $0.recordShape(at: $1, length: length) }
  }

  /// True if the key is one of the store's own.
  func isReserved(_ shape: RecordShape) -> Bool {
    guard !shape.key.isEmpty else { return false }
    return withExtendedLifetime(self) { fields.load(shape.key.lowerBound) == ReservedKey.first }
  }

  func key(_ shape: RecordShape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.key) } }
  /// The key; nil if the record has none or cannot be read.
  var keyBytes: [UInt8]? { shape.map { key($0) } }
  func value(_ shape: RecordShape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.value) } }
  func deadline(_ shape: RecordShape) -> UInt64? { shape.deadline.map { bytes.load($0) } }

  func base(_ shape: RecordShape) -> Dot? { shape.base.flatMap { dot(at: $0, by: actor(numbered:)) } }

  func open(_ shape: RecordShape) -> [Dot] { open(shape, by: actor(numbered:)) }

  /// The open dots, with the actors as known at one time: the segment's own may be read only under the
  /// engine's lock.
  func open(_ shape: RecordShape, by actor: (UInt16) -> ActorID?) -> [Dot] {
    (0..<shape.openCount).compactMap { dot(at: shape.open + $0 * RecordLayout.dotLength, by: actor) }
  }

  /// The reference in a record of kind `.blob`.
  func blob(_ shape: RecordShape) -> BlobReference? {
    kind == .blob ? BlobReference(recorded: value(shape)) : nil
  }

  /// The fields that an overwrite needs; nil if the record is not a write or its fields contradict each
  /// other.
  var replaced: ReplacedRecord? {
    guard let shape, let dot else { return nil }
    switch kind {
    case .value, .tombstone: break
    case .blob: guard shape.value.count >= RecordLayout.blobLength else { return nil }
    default: return nil
    }
    return ReplacedRecord(
      dot: dot, base: base(shape), open: shape.openCount > 0 ? open(shape) : [],
      isTombstone: kind == .tombstone, deadline: deadline(shape))
  }

  /// The record's fields; nil if it is not a write or they contradict each other.
  func decoded() -> Record? {
    guard let shape, let dot else { return nil }
    let content: Record.Content
    switch kind {
    case .value: content = .inline(value(shape))
    case .tombstone: content = .tombstone
    case .blob:
      guard let blob = blob(shape) else { return nil }
      content = .blob(blob)
    default: return nil
    }
    return Record(
      version: Version(stamp: stamp, dot: dot), context: CausalContext(base: base(shape), open: open(shape)),
      deadline: deadline(shape), type: type, key: key(shape), content: content,
      continues: flags.contains(.continues))
  }

  /// The purge that a record of kind `.purge` states.
  var purge: Purge? {
    guard let shape, let version else { return nil }
    return Purge(
      key: key(shape), version: version, isParked: flags.contains(.parked),
      hadValue: flags.contains(.valued))
  }

  private func dot(at offset: Int, by actor: (UInt16) -> ActorID?) -> Dot? {
    let (number, sequence) = bytes.recordDot(at: offset)
    return actor(number).map { Dot(actor: $0, sequence: sequence) }
  }

  /// True if it names an author: a write, conflict losers included, or the purge of one.
  var namesActor: Bool {
    switch kind {
    case .value, .blob, .tombstone, .purge: true
    default: false
    }
  }

  /// The number stored at `field` of the record.
  func number(at field: Int) -> UInt16 { fixed { $0.load($1 + field) } }

  /// The actor whose number is stored at `field`; nil if its definition was lost.
  func actor(at field: Int) -> ActorID? { actor(numbered: number(at: field)) }

  private func actor(numbered number: UInt16) -> ActorID? {
    segment.actors.actor(numbered: number)
  }

  /// Reads from the memory of the record, which begins at the given offset there.
  @inline(__always)
  private func fixed<Field>(_ read: (MappedBytes, _ start: Int) -> Field) -> Field {
    withExtendedLifetime(self) { read(fields, start) }
  }
}

extension MappedBytes: RecordBytes {}
extension Mapping: RecordBytes {}
extension RawSpan: RecordBytes {}
extension [UInt8]: RecordBytes {}
