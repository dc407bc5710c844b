// Objects that live under a name for which the index has another one: two processes have put the same content, or one is being moved and
// has its successor already. They count as soon as that one has gone: another process may end it at any moment.
extension PackSet {
  /// Remembers a live object that the index passes over.
  func passOver(_ place: UInt32, _ name: BlobHash, _ state: inout State) {
    guard state.spares[name]?.contains(place) != true else { return }
    state.spares[name, default: []].append(place)
  }

  /// Enters what lives under a name of which the index knows nothing any more. False if nothing does.
  func enterSpares(_ name: BlobHash, _ state: inout State) throws(StoreError) -> Bool {
    guard !state.spares.isEmpty, let places = state.spares.removeValue(forKey: name) else { return false }
    var isEntered = false
    for (index, place) in places.enumerated() {
      do throws(StoreError) {
        let (ordinal, slot) = (Self.ordinal(place), Self.slot(place))
        guard let pack = try pack(ordinal, &state), pack.word(slot).isLive else { continue }
        try enter(pack, slot, ordinal, &state)
        isEntered = true
      } catch {
        for left in places[index...] { passOver(left, name, &state) }
        throw error
      }
    }
    return isEntered
  }

  /// Looks at all of them once more: of those whose pack has gone none counts, and some may be what is left of their name.
  func settleSpares(_ state: inout State) throws(StoreError) {
    for (name, places) in state.spares {
      let left = places.filter { !state.packs[Self.ordinal($0)].isGone }
      state.spares[name] = left.isEmpty ? nil : left
      if !left.isEmpty { _ = try find(name, &state) }
    }
  }

  /// Ends those of a name that were counted on last with stamps below `limit`.
  func endSpares(_ name: BlobHash, below limit: UInt64 = .max, _ state: inout State) {
    guard !state.spares.isEmpty, let places = state.spares[name] else { return }
    let left = places.filter { place in
      // What cannot be opened now is looked at when it is asked for.
      guard let pack = try? pack(Self.ordinal(place), &state) else {
        return !state.packs[Self.ordinal(place)].isGone
      }
      return !pack.remove(Self.slot(place), below: limit) && pack.word(Self.slot(place)).isLive
    }
    state.spares[name] = left.isEmpty ? nil : left
  }

  /// Ends all: for who has the directory alone, and has removed each older value of a name before.
  func endAllSpares() {
    state.withLock { state in
      for name in state.spares.keys { endSpares(name, &state) }
    }
  }

  /// Forgets one that has ended.
  func forgetSpare(_ pack: Pack, _ slot: Int, _ place: UInt32, _ state: inout State) {
    guard !state.spares.isEmpty, let name = pack.entry(slot)?.name, let places = state.spares[name] else {
      return
    }
    let left = places.filter { $0 != place }
    state.spares[name] = left.isEmpty ? nil : left
  }

  /// Removes what lies at a place, if it was counted on last with a stamp below `limit`, and `withSpares` others of its name of which that
  /// is true. False if it stays, or has gone before.
  func end(
    _ pack: Pack, _ slot: Int, _ ordinal: Int, below limit: UInt64 = .max, withSpares: Bool = true,
    _ state: inout State
  ) -> Bool {
    guard pack.remove(slot, below: limit) else { return false }
    let place = Self.place(ordinal, slot)
    let prefix = pack.prefix(slot)
    if state.places[prefix] == place {
      state.places[prefix] = nil
      discount(pack, slot, ordinal, &state)
    } else if !state.others.isEmpty, let name = pack.entry(slot)?.name, state.others[name] == place {
      state.others[name] = nil
      discount(pack, slot, ordinal, &state)
    }
    if withSpares, !state.spares.isEmpty, let name = pack.entry(slot)?.name {
      endSpares(name, below: limit, &state)
    }
    return true
  }
}
