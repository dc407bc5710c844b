/// One mapped file of the journal.
///
/// Invariants: the mapping covers the whole file as its header states it; `actors` holds what the definitions absorbed
/// so far say. Owned by one engine: what can change is touched under its lock alone, the rest by anybody.
final class Segment: @unchecked Sendable {
  let header: SegmentHeader
  let file: any StorageFile
  let mapping: Mapping
  /// Where records are put together: the mapping, or memory from which they are written to the file.
  let target: Mapping
  /// What seals its records; nil if they are plain.
  let seal: SegmentSeal?
  /// The epoch that this process seals under here; nil until it is defined.
  private(set) var sealer: SegmentSeal.Writer?
  /// Actors by their number in this segment; nil where a definition was lost.
  private(set) var actors: [ActorID?] = []
  /// The other way round, where there are many.
  private var numbers: [ActorID: UInt16] = [:]
  /// Its number in the index; nil before it has one.
  var slot: Int?
  /// Where its live bytes are counted for all processes.
  var account: Ledger.Account?
  /// Where some positions are: asked for when a round begins, and found by reading on from the last one.
  private var samples: [(position: UInt64, offset: Int)] = []
  /// Where the numbers of actors are defined; 0 where one is not.
  private(set) var definitions: [Int] = []
  /// Bytes that no compaction would gain, as the one that wrote it has found: definitions, ends of local keys.
  var fixedBytes = 0
  /// False after a compaction that could not be done.
  var isWorthCompacting = true
  /// Up to where anything may be appended; behind it only what gives space back.
  let commonLimit: Int
  /// The one asked for last: nearly always the same.
  private var recent: (actor: ActorID, number: UInt16)?
  /// Is one of the two copies of the header damaged?
  var headerDamaged = false

  init(
    header: SegmentHeader, file: any StorageFile, mapping: Mapping, seal: SegmentSeal? = nil,
    isWritten: Bool = false
  ) throws(StoreError) {
    (self.header, self.file, self.mapping, self.seal) = (header, file, mapping, seal)
    target = isWritten ? try .blank(mapping.count) : mapping
    commonLimit = header.isReserve ? 0 : mapping.count
  }

  var number: UInt32 { header.number }

  /// Is there room for the numbers of what is appended behind this position? What one transaction or one segment holds is far
  /// less than what is left then; only a position that somebody forged leaves none.
  func numbers(behind position: UInt64) -> Bool { position &- header.basePosition < 1 << 31 }

  /// Bytes of records that still count; what is left of the file is what compaction would gain.
  var liveBytes: Int {
    get { account?.live ?? 0 }
    set { account?.live = newValue }
  }

  /// What the index calls the record at `offset`.
  @inline(__always)
  func place(at offset: Int) -> UInt64 {
    guard let slot else { preconditionFailure("a segment has its slot before it has records that count") }
    return SegmentTable.place(slot: slot, offset: offset)
  }

  /// The number of `actor` here; nil if it has none yet.
  func number(of actor: ActorID) -> UInt16? {
    if let recent, recent.actor == actor { return recent.number }
    let found =
      actors.count > Self.fewActors ? numbers[actor] : actors.lastIndex(of: actor).map { UInt16($0) }
    guard let number = found else { return nil }
    recent = (actor, number)
    return number
  }

  /// So many are looked through.
  private static let fewActors = 16

  /// The actor with this number; nil if its definition was lost.
  @inline(__always)
  func actor(numbered number: UInt16) -> ActorID? {
    Int(number) < actors.count ? actors[Int(number)] : nil
  }

  /// The number that the next definition gives.
  var nextNumber: Int { actors.count }

  /// Takes in a definition.
  func define(_ actor: ActorID, as number: UInt16, at offset: Int) {
    while actors.count <= Int(number) {
      actors.append(nil)
      definitions.append(0)
    }
    if definitions[Int(number)] == 0 { definitions[Int(number)] = offset }
    actors[Int(number)] = actor
    recent = (actor, number)
    guard actors.count > Self.fewActors else { return }
    if numbers.isEmpty {
      for (number, actor) in actors.enumerated() { if let actor { numbers[actor] = UInt16(number) } }
    }
    numbers[actor] = number
  }

  private static let samplingInterval: UInt64 = 128
  /// Local records take no position, and may be large: where there are many members, each write of one is followed by a vector.
  private static let samplingBytes = 16 << 10

  /// An offset at or before which the record of `position` lies, or the end of the records, which is at `limit`.
  func start(of position: UInt64, limit: Int) -> Int {
    if (samples.last?.position ?? header.basePosition) < position { sample(upTo: position, limit: limit) }
    var (low, high) = (0, samples.count)
    while low < high {
      let middle = (low + high) / 2
      // Not the one of that very position: beaten writes bear the position of the record before them.
      if samples[middle].position < position { low = middle + 1 } else { high = middle }
    }
    return low > 0 ? samples[low - 1].offset : SegmentHeader.length
  }

