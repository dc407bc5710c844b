/// One mapped file of the journal.
///
/// Invariants: the mapping covers the whole file as its header states it; `definitions` holds what those absorbed so far
/// say. Owned by one engine: what can change is touched under its lock alone, the rest by anybody.
final class Segment: @unchecked Sendable {
  let header: SegmentHeader
  let file: any StorageFile
  let mapping: Mapping
  /// Where records are put together: the mapping, or memory from which they are written to the file.
  let target: Mapping
  /// What seals its records; nil if they are plain.
  let cipher: SegmentCipher?
  /// The epoch that this process seals under here; nil until it is defined.
  private(set) var epochKey: SegmentCipher.EpochKey?
  /// Those of actors, by the number that they give in this segment.
  private var definitions: [Definition] = []
  /// The one that it begins with, as it was read with the header; it counts once it is taken in.
  private var leading: LeadingDefinition?
  /// The other way round, where there are many.
  private var numbers: [ActorID: UInt16] = [:]
  /// Its number in the index; nil before it has one.
  var slot: Int?
  /// Where its live bytes are counted for all processes.
  var liveByteCounter: IndexCheckpoint.LiveByteCounter?
  /// Where some positions are: asked for when a round begins, and found by reading on from the last one.
  private var samples: [(position: UInt64, offset: Int)] = []
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
  /// Bytes by which its file was found shorter than its header says: they read as zeros.
  var missingBytes = 0
  /// The assumed end of a last segment whose file was cut within its records; nil for any other segment. Such a
  /// segment is a copy in memory, and nothing is appended to it.
  var truncatedEnd: Int?
  /// What was put right as it was opened, for people.
  var repairs: [String] = []
  /// What the search for records after damage has cost so far.
  let searchCost = SearchCost()

  private struct Definition {
    /// Nil where it was lost.
    var actor: ActorID?
    /// 0 where it was lost.
    var offset = 0
  }

  private struct LeadingDefinition {
    let actor: ActorID
    let number: UInt16
    /// Does it stand there twice, as it should?
    let isTwice: Bool
  }

  init(
    header: SegmentHeader, file: any StorageFile, mapping: Mapping, seal: SegmentCipher? = nil,
    usesPwrite: Bool = false
  ) throws(StoreError) {
    (self.header, self.file, self.mapping, self.cipher) = (header, file, mapping, seal)
    target = usesPwrite ? try .blank(mapping.count) : mapping
    commonLimit = header.isReserve ? 0 : mapping.count
  }

  /// Up to where what makes this claim may be appended.
  func limit(_ claim: SpaceClaim) -> Int {
    switch claim {
    case .ordinary: commonLimit
    case .reclaiming: header.isForCompaction ? 0 : mapping.count
    case .compaction: mapping.count
    }
  }

  var number: UInt32 { header.number }

  /// Is there room for the numbers of what is appended behind this position? What one transaction or one segment holds is far
  /// less than what is left then; only a position that somebody forged leaves none.
  func numbers(behind position: UInt64) -> Bool { position &- header.basePosition < 1 << 31 }

  /// Bytes of records that still count; what is left of the file is what compaction would gain.
  var liveBytes: Int {
    get { liveByteCounter?.live ?? 0 }
    set { liveByteCounter?.live = newValue }
  }

  /// What the index calls the record at `offset`.
  @inline(__always)
  func ref(at offset: Int) -> UInt64 {
    guard let slot else { preconditionFailure("a segment has its slot before it has records that count") }
    return SegmentTable.ref(slot: slot, offset: offset)
  }

  /// The number of `actor` here; nil if it has none yet.
  func number(of actor: ActorID) -> UInt16? {
    if let recent, recent.actor == actor { return recent.number }
    let found =
      definitions.count > Self.fewActors
      ? numbers[actor] : definitions.lastIndex { $0.actor == actor }.map { UInt16($0) }
    guard let number = found else { return nil }
    recent = (actor, number)
    return number
  }

  /// So many are looked through.
  private static let fewActors = 16

