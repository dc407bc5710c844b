/// Keys whose latest records were lost, as far as known: a peer's full state should bring them again.
package struct KeysToRecover: Sendable {
  /// Keys known by their bytes.
  fileprivate var keys: Set<[UInt8]> = []
  /// Keys known by their hashes only.
  fileprivate var hashed = LostKeyFingerprints()
  /// Stamps of the older records now held in their place, by key.
  fileprivate var older: [[UInt8]: Stamp] = [:]

  /// The number of lost keys. A key lost in two generations of the index counts twice.
  package var count: Int { keys.count + hashed.count }

  fileprivate mutating func remove(_ key: [UInt8]) {
    keys.remove(key)
    hashed.remove(key)
  }
}

extension BatchApplier {
  /// The keys lost in damage that no full state has resolved yet. Passes over all keys in steps if there are
  /// any.
  func keysToRecover() throws(StoreError) -> KeysToRecover {
    let (all, doubts) = try reading { engine throws(StoreError) in
      let handled = engine.state.handledDamage
      let known = engine.damage.keys.filter { !handled.isResolved($0.value) }
      var all = KeysToRecover(keys: Set(known.keys))
      var hashed: [(place: Location, keys: LostKeyFingerprints)] = []
      for damage in engine.damage.unattributed where !handled.isResolved(damage.location) {
        guard let keys = engine.lostKeys(in: damage) else { continue }
        all.hashed.formUnion(keys)
        hashed.append((damage.location, keys))
      }
      return (all, PossiblyLostKeys(unattributed: [], keys: known, hashed: hashed, in: engine.journal))
    }
    guard all.count > 0, let doubts else { return all }
    var losses = all
    try visitRecords(restart: { losses = all }) { key, stamp, place in
      if (try? doubts.check(key, found: place)) == nil {
        losses.older[key] = stamp
      } else {
        losses.remove(key)
      }
    }
    return losses
  }

  /// The number of these keys for which no other record has come since: no copy contacted so far has their
  /// latest values, or they were deleted there and purged. Passes over all keys in steps.
  func countUnrecovered(of losses: KeysToRecover) throws(StoreError) -> Int {
    guard losses.count > 0 else { return 0 }
    var left = losses
    try visitRecords(restart: { left = losses }) { key, stamp, _ in
      // A full state reissues older records with the same stamp.
      if losses.older[key] != stamp { left.remove(key) }
    }
    return left.count
  }

  /// Logs how many lost keys the full state did not bring: afterwards the damage counts as resolved.
  func logUnrecovered(of losses: KeysToRecover) {
    guard let count = try? countUnrecovered(of: losses), count > 0 else { return }
    StoreLog.log(
      .error, path: path,
      "\(CountText.of(count, noun: "key")) lost by damage did not come with the full state of a peer: their latest values are lost, unless another copy or a backup has them, or they were deleted"
    )
  }

  /// Visits the records of all keys in steps.
  private func visitRecords(
    restart: () -> Void, _ body: (_ key: [UInt8], _ stamp: Stamp, _ place: Location) -> Void
  ) throws(StoreError) {
    try visitKeysInSteps(
      restart: restart,
      read: { engine, place throws(StoreError) -> (key: [UInt8], stamp: Stamp, place: Location)? in
        guard let view = try? engine.journal.record(at: place), let shape = view.shape else { return nil }
        return (view.key(shape), view.stamp, place)
      },
      collect: { found throws(StoreError) in if let found { body(found.key, found.stamp, found.place) } })
  }
}

extension FullStateVerdict {
  /// The verdict on a record known to be older than one lost here. It must not be reissued: as a new write it
  /// would beat the lost value on every copy that has it.
  func forOutdated(_ record: Record, at time: UInt64) -> FullStateVerdict {
    guard self == .reissue else { return self }
    return record.isGone(at: time) ? .drop : .setAside
  }
}

extension Store {
  /// The keys lost in damage that no full state has resolved yet.
  package func keysToRecover() throws(StoreError) -> KeysToRecover { try applier.keysToRecover() }

  /// The number of these keys for which no other record has come since.
  package func countUnrecovered(of losses: KeysToRecover) throws(StoreError) -> Int {
    try applier.countUnrecovered(of: losses)
  }
}
