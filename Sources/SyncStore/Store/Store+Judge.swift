/// What a session compares: the state of one instant, so that a write in between is in all of it or in none.
extension Store {
  /// What this copy says of itself, and the digest of what is live at `time` (milliseconds since 1970), both of one
  /// instant, and durable when this returns.
  package func judged(at time: UInt64) throws(StoreError) -> (summary: ReplicaSummary, digest: StateDigest) {
    let judged = try reading { engine throws(StoreError) in
      guard let actor = engine.state.actor else {
        throw StoreError(.damaged, "the journal names no actor: restore the store from a backup", path: path)
      }
      let state = engine.state
      let summary = ReplicaSummary(
        store: id, actor: actor, sequence: state.sequence, vector: state.vector, floor: state.floor,
        horizon: state.horizon, position: engine.position)
      return (summary: summary, digest: try engine.digest(at: time))
    }
    try sync()
    return judged
  }

  /// The value of one replicated key of the store's own; nil if it has none.
  package func reserved(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    precondition(ReservedKey.isReserved(key), "a user's key is read by `get`")
    let record = try reading { engine throws(StoreError) in try engine.held(key) }
    guard case .inline(let value) = record?.content else { return nil }
    return value
  }
}
