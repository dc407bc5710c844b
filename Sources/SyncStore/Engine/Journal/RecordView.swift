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
  var length: Int { Int(load(RecordLayout.length, as: UInt32.self)) }
  var end: Int {
    offset + RecordLayout.aligned(length) + (decrypted == nil ? 0 : EncryptedRecordLayout.overhead)
  }
  var durable: Int { Int(load(RecordLayout.durable, as: UInt32.self)) }
  /// Nil for a kind that this program does not know.
  var kind: RecordLayout.Kind? { RecordLayout.Kind(rawValue: load(RecordLayout.kind)) }
  var flags: RecordLayout.Flags { RecordLayout.Flags(rawValue: load(RecordLayout.flags)) }
  var type: ValueType { ValueType(rawValue: load(RecordLayout.type)) }
  var position: UInt64 { segment.header.basePosition + UInt64(load(RecordLayout.position, as: UInt32.self)) }
  var sequence: UInt64 { load(RecordLayout.sequence) }
  var stamp: Stamp { Stamp(rawValue: load(RecordLayout.stamp)) }
  var actorNumber: UInt16 { load(RecordLayout.actor) }
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
    let stored = load(RecordLayout.checksum, as: UInt32.self)
    let body = (offset + RecordLayout.length)..<(offset + length)
    return segment.mapping.withBytes(body) {
      UInt32(truncatingIfNeeded: XXH3.hash64($0, seed: segment.seed(at: offset))) == stored
    }
  }

  /// Ranges of the optional fields, the key and the value; nil if the lengths contradict each other, which
  /// only a program with another version of the format could have written under a valid checksum.
  var shape: Shape? {
    let (flags, end) = (flags, start + length)
    // A record may have been damaged since its checksum was verified.
    guard end <= fields.count else { return nil }
    var next = start + RecordLayout.fixedLength
    var shape = Shape()
    if flags.isDisjoint(with: .fields) {
      let keyEnd = next + Int(load(RecordLayout.keyLength, as: UInt16.self))
      guard keyEnd <= end else { return nil }
      (shape.key, shape.value) = (next..<keyEnd, keyEnd..<end)
      return shape
    }
    if flags.contains(.base) {
      shape.base = next
      next += RecordLayout.dotLength
    }
    if flags.contains(.deadline) {
      shape.deadline = next
      next += 8
    }
    if flags.contains(.open) {
      guard next + 2 <= end else { return nil }
      shape.openCount = Int(bytes.load(next, as: UInt16.self))
      shape.open = next + 2
      next += 2 + shape.openCount * RecordLayout.dotLength
    }
    let keyLength = Int(load(RecordLayout.keyLength, as: UInt16.self))
    guard next + keyLength <= end else { return nil }
    shape.key = next..<(next + keyLength)
    shape.value = (next + keyLength)..<end
    return shape
  }

  struct Shape {
    var base: Int?
    var deadline: Int?
    var open = 0
    var openCount = 0
    var key = 0..<0
    var value = 0..<0
  }

  /// True if the key is one of the store's own.
  func isReserved(_ shape: Shape) -> Bool {
    guard !shape.key.isEmpty else { return false }
    return withExtendedLifetime(self) { fields.load(shape.key.lowerBound) == ReservedKey.first }
  }

  func key(_ shape: Shape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.key) } }
  /// The key; nil if the record has none or cannot be read.
  var keyBytes: [UInt8]? { shape.map { key($0) } }
  func value(_ shape: Shape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.value) } }
  func deadline(_ shape: Shape) -> UInt64? { shape.deadline.map { bytes.load($0) } }

  func base(_ shape: Shape) -> Dot? { shape.base.flatMap { dot(at: $0, by: actor(numbered:)) } }

  func open(_ shape: Shape) -> [Dot] { open(shape, by: actor(numbered:)) }

  /// The open dots, with the actors as known at one time: the segment's own may be read only under the
  /// engine's lock.
  func open(_ shape: Shape, by actor: (UInt16) -> ActorID?) -> [Dot] {
    (0..<shape.openCount).compactMap { dot(at: shape.open + $0 * RecordLayout.dotLength, by: actor) }
  }

  /// The reference in a record of kind `.blob`.
  func blob(_ shape: Shape) -> BlobReference? {
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
    actor(bytes.load(offset)).map { Dot(actor: $0, sequence: bytes.load(offset + 2)) }
  }

  /// True if it names an author: a write, conflict losers included, or the purge of one.
  var namesActor: Bool {
    switch kind {
    case .value, .blob, .tombstone, .purge: true
    default: false
    }
  }

  /// The number stored at `field` of the record.
  func number(at field: Int) -> UInt16 { load(field) }

  /// The actor whose number is stored at `field`; nil if its definition was lost.
  func actor(at field: Int) -> ActorID? { actor(numbered: load(field)) }

  private func actor(numbered number: UInt16) -> ActorID? {
    segment.actors.actor(numbered: number)
  }

  @inline(__always)
  private func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ field: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    withExtendedLifetime(self) { fields.load(start + field) }
  }
}
