package import Replication
package import SyncStore

/// An in-memory replica: the rules of rounds, cursors and resolution (R6, R9, R10) without journal, files or
/// clock. All its content counts as durable.
package final class MemoryReplica {
  /// An error that a damaged or hostile driver may report.
  package struct Failure: Error {
    /// The peer knows writes that this copy never made.
    package let isRolledBack: Bool
    /// The reason.
    package let description: String
  }

  /// An outgoing round.
  package struct Round {
    /// The message that will close it.
    package let close: RoundClose
    fileprivate var records: [PositionedRecord]
    fileprivate var next = 0
    /// Number of records.
    package var count: Int { records.count }
  }

  package let store: StoreID
  package private(set) var actor: ActorID
  package private(set) var sequence: UInt64 = 0
  package private(set) var vector = VersionVector()
  package private(set) var position: UInt64 = 0
  package private(set) var held: [[UInt8]: Record] = [:]
  package private(set) var cursors: [ActorID: Cursor] = [:]
  package private(set) var conflicts: [Record] = []
  /// Complete blobs.
  package var blobs: [BlobHash: [UInt8]] = [:]
  /// Prefixes of incomplete blobs.
  package var partials: [BlobHash: [UInt8]] = [:]
  /// Chunks for blobs being assembled, by offset.
  package var found: [BlobHash: [UInt64: [UInt8]]] = [:]
  /// Whether blobs may share chunks.
  package var looksForKin = false
  /// The wall clock, in milliseconds since 1970.
  package var wall: UInt64 = 1_700_000_000_000
  /// How many round closes extended the vector.
  package private(set) var closings = 0
  /// How many times it took a new actor.
  package private(set) var rebirths = 0
  /// Number of records appended because a peer sent them.
  package private(set) var takenRecords = 0
  private var log: [PositionedRecord] = []
  private var marks: Set<RoundMark> = []
  private var lastMark: (mark: RoundMark, position: UInt64)?
  private var clock = HybridClock()
  private var random: SplitMix64

  /// An empty copy of `store`.
  package init(store: StoreID, seed: UInt64) {
    self.store = store
    random = SplitMix64(seed: seed)
    actor = ActorID(bytes: random.bytes(16))!
  }

  /// A clone with the same state and actor, such as a restored machine image.
  package func image() -> MemoryReplica {
    let other = MemoryReplica(store: store, seed: random.next())
    (other.actor, other.sequence, other.vector, other.position) = (actor, sequence, vector, position)
    (other.held, other.cursors, other.log, other.marks) = (held, cursors, log, marks)
    (other.lastMark, other.clock, other.blobs, other.wall) = (lastMark, clock, blobs, wall)
    return other
  }

  // MARK: Writing

  /// A local write. A nil value deletes.
  package func put(_ key: String, _ value: [UInt8]?) {
    write(Array(key.utf8), value.map(Record.Content.inline) ?? .tombstone)
  }

  /// A local write of a large value.
  package func put(_ key: String, blob value: [UInt8]) {
    let hash = BlobHash(bytes: SHA256.hash(value))!
    blobs[hash] = value
    write(Array(key.utf8), .blob(BlobReference(hash: hash, size: UInt64(value.count))))
  }

  private func write(_ key: [UInt8], _ content: Record.Content) {
    sequence += 1
    vector[actor] = sequence
    let old = held[key]
    let base = old?.dot.actor == actor ? old?.base : old?.dot
    let open = old.map { [$0.dot] + $0.open }?.filter { !vector.covers($0) } ?? []
    let stamp = clock.tick(wall: wall)!
    let record = Record(
      version: Version(stamp: stamp, dot: Dot(actor: actor, sequence: sequence)),
      context: CausalContext(base: base, open: open), key: key, content: content)
    append(record)
    held[key] = record
  }

  private func append(_ record: Record) {
    position += 1
    log.append(PositionedRecord(position: position, record: record))
  }

  // MARK: Requests of a session

  package var summary: ReplicaSummary {
    ReplicaSummary(
      store: store, actor: actor, sequence: sequence, vector: vector, floor: VersionVector(), horizon: .zero,
      position: position)
  }

  /// The digest of the live records.
  package var digest: StateDigest {
    var digest = StateDigest()
    for record in held.values where !record.isTombstone { digest.add(record) }
    return digest
  }

  package func digested(at wall: UInt64?) -> DigestedState {
    DigestedState(position: position, vector: vector, digest: digest, at: wall ?? self.wall)
  }

  package var missingBlobs: [BlobNeed] {
    held.values.compactMap(need).sorted { $0.hash < $1.hash }
  }

  private func need(_ record: Record) -> BlobNeed? {
    guard case .blob(let blob) = record.content, blobs[blob.hash] == nil else { return nil }
    return BlobNeed(
      hash: blob.hash, size: blob.size, offset: UInt64(partials[blob.hash]?.count ?? 0),
      hasKin: looksForKin)
  }

  /// As `openRound`, limited to records after a position; nil if there is nothing for the receiver.
  package func openLiveUpdate(
    since cursor: Cursor?, after begin: UInt64, covered: VersionVector
  ) throws(Failure) -> Round? {
    let isAny = log.contains {
      $0.position > begin && !covered.covers($0.record.dot) && held[$0.record.key] == $0.record
    }
    guard isAny || !covered.covers(vector) else { return nil }
    var round = try openRound(since: cursor, covered: covered)
    round.records = round.records.filter { $0.position > begin }
    return round
  }

  package func openRound(since cursor: Cursor?, covered: VersionVector) throws(Failure) -> Round {
    if let cursor, !marks.contains(cursor.mark) {
      throw Failure(isRolledBack: true, description: "unknown mark")
    }
    guard covered[actor] <= sequence else { throw Failure(isRolledBack: true, description: "unknown writes") }
    if lastMark?.position != position {
      let mark = RoundMark(bytes: random.bytes(16))!
      marks.insert(mark)
      lastMark = (mark, position)
    }
    let records = log.filter {
      $0.position > cursor?.position ?? 0 && !covered.covers($0.record.dot)
        && held[$0.record.key] == $0.record
    }
    let close = RoundClose(
      sender: actor, mark: lastMark!.mark, position: position, vector: vector, floor: VersionVector(),
      horizon: .zero)
    return Round(close: close, records: records)
  }

  /// Up to `limit` more records of a round, and the position they reach.
  package func next(_ round: inout Round, limit: Int) -> RecordCodec.Payload? {
    let part = Array(round.records[round.next...].prefix(limit))
    round.next += part.count
    return part.last.map { RecordCodec.Payload(position: $0.position, records: part) }
  }

  package func apply(_ batch: IncomingBatch) throws(Failure) -> [BlobNeed] {
    var needs: [BlobNeed] = []
    for positioned in batch.records.list {
      let record = positioned.record
      guard record.dot.actor != actor || record.dot.sequence <= sequence else {
        throw Failure(isRolledBack: true, description: "a write of this actor that it never made")
      }
      if vector.covers(record.dot) || held[record.key]?.dot == record.dot { continue }
      clock.observe(record.stamp)
      take(record)
    }
    for positioned in batch.records.list { if let need = need(positioned.record) { needs.append(need) } }
    cursors[batch.sender] = Cursor(position: batch.position, mark: batch.mark, closed: false)
    return needs
  }

  private func take(_ record: Record) {
    let old = held[record.key]
    let wins = old.map { record.version > $0.version } ?? true
    let (winner, loser) = wins ? (record, old) : (old!, record)
    if wins {
      append(record)
      held[record.key] = record
      takenRecords += 1
    }
    guard let loser else { return }
    if !loser.isTombstone, winner.base != loser.dot, winner.dot.actor != loser.dot.actor {
      conflicts.append(loser)
    }
  }

  package func finish(_ close: RoundClose) {
    let before = vector
    vector.merge(close.vector)
    if vector != before { closings += 1 }
    cursors[close.sender] = Cursor(position: close.position, mark: close.mark, closed: true)
  }

  package func becomeNewActor() {
    vector[actor] = marks.isEmpty ? 0 : min(vector[actor], sequence)
    actor = ActorID(bytes: random.bytes(16))!
    (sequence, cursors, marks, lastMark) = (0, [:], [], nil)
    rebirths += 1
  }

  /// Stores bytes of a blob; nil if the complete blob does not match its hash.
  package func store(_ bytes: [UInt8], of hash: BlobHash, size: UInt64) -> (held: UInt64, isComplete: Bool)? {
    partials[hash, default: []] += bytes
    guard partials[hash]!.count >= size else { return (UInt64(partials[hash]!.count), false) }
    let whole = partials.removeValue(forKey: hash)!
    guard SHA256.hash(whole) == hash.bytes, UInt64(whole.count) == size else { return nil }
    blobs[hash] = whole
    return (size, true)
  }
}
