// Objects that live under a name for which the index has another one: two processes have put the same content, or one is being moved and
// has its successor already. They count as soon as that one has gone: another process may end it at any moment.
extension PackSet {
  /// Remembers a live object that the index passes over.
  func recordDuplicate(_ place: UInt32, name: BlobHash, _ state: inout State) {
    guard state.duplicates[name]?.contains(place) != true else { return }
    state.duplicates[name, default: []].append(place)
  }

  /// Enters what lives under a name of which the index knows nothing any more. False if nothing does.
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

  /// Looks at all of them once more: of those whose pack has gone none counts, and some may be what is left of their name.
  func recheckDuplicates(_ state: inout State) throws(StoreError) {
    for (name, places) in state.duplicates {
      let left = places.filter { !state.packs[Self.ordinal($0)].isGone }
      state.duplicates[name] = left.isEmpty ? nil : left
      if !left.isEmpty { _ = try lookUp(name, &state) }
    }
  }

  /// Ends those of a name that were counted on last with stamps below `limit`.
  func removeDuplicates(_ name: BlobHash, below limit: UInt64 = .max, _ state: inout State) {
    guard !state.duplicates.isEmpty, let places = state.duplicates[name] else { return }
    let left = places.filter { place in
      // What cannot be opened now is looked at when it is asked for.
      guard let pack = try? pack(Self.ordinal(place), &state) else {
        return !state.packs[Self.ordinal(place)].isGone
      }
      return !pack.remove(Self.slot(place), below: limit) && pack.word(Self.slot(place)).isLive
    }
    state.duplicates[name] = left.isEmpty ? nil : left
  }

  /// Ends all: for who has the directory alone, and has removed each older value of a name before.
  func removeAllDuplicates() {
    state.withLock { state in
      for name in state.duplicates.keys { removeDuplicates(name, &state) }
    }
  }

  /// Forgets one that has ended.
  func forgetDuplicate(_ pack: Pack, slot: Int, place: UInt32, _ state: inout State) {
    guard !state.duplicates.isEmpty, let name = pack.entry(slot)?.name, let places = state.duplicates[name]
    else {
      return
    }
    let left = places.filter { $0 != place }
    state.duplicates[name] = left.isEmpty ? nil : left
  }

  /// Removes what lies at a place, if it was counted on last with a stamp below `limit`, and `withSpares` others of its name of which that
  /// is true. False if it stays, or has gone before.
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
