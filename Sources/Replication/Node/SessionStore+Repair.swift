internal import SyncStore

/// State of a repair between its steps.
struct RepairWork {
  /// The own keys that were fingerprinted, by their hash.
  var keys: [UInt64: [[UInt8]]] = [:]
  /// The other side's records of the keys under repair.
  var theirs: [[UInt8]: Record] = [:]
}

/// Store operations of a repair (F61).
extension SessionStore {
  func fingerprint(_ buckets: [UInt16], scope: RepairScope) throws -> SessionEvent {
    let found = try store.fingerprints(in: buckets, scope, most: WireLimits.repairPrints)
    state.withLock { $0.repair.keys = found.keys }
    return .fingerprinted(BucketPrints(buckets: found.buckets, prints: found.prints))
  }

  func exchangeRecords(
    _ hashes: [UInt64], encrypted: [UInt8]?, from peer: ActorID?, scope: RepairScope, index: UInt64
  ) throws -> SessionEvent {
    let keys = state.withLock { $0.repair.keys }
    var (taken, records, bytes): ([UInt64], [Record], Int) = ([], [], 0)
    for hash in hashes {
      let own = try store.records(of: keys[hash] ?? [], scope)
      let size = own.reduce(0) { $0 + $1.transferSize }
      if !taken.isEmpty, bytes + size > WireLimits.repairBytes { break }
      taken.append(hash)
      records += own
      bytes += size
    }
    var outcome = RepairOutcome(keys: [])
    if let encrypted {
      let exchanged = Set(taken)
      let theirs = try decrypt(encrypted, of: Set(hashes), from: peer, index: index)
        .filter { exchanged.contains(RecordFingerprint.hash($0.key)) }
      state.withLock { $0.repair.theirs = theirs }
      outcome = try store.repair(
        names(of: taken, theirs: theirs), against: theirs, scope: scope, steps: .keep)
    }
    let context = BatchContext.differing(store: store.id, sender: try ownActor(), index: index)
    return .recordsExchanged(
      DifferingRecords(hashes: taken, encrypted: try encrypt(records, as: context)), keys: outcome.keys)
  }

  func repair(
    _ hashes: [UInt64], encrypted: [UInt8]?, from peer: ActorID?, scope: RepairScope, index: UInt64
  ) throws -> SessionEvent {
    let theirs =
      try encrypted.map { try decrypt($0, of: Set(hashes), from: peer, index: index) }
      ?? state.withLock { $0.repair.theirs }
    let outcome = try store.repair(
      names(of: hashes, theirs: theirs), against: theirs, scope: scope,
      steps: encrypted == nil ? .issue : [.keep, .issue])
    state.withLock { $0.repair = RepairWork() }
    return .repaired(outcome)
  }

  /// All keys for which either side holds something.
  private func names(of hashes: [UInt64], theirs: [[UInt8]: Record]) -> Set<[UInt8]> {
    let own = state.withLock { state in hashes.flatMap { state.repair.keys[$0] ?? [] } }
    return Set(own).union(theirs.keys)
  }

  func ownActor() throws -> ActorID { try state.withLock { $0.handshake.actor } ?? store.actor }

  /// Encrypts records that are in no journal from which the other side could resume: their positions are only
  /// ordinals.
  func encrypt(_ records: [Record], as context: BatchContext) throws -> [UInt8] {
    let positioned = records.enumerated().map { PositionedRecord(position: UInt64($0 + 1), record: $1) }
    let payload = RecordCodec.encode(
      RecordCodec.Payload(position: UInt64(records.count), records: positioned))
    return try BatchCodec.encrypt(
      payload, as: context, keys: ring(), randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
  }

  /// Decrypts the other side's records of keys with these hashes.
  func decrypt(
    _ encrypted: [UInt8], of hashes: Set<UInt64>, as context: BatchContext
  ) throws -> [[UInt8]: Record] {
    let payload = try BatchCodec.decrypt(encrypted, expecting: context, keys: ring())
    var records: [[UInt8]: Record] = [:]
    for item in try RecordCodec.decode(payload).records {
      let record = item.record
      guard hashes.contains(RecordFingerprint.hash(record.key)), !record.isReserved,
        records.updateValue(record, forKey: record.key) == nil
      else { throw DecodingFailure("a record of a key that is not being compared, or two of one key") }
    }
    return records
  }

  private func decrypt(
    _ encrypted: [UInt8], of hashes: Set<UInt64>, from peer: ActorID?, index: UInt64
  ) throws -> [[UInt8]: Record] {
    guard let peer else { return [:] }
    return try decrypt(encrypted, of: hashes, as: .differing(store: store.id, sender: peer, index: index))
  }
}
