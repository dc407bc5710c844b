/// What depends on the time: the digest of what is live, and records that wait until theirs has come.
extension Engine {
  /// The greatest record of a key was `before`; brings the running part of the digest up to date.
  func noteChange(of key: [UInt8], from before: Record?) {
    if index.ledger.keepsDigest { noteChange(from: before, to: greatest(key)) }
  }

  /// The same where the greatest record is known: it is `after`.
  func noteChange(from before: Record?, to after: Record?) {
    guard before != after else { return }
    index.ledger.changeDigest { digest in
      if let before, Self.counts(before) { digest.remove(before) }
      if let after, Self.counts(after) { digest.add(after) }
    }
  }

  /// Does the record count in the running part of the digest? What has a deadline is added when a time is known.
  static func counts(_ record: Record) -> Bool {
    !record.isReserved && !record.isTombstone && record.deadline == nil
  }

  /// The digest of what is live at `time`, in milliseconds since 1970. Computed from all keys when first asked for; who
  /// may change the index `keeps` it running then.
  mutating func digest(at time: UInt64, keeps: Bool) throws(StoreError) -> StateDigest {
    var digest: StateDigest
    let mayExpire = try index.ledger.flags.contains(.deadlines)
    if let known = index.ledger.digest(at: applied.packed), expiring != nil || !mayExpire {
      digest = known
    } else {
      (digest, expiring) = try computeDigest(isExclusive: keeps)
      if keeps { index.ledger.setDigest(digest, at: applied.packed) }
    }
    for key in expiring ?? [] {
      guard let record = greatest(key), let deadline = record.deadline else {
        expiring?.remove(key)
        continue
      }
      if deadline > time, !record.isTombstone, !record.isReserved { digest.add(record) }
    }
    return digest
  }

  // MARK: Parked records

  /// Parked records whose time has come by `limit`, in the order of their versions.
  func due(upTo limit: Stamp) -> [Location] {
    var due: [(Version, Location)] = []
    for location in parked.values.joined() {
      guard let version = try? journal.record(at: location).version, version.stamp <= limit else { continue }
      due.append((version, location))
    }
    return due.sorted { $0.0 < $1.0 }.map(\.1)
  }

  /// Applies a record that was parked; it is not parked any more. Only for who may change the index.
  mutating func release(_ location: Location) throws(StoreError) {
    let view = try journal.record(at: location)
    guard let shape = view.shape, let version = view.version else { return }
    let key = view.key(shape)
    let before = index.ledger.keepsDigest ? greatest(key) : nil
    let left = (parked[key] ?? []).filter { $0 != location }
    parked[key] = left.isEmpty ? nil : left
    state.absorb(version, applied: true)
    ordered = nil
    // Parked it counted, too.
    supersede(location)
    let search = search(key.span)
    if view.isReserved(shape), reserved.insert(key).inserted { try note(view) }
    try hold(version, at: view, search)
    noteChange(of: key, from: before)
    index.ledger.moveDigest(to: applied.packed)
    if parked.isEmpty { publish() }
  }
}