  private func sample(upTo position: UInt64, limit: Int) {
    var walker = SegmentWalker(self, from: samples.last?.offset ?? SegmentHeader.length, limit: limit)
    while let step = walker.next() {
      guard case .record(let view) = step, view.isOfActor else { continue }
      if view.position >= (samples.last?.position ?? header.basePosition) + Self.samplingInterval
        || view.offset >= (samples.last?.offset ?? SegmentHeader.length) + Self.samplingBytes
      {
        samples.append((view.position, view.offset))
      }
      if view.position >= position { return }
    }
  }

  /// The seed of the checksum of a record at `offset`.
  func seed(at offset: Int) -> UInt64 { header.salt &+ UInt64(offset) }

  /// The record at `offset`, if one whole record of this very place is there and ends at `limit` or before. If it is
  /// sealed it is opened, unless `isSealed`: then only what stands in the clear may be read.
  /// `keeps` what it opens if this store keeps what is read.
  func record(at offset: Int, limit: Int, isSealed: Bool = false, keeps: Bool = false) -> RecordView? {
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let length = Int(mapping.load(offset + RecordLayout.length, as: UInt32.self))
    guard length >= RecordLayout.fixedLength, offset + length <= limit else { return nil }
    let view = RecordView(sealed: self, offset: offset)
    guard view.checksumHolds(length: length) else { return nil }
    guard seal != nil, !isSealed else { return view }
    return opened(at: offset, keeps: keeps)
  }

  /// The opened form of a sealed record; nil for what no writer of this store has put there.
  @inline(never)
  private func opened(at offset: Int, keeps: Bool) -> RecordView? {
    let view = RecordView(segment: self, offset: offset, keeps: keeps)
    return view.isReadable ? view : nil
  }

  /// The end of the record at `offset`, and its position: what may be read without opening it.
  func extent(at offset: Int) -> (end: Int, position: UInt64) {
    let view = RecordView(sealed: self, offset: offset)
    return (view.end, view.position)
  }

  /// Defines the epoch that this process seals under, at `offset`. Returns where what follows begins.
  func beginSealing(at offset: Int, durable: Int, position: UInt64) -> Int {
    sealer = seal?.define(
      at: offset, in: target, durable: durable, position: UInt32(position - header.basePosition))
    return offset + SealedLayout.definitions
  }

  /// What was stored from `offset` on did not get into the file: an epoch that is defined there is not.
  func undoSealing(from offset: Int) {
    guard let writer = sealer, writer.place >= offset else { return }
    seal?.forget(writer)
    sealer = nil
  }

  /// Can records be appended without a definition of this process's epoch before them?
  @inline(__always)
  var isReadyToSeal: Bool { seal == nil || sealer != nil }
}

/// A record in place, or, of a sealed one, its plain form. Its fields may be read once `checksumHolds` was seen.
struct RecordView {
  let segment: Segment
  let offset: Int
  /// The plain form of a sealed record.
  private let plain: Mapping?
  /// Those of `bytes`, without a reference that would be counted at each look: this view keeps them mapped.
  private let fields: MappedBytes

  /// Opens it, if it is sealed; `keeps` it then if this store keeps what is read.
  @inline(__always)
  init(segment: Segment, offset: Int, keeps: Bool = false) {
    (self.segment, self.offset) = (segment, offset)
    plain = segment.seal == nil ? nil : segment.seal?.open(segment.mapping, at: offset, keeps: keeps)
    fields = MappedBytes(plain ?? segment.mapping)
  }

  /// Does not open it: of a sealed record, what stands in the clear.
  @inline(__always)
  init(sealed segment: Segment, offset: Int) {
    (self.segment, self.offset) = (segment, offset)
    plain = nil
    fields = MappedBytes(segment.mapping)
  }

  /// Where the fields are: offsets in a `shape` are in these bytes.
  @inline(__always)
  var bytes: Mapping { plain ?? segment.mapping }
  /// Where the record begins in `bytes`.
  @inline(__always)
  var start: Int { plain == nil ? offset : 0 }

  /// False for a record in a sealed segment that could not be opened: nothing of it may be believed.
  var isReadable: Bool { segment.seal == nil || plain != nil }

