// Duplicates: live objects whose name is indexed at another slot. Two processes have put the same content, or
// the object is being moved and already has a copy. A duplicate becomes the object once the indexed one is
// gone, which another process may remove at any moment.
extension PackSet {
  /// Remembers a live object that the index does not use.
  func recordDuplicate(_ place: UInt32, name: BlobHash, _ state: inout State) {
    guard state.duplicates[name]?.contains(place) != true else { return }
    state.duplicates[name, default: []].append(place)
  }

  /// Indexes live duplicates of a name that is no longer indexed. False if there are none.
  func indexDuplicates(_ name: BlobHash, _ state: inout State) throws(StoreError) -> Bool {
    guard !state.duplicates.isEmpty, let places = state.duplicates.removeValue(forKey: name) else {
      return false
    }
    var isEntered = false
    for (index, place) in places.enumerated() {
      do throws(StoreError) {
        let (ordinal, slot) = (Self.ordinal(place), Self.slot(place))
        guard let pack = try pack(ordinal, &state), pack.word(slot).isLive else { continue }
        try indexEntry(pack, slot: slot, ordinal: ordinal, &state)
        isEntered = true
      } catch {
        for left in places[index...] { recordDuplicate(left, name: name, &state) }
        throw error
      }
    }
    return isEntered
  }

  /// Rechecks all duplicates: those of removed packs are dropped, and others may be the last objects of their
  /// name.
  func recheckDuplicates(_ state: inout State) throws(StoreError) {
    for (name, places) in state.duplicates {
      let left = places.filter { !state.packs[Self.ordinal($0)].isGone }
      state.duplicates[name] = left.isEmpty ? nil : left
      if !left.isEmpty { _ = try lookUp(name, &state) }
    }
  }

  /// Removes the duplicates of a name whose stamps are below `limit`.
  func removeDuplicates(_ name: BlobHash, below limit: UInt64 = .max, _ state: inout State) {
    guard !state.duplicates.isEmpty, let places = state.duplicates[name] else { return }
    let left = places.filter { place in
      // A pack that cannot be opened now is rechecked when the name is looked up.
      guard let pack = try? pack(Self.ordinal(place), &state) else {
        return !state.packs[Self.ordinal(place)].isGone
      }
      return !pack.remove(Self.slot(place), below: limit) && pack.word(Self.slot(place)).isLive
    }
    state.duplicates[name] = left.isEmpty ? nil : left
  }

  /// Removes all duplicates. Requires exclusive use of the directory, with each older value of a name removed
  /// before.
  func removeAllDuplicates() {
    state.withLock { state in
      for name in state.duplicates.keys { removeDuplicates(name, &state) }
    }
  }

  /// Forgets a removed duplicate.
  func forgetDuplicate(_ pack: Pack, slot: Int, place: UInt32, _ state: inout State) {
    guard !state.duplicates.isEmpty, let name = pack.entry(slot)?.name, let places = state.duplicates[name]
    else {
      return
    }
    let left = places.filter { $0 != place }
    state.duplicates[name] = left.isEmpty ? nil : left
  }

  /// Removes the entry in a slot if its stamp is below `limit`, and `withDuplicates` also its duplicates
  /// below that. False if it stays, or was removed before.
  func removeEntry(
    _ pack: Pack, slot: Int, ordinal: Int, below limit: UInt64 = .max, withDuplicates: Bool = true,
    _ state: inout State
  ) -> Bool {
    guard pack.remove(slot, below: limit) else { return false }
    let place = Self.slotReference(ordinal, slot)
    let prefix = pack.prefix(slot)
    if state.slotsByPrefix[prefix] == place {
      state.slotsByPrefix[prefix] = nil
      uncountLive(pack, slot: slot, ordinal: ordinal, &state)
    } else if !state.slotsByName.isEmpty, let name = pack.entry(slot)?.name, state.slotsByName[name] == place
    {
      state.slotsByName[name] = nil
      uncountLive(pack, slot: slot, ordinal: ordinal, &state)
    }
    if withDuplicates, !state.duplicates.isEmpty, let name = pack.entry(slot)?.name {
      removeDuplicates(name, below: limit, &state)
    }
    return true
  }
}
