internal import SyncStore

/// Store operations of a comparison that moves no records.
extension SessionStore {
  /// The records held here of the keys whose fingerprints differ from those of the other side, bucket by
  /// bucket, for as many as there is room for.
  func stateKeys(_ prints: BucketPrints, scope: RepairScope, index: UInt64) throws -> SessionEvent {
    let found = try store.fingerprints(in: prints.buckets, scope, most: WireLimits.repairPrints)
    let common = Set(found.buckets)
    let theirs = prints.prints.filter { common.contains(RecordFingerprint.bucket(of: $0.keyHash)) }
    let differing = Dictionary(
      grouping: RecordFingerprint.differences(found.prints, theirs), by: RecordFingerprint.bucket)
    var states = KeyStates(buckets: [], hashes: [], encrypted: [])
    var (records, bytes): ([Record], Int) = ([], 0)
    for bucket in found.buckets {
      let hashes = differing[bucket] ?? []
      let own = try store.records(of: hashes.flatMap { found.keys[$0] ?? [] }, scope).map(\.stated)
      let size = own.reduce(0) { $0 + $1.transferSize }
      if !states.buckets.isEmpty, bytes + size > WireLimits.comparedBytes { break }
      states.buckets.append(bucket)
      states.hashes += hashes
      records += own
      bytes += size
    }
    states.hashes.sort()
    let sender = try ownActor()
    states.encrypted = try encrypt(records, as: .keyStates(store: store.id, sender: sender, index: index))
    return .keysStated(states)
  }

  /// The keys that differ, by the other side's statement about the buckets that were last fingerprinted.
  func compareKeys(
    _ states: KeyStates, from peer: ActorID?, covered: VersionVector, scope: RepairScope, index: UInt64
  ) throws -> SessionEvent {
    guard let peer else { return .keysCompared([]) }
    let theirs = try decrypt(
      states.encrypted, of: Set(states.hashes), as: .keyStates(store: store.id, sender: peer, index: index))
    let own = state.withLock { state in states.hashes.flatMap { state.repair.keys[$0] ?? [] } }
    return .keysCompared(
      try store.differences(of: own + theirs.keys, from: theirs, covered: covered, scope: scope))
  }
}