  var location: Location { Location(segment: segment.number, offset: offset) }
  /// Bytes of the record, or of its plain form.
  var length: Int { Int(load(RecordLayout.length, as: UInt32.self)) }
  var end: Int {
    offset + RecordLayout.aligned(length) + (plain == nil ? 0 : SealedLayout.overhead)
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
  /// A write of a key, not a beaten one, and one whose author is known.
  var isWrite: Bool {
    switch kind {
    case .value, .blob, .tombstone: !flags.contains(.loser) && actor != nil
    default: false
    }
  }

  /// Does it, for a record of that length? Of a view that was not opened: the checksum is of the bytes as they are stored.
  /// Bytes may change between two looks: the length is read once.
  fileprivate func checksumHolds(length: Int) -> Bool {
    let stored = load(RecordLayout.checksum, as: UInt32.self)
    let body = (offset + RecordLayout.length)..<(offset + length)
    return segment.mapping.withBytes(body) {
      UInt32(truncatingIfNeeded: XXH3.hash64($0, seed: segment.seed(at: offset))) == stored
    }
  }

  /// Where the optional fields, the key and the value lie; nil if the lengths contradict each other, which only a
  /// program with another idea of the format could have written under a right checksum.
  var shape: Shape? {
    let (flags, end) = (flags, start + length)
    // A record may have been damaged since its checksum was seen.
    guard end <= fields.count else { return nil }
    var next = start + RecordLayout.fixedLength
    var shape = Shape()
    if flags.isDisjoint(with: .fields) {
      let behind = next + Int(load(RecordLayout.keyLength, as: UInt16.self))
      guard behind <= end else { return nil }
      (shape.key, shape.value) = (next..<behind, behind..<end)
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

  /// Is its key one of the store's own?
  func isReserved(_ shape: Shape) -> Bool {
    guard !shape.key.isEmpty else { return false }
    return withExtendedLifetime(self) { fields.load(shape.key.lowerBound) == ReservedKey.first }
  }

  func key(_ shape: Shape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.key) } }
  /// The key; nil if the record has none, or cannot be read.
  var keyBytes: [UInt8]? { shape.map { key($0) } }
  func value(_ shape: Shape) -> [UInt8] { withExtendedLifetime(self) { fields.bytes(shape.value) } }
  func deadline(_ shape: Shape) -> UInt64? { shape.deadline.map { bytes.load($0) } }

  func base(_ shape: Shape) -> Dot? { shape.base.flatMap { dot(at: $0, by: actor(numbered:)) } }

  func open(_ shape: Shape) -> [Dot] { open(shape, by: actor(numbered:)) }

  /// The same, with the actors as they were known at a moment: the segment's own are for the holder of the engine's lock.
  func open(_ shape: Shape, by actor: (UInt16) -> ActorID?) -> [Dot] {
    (0..<shape.openCount).compactMap { dot(at: shape.open + $0 * RecordLayout.dotLength, by: actor) }
  }

  /// The reference that a record of kind `.blob` holds.
  func blob(_ shape: Shape) -> BlobReference? {
    kind == .blob ? BlobReference(recorded: value(shape)) : nil
  }

  /// What a write that replaces it has to know; nil for one that is not a write, or contradicts itself.
  var replaced: Replaced? {
    guard let shape, let dot else { return nil }
    switch kind {
    case .value, .tombstone: break
    case .blob: guard shape.value.count >= RecordLayout.blobLength else { return nil }
    default: return nil
    }
    return Replaced(
      dot: dot, base: base(shape), open: shape.openCount > 0 ? open(shape) : [],
      isTombstone: kind == .tombstone, deadline: deadline(shape))
  }

  /// The record's fields; nil for one that is not a write, or contradicts itself.
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
      dot: dot, stamp: stamp, base: base(shape), open: open(shape), deadline: deadline(shape), type: type,
      key: key(shape), content: content, continues: flags.contains(.continues))
  }

  /// What a record of kind `.purge` says.
  var purge: Purge? {
    guard let shape, let version else { return nil }
    return Purge(
      key: key(shape), version: version, isParked: flags.contains(.parked),
      hadValue: flags.contains(.valued))
  }

  private func dot(at offset: Int, by actor: (UInt16) -> ActorID?) -> Dot? {
    actor(bytes.load(offset)).map { Dot(actor: $0, sequence: bytes.load(offset + 2)) }
  }

  /// Does it name an author: a write, beaten or not, or the purge of one?
  var isOfActor: Bool {
    switch kind {
    case .value, .blob, .tombstone, .purge: true
    default: false
    }
  }

  /// The number that stands at `field` of the record.
  func number(at field: Int) -> UInt16 { load(field) }

  /// The actor that has it; nil if its definition was lost.
  func actor(at field: Int) -> ActorID? { actor(numbered: load(field)) }

  private func actor(numbered number: UInt16) -> ActorID? {
    segment.actor(numbered: number)
  }

  @inline(__always)
  private func load<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ field: Int, as _: Integer.Type = Integer.self
  ) -> Integer {
    withExtendedLifetime(self) { fields.load(start + field) }
  }
}
