/// What depends on the time: the digest of what is live, and records that wait until theirs has come.
extension Engine {
  mutating func noteChange(of key: [UInt8], from before: Record?, deadline: Bool) {
    if deadline {
      expiring.insert(key)
    } else if expiring.contains(key), greatest(key)?.deadline == nil {
      expiring.remove(key)
    }
    guard digest != nil else { return }
    if let before, Self.counts(before) { digest?.remove(before) }
    if let after = greatest(key), Self.counts(after) { digest?.add(after) }
  }

  /// Does the record count in the running part of the digest? What has a deadline is added when a time is known.
  private static func counts(_ record: Record) -> Bool {
    !record.isReserved && !record.isTombstone && record.deadline == nil
  }

  /// The digest of what is live at `time`, in milliseconds since 1970. Computed from all keys when first asked for, then
  /// kept running.
  mutating func digest(at time: UInt64) throws(StoreError) -> StateDigest {
    var running: StateDigest
    if let digest {
      running = digest
    } else {
      running = StateDigest()
      for location in index.locations {
        let record = try record(at: location)
        if parked[record.key] == nil, Self.counts(record) { running.add(record) }
      }
      for key in parked.keys {
        if let record = greatest(key), Self.counts(record) { running.add(record) }
      }
      digest = running
    }
    for key in expiring {
      guard let record = greatest(key), let deadline = record.deadline, deadline > time, !record.isTombstone,
        !record.isReserved
      else { continue }
      running.add(record)
    }
    return running
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

  /// Applies a record that was parked; it is not parked any more.
  mutating func release(_ location: Location) throws(StoreError) {
    let view = try journal.record(at: location)
    guard let shape = view.shape, let version = view.version else { return }
    let key = view.key(shape)
    let before = digest == nil ? nil : greatest(key)
    let left = (parked[key] ?? []).filter { $0 != location }
    parked[key] = left.isEmpty ? nil : left
    state.absorb(version, applied: true)
    ordered = nil
    hold(version, isReserved: view.isReserved(shape), at: view, search(key.span))
    noteChange(of: key, from: before, deadline: shape.deadline != nil)
  }
}
