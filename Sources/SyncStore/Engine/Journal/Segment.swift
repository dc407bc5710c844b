/// One mapped file of the journal.
///
/// Invariants: the mapping covers the whole file as its header states it; `definitions` holds the actor
/// definitions replayed so far. Owned by one engine: mutable state is touched only under its lock, the rest
/// from any thread.
final class Segment: @unchecked Sendable {
  let header: SegmentHeader
  let file: any StorageFile
  let mapping: Mapping
  /// Where records are encoded: the mapping, or memory that is then written to the file with `pwrite`.
  let target: Mapping
  /// Encrypts and decrypts the records; nil if they are not encrypted.
  let cipher: SegmentCipher?
  /// The epoch key that this process encrypts with in this segment; nil until its epoch is defined.
  private(set) var epochKey: SegmentCipher.EpochKey?
  /// Actor definitions, by the number that they assign in this segment.
  private var definitions: [Definition] = []
  /// The definition at the beginning, as read with the header; it counts once it is replayed.
  private var leading: LeadingDefinition?
  /// Actor to number, maintained only where there are many actors.
  private var numbers: [ActorID: UInt16] = [:]
  /// Its slot in the index; nil before it has one.
  var slot: Int?
  /// Counts its live bytes for all processes.
  var liveByteCounter: LiveByteCounter?
  /// Offsets of some positions, extended lazily when a delta scan begins.
  private var samples: [(position: UInt64, offset: Int)] = []
  /// Bytes that no compaction would reclaim, as found by the compaction that wrote it: definitions, removals
  /// of local keys.
  var fixedBytes = 0
  /// False after a compaction of it has failed.
  var isWorthCompacting = true
  /// Limit for ordinary appends; past it only appends that free space are allowed.
  let commonLimit: Int
  /// The last lookup: nearly always the same actor.
  private var recent: (actor: ActorID, number: UInt16)?
  /// True if one of the two copies of the header is damaged.
  var headerDamaged = false
  /// Bytes by which its file was found shorter than its header states; they read as zeros.
  var missingBytes = 0
  /// The assumed end of a last segment whose file was truncated within its records; nil for any other
  /// segment. Such a segment is a copy in memory, and nothing is appended to it.
  var truncatedEnd: Int?
  /// Repairs made when it was opened, as text for people.
  var repairs: [String] = []
  /// Accumulated cost of the searches for records after damage.
  let searchCost = SearchCost()

  private struct Definition {
    /// Nil if the definition was lost.
    var actor: ActorID?
    /// 0 if the definition was lost.
    var offset = 0
  }

  private struct LeadingDefinition {
    let actor: ActorID
    let number: UInt16
    /// True if both copies of the definition are there, as they should be.
    let isTwice: Bool
  }

  init(
    header: SegmentHeader, file: any StorageFile, mapping: Mapping, cipher: SegmentCipher? = nil,
    usesPwrite: Bool = false
  ) throws(StoreError) {
    (self.header, self.file, self.mapping, self.cipher) = (header, file, mapping, cipher)
    target = usesPwrite ? try .blank(mapping.count) : mapping
    commonLimit = header.isReserve ? 0 : mapping.count
  }

  /// The offset up to which an append with this claim may write.
  func limit(_ claim: SpaceClaim) -> Int {
    switch claim {
    case .ordinary: commonLimit
    case .reclaiming: header.isForCompaction ? 0 : mapping.count
    case .compaction: mapping.count
    }
  }

  var number: UInt32 { header.number }

  /// True if the relative positions of records appended after `position` fit. One transaction or one segment
  /// needs far less than what is left; only a forged position leaves none.
  func numbers(after position: UInt64) -> Bool { position &- header.basePosition < 1 << 31 }

  /// Bytes of live records; compaction would reclaim the rest of the file.
  var liveBytes: Int {
    get { liveByteCounter?.live ?? 0 }
    set { liveByteCounter?.live = newValue }
  }

  /// The record ref by which the index names the record at `offset`.
  @inline(__always)
  func ref(at offset: Int) -> UInt64 {
    guard let slot else { preconditionFailure("a segment has its slot before it has records that count") }
    return SegmentTable.ref(slot: slot, offset: offset)
  }

  /// The number of `actor` in this segment; nil if it has none yet.
  func number(of actor: ActorID) -> UInt16? {
    if let recent, recent.actor == actor { return recent.number }
    let found =
      definitions.count > Self.fewActors
      ? numbers[actor] : definitions.lastIndex { $0.actor == actor }.map { UInt16($0) }
    guard let number = found else { return nil }
    recent = (actor, number)
    return number
  }

  /// Up to this many actors are searched linearly.
  private static let fewActors = 16

  /// The actor with this number; nil if its definition was lost.
  @inline(__always)
  func actor(numbered number: UInt16) -> ActorID? {
    Int(number) < definitions.count ? definitions[Int(number)].actor : nil
  }

  /// All actors by number; nil where a definition was lost.
  var actors: [ActorID?] { definitions.map(\.actor) }

  /// Offsets of the actor definitions, in order.
  var definitionOffsets: [Int] { definitions.map(\.offset).filter { $0 > 0 }.sorted() }

  /// The number that the next definition assigns.
  var nextNumber: Int { definitions.count }

  /// Records an actor definition.
  func define(_ actor: ActorID, as number: UInt16, at offset: Int) {
    while definitions.count <= Int(number) { definitions.append(Definition()) }
    if definitions[Int(number)].offset == 0 { definitions[Int(number)].offset = offset }
    definitions[Int(number)].actor = actor
    recent = (actor, number)
    guard definitions.count > Self.fewActors else { return }
    if numbers.isEmpty {
      for (number, defined) in definitions.enumerated() {
        if let actor = defined.actor { numbers[actor] = UInt16(number) }
      }
    }
    numbers[actor] = number
  }

