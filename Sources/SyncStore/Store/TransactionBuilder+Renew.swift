/// Rule R9: what a copy does when it becomes a new actor, and how it comes to rest again.
extension TransactionBuilder {
  /// Why a copy becomes a new actor.
  enum Renewal: Equatable {
    /// The directory was copied or restored: the old actor's writes go on elsewhere.
    case copied
    /// The journal lost its end, which may be known elsewhere.
    case cut
    /// The record of the old actor is not there, though nothing is damaged: somebody made it so.
    case nameless
    /// A peer knows more of this copy than it does itself.
    case rolledBack
    /// One of its writes has another content elsewhere: another life bears the old actor.
    case forked
    /// Records below a watermark are damaged: everything is to be offered again.
    case damaged([JournalDamage])
    /// Local writes that no member accepts were dropped: the copy requests a full state, as after damage.
    case dropped
  }

  /// Becomes `actor`. `lost` are the keys lost in some of the damage, if that is why.
  mutating func renew(
    _ renewal: Renewal, as actor: ActorID, lost: [JournalDamage: LostKeyFingerprints] = [:]
  ) throws(StoreError) {
    var vector = state.vector
    switch renewal {
    case .cut, .nameless: break
    case .copied:
      // An old directory's bear marks of live rounds that their senders have forgotten since, and would take for those of a lost life.
      try forgetCursors()
    case .forked:
      if let old = state.actor { try setLocal(StateKey.parted(old), [1]) }
    case .rolledBack:
      if let old = state.actor {
        let marked = state.lastMark.flatMap { state.marks[$0]?.sequence } ?? 0
        let suspects = state.suspects + [ReplicaState.Suspect(actor: old, above: marked)]
        try setLocal(StateKey.suspects, ReplicaState.encode(suspects))
        try setLocal(StateKey.parted(old), [1])
        vector[old] = max(marked, state.floor[old])
      }
      try forgetCursors()
    case .damaged(let damages):
      for damage in damages {
        let end = UInt32(damage.bytes.upperBound)
        try setLocal(
          StateKey.damage(damage.location),
          ReplicaState.encode(damageUpTo: end, isResolved: false, lost: lost[damage]))
      }
      vector = try askForEverything()
    case .dropped: vector = try askForEverything()
    }
    for mark in state.marks.keys.sorted() { try setLocal(StateKey.mark(mark), nil) }
    let former = state.mine.sorted().prefix(Limits.actors)
    try setLocal(StateKey.actor, actor.bytes + former.flatMap(\.bytes))
    try setLocal(StateKey.vector, ReplicaState.encode(vector))
  }

  /// After the full state of a peer nothing is in doubt any more.
  mutating func comeToRest() throws(StoreError) {
    if !state.suspects.isEmpty { try setLocal(StateKey.suspects, nil) }
    if state.unsettled != nil, state.vector.covers(state.floor) { try setLocal(StateKey.unsettled, nil) }
    guard state.mending else { return }
    try setLocal(StateKey.mending, nil)
    for (place, end) in state.handledDamage.sorted(by: { $0.key < $1.key })
    where !state.resolvedDamage.contains(place) {
      try setLocal(StateKey.damage(place), ReplicaState.encode(damageUpTo: end, isResolved: true))
    }
  }

  /// Marks the copy as mending, clears its cursors and returns an empty vector: the next peer sends a full state.
  private mutating func askForEverything() throws(StoreError) -> VersionVector {
    try setLocal(StateKey.mending, [1])
    try forgetCursors()
    return VersionVector()
  }

  private mutating func forgetCursors() throws(StoreError) {
    for sender in state.cursors.keys.sorted() { try setLocal(StateKey.cursor(sender), nil) }
    try restartWidening()
  }

  /// What has come of keys that were lacking may be there no more.
  mutating func restartWidening() throws(StoreError) {
    guard let widening = state.widening, widening.cursor != nil else { return }
    try setLocal(StateKey.widening, Widening(to: widening.scope).bytes)
  }

  /// An entry that only carries the durable offset.
  mutating func checkpoint() throws(StoreError) { try append(.checkpoint) }
}
