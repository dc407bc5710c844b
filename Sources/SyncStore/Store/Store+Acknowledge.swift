/// What members say for others to purge: how far each has come (rule R8).
extension Store {
  /// Says, as a member, what this copy covers, if that lets others purge: if it has taken in a delete or a record with a
  /// deadline since it last did, or the last time is long ago. Not more often than the number of members allows, for each of
  /// them gets it. Costs little when it is not due. True if it was said.
  @discardableResult
  package func acknowledgeIfDue(as device: DeviceID) throws(StoreError) -> Bool {
    let now = environment.now()
    let (rule, known) = try reading { engine throws(StoreError) in
      let members = engine.reserved.count { $0.starts(with: ReservedKey.memberPrefix) }
      let last = try engine.held(ReservedKey.frontier(device)).flatMap { Frontier($0) }
      return (
        AcknowledgementRule(last: last?.stamp, members: members, at: now), engine.state.acknowledged ?? 0
      )
    }
    switch rule {
    case .isDue: return try acknowledge(as: device)
    case .isEarly: return false
    case .dependsOnDeletes:
      let looked = lifecycle.withLock { $0.deletesScannedTo }
      guard try hasDeletes(behind: max(looked, known)) else { return false }
      return try acknowledge(as: device)
    }
  }

  /// Is there a delete, or a record with a deadline, behind the position? What was looked through is not looked through again.
  private func hasDeletes(behind position: UInt64) throws(StoreError) -> Bool {
    let end = try reading { engine throws(StoreError) in engine.position }
    guard end > position else { return false }
    var walk = try deadRecords(behind: position)
    while let more = try walk.next({ $2 || $3 != nil }) {
      if more.contains(where: { $0.position > position }) { return true }
    }
    lifecycle.withLock { $0.deletesScannedTo = max($0.deletesScannedTo, end) }
    return false
  }

  /// Says, as a member, what this copy covers, for others to purge what all cover. False if that cannot be said at the moment.
  @discardableResult
  package func acknowledge(as device: DeviceID) throws(StoreError) -> Bool {
    let (isSaid, tail) = try append { composer throws(StoreError) in
      let state = composer.state
      guard state.isHealthy, state.vector.covers(state.floor) else { return false }
      if engine.withLock({ $0.localMetadata[StateKey.member] }) != device.bytes {
        try composer.setLocal(StateKey.member, device.bytes)
      }
      let key = ReservedKey.frontier(device)
      let held = try heldForWriting(key, in: composer)
      // What of a round has come, and is not covered before its end, is asked about again.
      if state.cursors.values.allSatisfy(\.closed) {
        let position = engine.withLock { $0.position }
        try composer.setLocal(StateKey.acknowledged, ReplicaState.encode(position: position))
      }
      try composer.issue(
        key: key, content: .inline(Frontier.bytes(state.vector, isNarrow: state.scope != nil)), type: .bytes,
        deadline: nil, held: held)
      return true
    }
    try sync(upTo: tail)
    return isSaid
  }
}
