/// Rule R9: becoming a new actor, and how that state is resolved again.
extension TransactionBuilder {
  /// Why a copy becomes a new actor.
  enum ActorChangeReason: Equatable {
    /// The directory was copied or restored: the old actor is still in use elsewhere.
    case copied
    /// The journal lost its end, which other members may have.
    case truncated
    /// The record of the old actor is missing although nothing is damaged: it was removed from outside.
    case actorRecordMissing
    /// A peer knows more of this copy than it does itself.
    case rolledBack
    /// One of its writes has another content elsewhere: another incarnation bears the old actor.
    case forked
    /// Records below a watermark are damaged: everything must be offered again.
    case damaged([JournalDamage])
    /// Local writes that no member accepts were dropped: the copy requests a full state, as after damage.
    case localWritesDropped
  }

  /// Becomes `actor`. `lost` are the keys lost in each damage, if damage is the reason.
  mutating func changeActor(
    _ renewal: ActorChangeReason, as actor: ActorID, lost: [JournalDamage: LostKeyFingerprints] = [:]
  ) throws(StoreError) {
    var vector = state.vector
    var isRolledBack = false
    switch renewal {
    case .truncated, .actorRecordMissing: break
    case .copied:
      // The cursors of an old directory bear marks of live rounds that their senders have forgotten since,
      // and would take for marks of a lost incarnation.
      try clearCursors()
    case .forked:
      if let old = state.actor { try setLocal(StateKey.abandoned(old), [1]) }
    case .rolledBack:
      if let old = state.actor {
        let marked = state.marks.last.flatMap { state.marks[$0]?.sequence } ?? 0
        let unconfirmed =
          state.incarnations.unconfirmedRanges + [Incarnations.UnconfirmedRange(actor: old, above: marked)]
        try setLocal(StateKey.unconfirmed, ReplicaState.encode(unconfirmed))
        try setLocal(StateKey.abandoned(old), [1])
        vector[old] = max(marked, state.purged.floor[old])
      }
      try clearCursors()
      isRolledBack = true
    case .damaged(let damages):
      for damage in damages {
        let end = UInt32(damage.bytes.upperBound)
        try setLocal(
          StateKey.damage(damage.location),
          ReplicaState.encode(damageUpTo: end, isResolved: false, lost: lost[damage]))
      }
      vector = try requestFullState()
      isRolledBack = true
    case .localWritesDropped:
      vector = try requestFullState()
      isRolledBack = true
    }
    try renewRelays(forgetting: isRolledBack)
    for mark in state.marks.keys.sorted() { try setLocal(StateKey.mark(mark), nil) }
    let former = state.incarnations.all.sorted().prefix(Limits.actors)
    try setLocal(StateKey.actor, actor.bytes + former.flatMap(\.bytes))
    try setLocal(StateKey.vector, ReplicaState.encode(vector))
  }

  /// Ends recovering after the full state of a peer: nothing is unconfirmed any more.
  mutating func finishRecovering() throws(StoreError) {
    if !state.incarnations.unconfirmedRanges.isEmpty { try setLocal(StateKey.unconfirmed, nil) }
    if state.reconcileFrom != nil, state.vector.covers(state.purged.floor) {
      try setLocal(StateKey.reconcileFrom, nil)
    }
    guard state.isRecovering else { return }
    try setLocal(StateKey.recovering, nil)
    for (place, end) in state.handledDamage.unresolved {
      try setLocal(StateKey.damage(place), ReplicaState.encode(damageUpTo: end, isResolved: true))
    }
  }

  /// Marks the copy as recovering, clears its cursors and returns an empty vector: the next peer sends a full
  /// state.
  private mutating func requestFullState() throws(StoreError) -> VersionVector {
    try setLocal(StateKey.recovering, [1])
    try clearCursors()
    return VersionVector()
  }

  private mutating func clearCursors() throws(StoreError) {
    for sender in state.cursors.keys.sorted() { try setLocal(StateKey.cursor(sender), nil) }
    try restartScopeExpansion()
  }

  /// The copy becomes another actor: it begins a new stream in each relay (rules L8 and L9).
  private mutating func renewRelays(forgetting: Bool) throws(StoreError) {
    for (relay, progress) in state.relays.sorted(by: { $0.key < $1.key }) {
      var next = progress
      next.beginLife(forgetting: forgetting)
      try setLocal(StateKey.relay(relay), next.bytes)
    }
  }

  /// Restarts a scope expansion: the records received so far may be gone.
  mutating func restartScopeExpansion() throws(StoreError) {
    guard let expansion = state.scopeExpansion, expansion.cursor != nil else { return }
    try setLocal(StateKey.scopeExpansion, ScopeExpansion(to: expansion.scope).bytes)
  }

  /// A record that only carries the durable offset.
  mutating func checkpoint() throws(StoreError) { try append(.checkpoint) }

  /// Retracts the writes that `plan` names and becomes `next`, whose first write follows. The vector covers
  /// none of them: otherwise the writes of a directory copy that still has them would be ignored as covered.
  mutating func retract(_ plan: RestampPlan, as next: ActorID) throws(StoreError) {
    var (vector, floor) = (state.vector, state.purged.floor)
    vector[plan.actor] = plan.kept
    for mark in state.marks.keys.sorted() { try setLocal(StateKey.mark(mark), nil) }
    if plan.isHorizonAhead {
      // Members that have not received the purged deletes still need full state: the floor names a write that
      // no other copy has.
      floor[plan.actor] = min(floor[plan.actor], plan.kept)
      floor[next] = 1
      try setLocal(StateKey.floor, ReplicaState.encode(floor: floor, horizon: plan.clock))
    }
    try renewRelays(forgetting: false)
    try setLocal(StateKey.retracted(plan.actor), RetractedWrites(above: plan.kept).bytes)
    let former = state.incarnations.all.sorted().prefix(Limits.actors)
    try setLocal(StateKey.actor, next.bytes + former.flatMap(\.bytes))
    try setLocal(StateKey.vector, ReplicaState.encode(vector))
    // Last: on replay nothing before it raises the clock again.
    try setLocal(StateKey.clock, ReplicaState.encode(position: plan.clock.rawValue))
  }
}
