/// Replay of purges: afterwards the key is as if it had never been held (rule R8).
extension Engine {
  /// Applies a purge to everything but the index.
  mutating func applyPurge(_ purge: Purge) {
    if purge.hadValue { sortedKeys.index = nil }
    let gone = parkedLocations(of: purge)
    guard !gone.isEmpty else { return }
    parked.remove(gone, from: purge.key)
    if parked.isEmpty { publish() }
  }

  /// Applies a purge and removes the purged record from the index.
  mutating func indexPurge(_ purge: Purge) throws(StoreError) {
    let before = index.checkpoint.keepsDigest ? greatest(purge.key) : nil
    let gone = parkedLocations(of: purge)
    applyPurge(purge)
    for place in gone { markDead(place) }
    // A listed record of a key that is not in the index counts as parked: drop purged ones from the list.
    if !gone.isEmpty || specialRecords.isStale { try rewriteSpecialRecords() }
    let search = search(purge.key.span)
    if let found = search.found, let version = try? journal.record(at: found.location).version,
      purge.isParked ? version == purge.version : version <= purge.version
    {
      guard try index.hashIndex.remove(search.hash, found.ref) else {
        throw StoreError(.damaged, "does not find what it has found: it is to be built anew")
      }
      markDead(found.location)
    }
    updateDigest(of: purge.key, from: before)
  }

  /// Parked records that a purge removes: the record it names, or those that the named record had beaten. The
  /// latter were applied before and became parked again when the journal was replayed.
  private func parkedLocations(of purge: Purge) -> [Location] {
    guard let places = parked[purge.key] else { return [] }
    return places.filter { place in
      guard let version = try? journal.record(at: place).version else { return false }
      return purge.isParked ? version == purge.version : version <= purge.version
    }
  }

  // MARK: Purge conditions

  /// The member under whose name this copy last acknowledged.
  private var ownDevice: DeviceID? { localMetadata[StateKey.member].flatMap { DeviceID(bytes: $0) } }

  /// Member records stamped before this time do not hold up purging.
  private static func retirementCutoff(at time: UInt64) -> Stamp {
    Stamp(milliseconds: time - min(time, Limits.retirementMilliseconds))
  }

  /// The purge rule of this copy at a time, in milliseconds since 1970.
  mutating func purgeRule(at time: UInt64) -> PurgeRule {
    let (own, oldest) = (ownDevice.map { ReservedKey.frontier($0) }, Self.retirementCutoff(at: time))
    var (frontiers, retired): ([Frontier], [Frontier]) = ([], [])
    for key in reserved where key != own && key.starts(with: ReservedKey.frontierPrefix) {
      guard let record = try? held(key), let frontier = Frontier(record) else { continue }
      if record.stamp >= oldest { frontiers.append(frontier) } else { retired.append(frontier) }
    }
    return PurgeRule(state, frontiers: frontiers, retired: retired, at: time)
  }

  /// Whether every member named within the retirement period has reported what it covers. Purging before that
  /// costs such a member a full state.
  mutating func allMembersReported(at time: UInt64) throws(StoreError) -> Bool {
    let (own, oldest) = (ownDevice, Self.retirementCutoff(at: time))
    let members = reserved.filter { $0.starts(with: ReservedKey.memberPrefix) }
    guard members.count > 1 else { return true }
    for key in members {
      guard let device = DeviceID(bytes: key.dropFirst(ReservedKey.memberPrefix.count)), device != own,
        !reserved.contains(ReservedKey.frontier(device)), let member = try held(key), !member.isTombstone
      else { continue }
      if member.stamp >= oldest { return false }
    }
    return true
  }
}
