/// One mapped file of the journal.
///
/// Invariant: the mapping covers the whole file as its header states it.
///
/// Owned by one engine: mutable state is touched only under its lock, the rest from any thread.
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
  var actors = SegmentActors()
  /// Its slot in the index; nil before it has one.
  var slot: Int?
  /// Counts its live bytes for all processes.
  var liveByteCounter: LiveByteCounter?
  /// Offsets of some positions, extended lazily when a delta scan begins.
  private var samples: [(position: UInt64, offset: Int)] = []
  var compaction = CompactionOutcome()
  /// Limit for ordinary appends; past it only appends that free space are allowed.
  let commonLimit: Int
  var defects = FileDefects.none
  /// Accumulated cost of the searches for records after damage.
  let searchCost = SearchCost()

  /// What earlier compactions of a segment in this process found. Protected by the engine's lock.
  struct CompactionOutcome {
    /// Bytes that no compaction would reclaim, as found by the one that wrote the segment: definitions,
    /// removals of local keys.
    var fixedBytes = 0
    /// False after a compaction of the segment has failed.
    var isWorthRepeating = true
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

  /// Bytes read from the beginning of a file for its header, including the two copies of the definition that
  /// most segments begin with.
  static let headBytes = SegmentHeader.length + AppendExtent.definitions

  /// Keeps the definition at the beginning from the bytes read for the header, unless it is encrypted.
  func readLeadingDefinition(in head: [UInt8]) {
    if cipher == nil { actors.readLeading(in: head, salt: header.salt) }
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
    let length = mapping.recordLength(at: offset)
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