  /// Bytes read from the beginning of a file for its header, including the two copies of the definition that
  /// most segments begin with.
  static let headBytes = SegmentHeader.length + AppendExtent.definitions

  /// Keeps the definition at the beginning from the bytes read for the header, so that resuming from an index
  /// checkpoint need not fault in that page of every segment.
  func readLeadingDefinition(in head: [UInt8]) {
    guard cipher == nil, let first = definition(at: SegmentHeader.length, in: head) else { return }
    let second = definition(at: SegmentHeader.length + Self.definitionBytes, in: head)
    leading = LeadingDefinition(
      actor: first.actor, number: first.number, isTwice: second.map { $0 == first } ?? false)
  }

  private static let definitionBytes = RecordLayout.aligned(RecordLayout.actorDefinitionLength)

  /// The actor that the record at `start` defines; nil unless it is a whole actor definition.
  private func definition(at start: Int, in bytes: [UInt8]) -> (actor: ActorID, number: UInt16)? {
    let (key, end) = (start + RecordLayout.fixedLength, start + RecordLayout.actorDefinitionLength)
    guard bytes.count >= end,
      bytes.load(start + RecordLayout.length, as: UInt32.self) == UInt32(end - start),
      bytes[start + RecordLayout.kind] == RecordLayout.Kind.actor.rawValue,
      bytes[start + RecordLayout.flags] == 0,
      bytes.load(start + RecordLayout.keyLength, as: UInt16.self) == UInt16(end - key),
      case let body = bytes.span.extracting(start + RecordLayout.length..<end),
      UInt32(truncatingIfNeeded: XXH3.hash64(body, seed: seed(at: start)))
        == bytes.load(start + RecordLayout.checksum),
      let actor = ActorID(bytes: bytes[key..<end])
    else { return nil }
    return (actor, bytes.load(start + RecordLayout.actor))
  }

  /// Applies the leading definition if it is the one at `offset`. Returns false if the record itself must be
  /// read.
  func defineLeading(at offset: Int) -> Bool {
    guard let leading,
      offset == SegmentHeader.length
        || leading.isTwice && offset == SegmentHeader.length + Self.definitionBytes
    else { return false }
    define(leading.actor, as: leading.number, at: offset)
    return true
  }

  private static let samplingInterval: UInt64 = 128
  /// A sample is also taken after this many bytes: local records take no position and may be large (with many
  /// members, each write of one is followed by a vector).
  private static let samplingBytes = 16 << 10

  /// An offset at or before the record of `position`, or the end of the records, which is at `limit`.
  func start(of position: UInt64, limit: Int) -> Int {
    if (samples.last?.position ?? header.basePosition) < position { sample(upTo: position, limit: limit) }
    var (low, high) = (0, samples.count)
    while low < high {
      let middle = (low + high) / 2
      // Not a sample of exactly that position: conflict losers bear the position of the record before them.
      if samples[middle].position < position { low = middle + 1 } else { high = middle }
    }
    return low > 0 ? samples[low - 1].offset : SegmentHeader.length
  }

  private func sample(upTo position: UInt64, limit: Int) {
    var walker = ResyncingRecordIterator(
      self, from: samples.last?.offset ?? SegmentHeader.length, limit: limit)
    while let step = walker.next() {
      guard case .record(let view) = step, view.namesActor else { continue }
      if view.position >= (samples.last?.position ?? header.basePosition) + Self.samplingInterval
        || view.offset >= (samples.last?.offset ?? SegmentHeader.length) + Self.samplingBytes
      {
        samples.append((view.position, view.offset))
      }
      if view.position >= position { return }
    }
  }

  /// The checksum seed of a record at `offset`.
  func seed(at offset: Int) -> UInt64 { header.salt &+ UInt64(offset) }

  /// The record at `offset`; nil unless one whole record of exactly this offset is there and ends at `limit`
  /// or before. It is decrypted if needed. With `leavesEncrypted`, it is not: then only its cleartext fields
  /// may be read.
  func record(at offset: Int, limit: Int, leavesEncrypted: Bool = false) -> RecordView? {
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let length = Int(mapping.load(offset + RecordLayout.length, as: UInt32.self))
    guard length >= RecordLayout.fixedLength, offset + length <= limit else { return nil }
    let view = RecordView(encrypted: self, offset: offset)
    guard view.checksumHolds(length: length) else { return nil }
    guard cipher != nil, !leavesEncrypted else { return view }
    return decrypted(at: offset)
  }

  /// Decrypts a record; nil for bytes that no writer of this store has put there.
  @inline(never)
  private func decrypted(at offset: Int) -> RecordView? {
    let view = RecordView(segment: self, offset: offset)
    return view.isReadable ? view : nil
  }

  /// The end and the position of the record at `offset`, both readable without decryption.
  func extent(at offset: Int) -> (end: Int, position: UInt64) {
    let view = RecordView(encrypted: self, offset: offset)
    return (view.end, view.position)
  }

  /// Defines this process's epoch at `offset`. Returns where the next record begins.
  func beginEncryption(at offset: Int, durable: Int, position: UInt64) -> Int {
    epochKey = cipher?.define(
      at: offset, in: target, durable: durable, position: UInt32(position - header.basePosition))
    return offset + EncryptedRecordLayout.definitions
  }

  /// Undoes an epoch definition at or after `offset` whose bytes did not get into the file.
  func undoEncryption(from offset: Int) {
    guard let writer = epochKey, writer.place >= offset else { return }
    cipher?.forget(writer)
    epochKey = nil
  }

  /// True if records can be appended without defining this process's epoch first.
  @inline(__always)
  var isReadyToEncrypt: Bool { cipher == nil || epochKey != nil }
}