  /// The actor with this number; nil if its definition was lost.
  @inline(__always)
  func actor(numbered number: UInt16) -> ActorID? {
    Int(number) < definitions.count ? definitions[Int(number)].actor : nil
  }

  /// All actors by their numbers; nil where a definition was lost.
  var actors: [ActorID?] { definitions.map(\.actor) }

  /// Where actors are defined, in order.
  var definitionOffsets: [Int] { definitions.map(\.offset).filter { $0 > 0 }.sorted() }

  /// The number that the next definition gives.
  var nextNumber: Int { definitions.count }

  /// Takes in a definition.
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

  /// Bytes at the beginning of a file that are read for its header: with it comes the definition that most segments begin with, twice.
  static let headBytes = SegmentHeader.length + AppendExtent.definitions

  /// Keeps the definition at the beginning, from the first bytes of the file, which were read for the header: whoever goes on where
  /// another stopped need not have the kernel find that page of each segment.
  func readLeadingDefinition(in head: [UInt8]) {
    guard cipher == nil, let first = definition(at: SegmentHeader.length, in: head) else { return }
    let second = definition(at: SegmentHeader.length + Self.definitionBytes, in: head)
    leading = LeadingDefinition(
      actor: first.actor, number: first.number, isTwice: second.map { $0 == first } ?? false)
  }

  private static let definitionBytes = RecordLayout.aligned(RecordLayout.actorDefinitionLength)

  /// What the record there defines, if it is a whole one that defines an actor; nil otherwise.
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

  /// Takes in the definition at `offset`, if it is that one. False if it is to be looked for where it lies.
  func defineLeading(at offset: Int) -> Bool {
    guard let leading,
      offset == SegmentHeader.length
        || leading.isTwice && offset == SegmentHeader.length + Self.definitionBytes
    else { return false }
    define(leading.actor, as: leading.number, at: offset)
    return true
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

  /// The seed of the checksum of a record at `offset`.
  func seed(at offset: Int) -> UInt64 { header.salt &+ UInt64(offset) }

  /// The record at `offset`, if one whole record of this very place is there and ends at `limit` or before. If it is
  /// sealed it is opened, unless `isSealed`: then only what stands in the clear may be read.
  /// `keeps` what it opens if this store keeps what is read.
  func record(at offset: Int, limit: Int, isSealed: Bool = false, keeps: Bool = false) -> RecordView? {
    guard offset + RecordLayout.fixedLength <= limit else { return nil }
    let length = Int(mapping.load(offset + RecordLayout.length, as: UInt32.self))
    guard length >= RecordLayout.fixedLength, offset + length <= limit else { return nil }
    let view = RecordView(encrypted: self, offset: offset)
    guard view.checksumHolds(length: length) else { return nil }
    guard cipher != nil, !isSealed else { return view }
    return decrypted(at: offset, keeps: keeps)
  }

  /// The opened form of a sealed record; nil for what no writer of this store has put there.
  @inline(never)
  private func decrypted(at offset: Int, keeps: Bool) -> RecordView? {
    let view = RecordView(segment: self, offset: offset, keeps: keeps)
    return view.isReadable ? view : nil
  }

  /// The end of the record at `offset`, and its position: what may be read without opening it.
  func extent(at offset: Int) -> (end: Int, position: UInt64) {
    let view = RecordView(encrypted: self, offset: offset)
    return (view.end, view.position)
  }

  /// Defines the epoch that this process seals under, at `offset`. Returns where what follows begins.
  func beginEncryption(at offset: Int, durable: Int, position: UInt64) -> Int {
    epochKey = cipher?.define(
      at: offset, in: target, durable: durable, position: UInt32(position - header.basePosition))
    return offset + EncryptedRecordLayout.definitions
  }

  /// What was stored from `offset` on did not get into the file: an epoch that is defined there is not.
  func undoEncryption(from offset: Int) {
    guard let writer = epochKey, writer.place >= offset else { return }
    cipher?.forget(writer)
    epochKey = nil
  }

  /// Can records be appended without a definition of this process's epoch before them?
  @inline(__always)
  var isReadyToEncrypt: Bool { cipher == nil || epochKey != nil }
}
