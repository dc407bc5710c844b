private import Synchronization

/// Acknowledgements: each member reports how far it has come, so that the others may purge (rule R8).
extension Store {
  /// Publishes what this copy covers, if that may let others purge: it has applied a delete or a record with
  /// a deadline since its last report, or that is long ago. True if it was published.
  ///
  /// Every member receives each report, so the number of members limits how often it is sent. Cheap when it
  /// is not due.
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
      let looked = compactor.deletesScannedTo.load(ordering: .relaxed)
      guard try hasDeletes(after: max(looked, known)) else { return false }
      return try acknowledge(as: device)
    }
  }

  /// Whether there is a delete, or a record with a deadline, after the position. Remembers what was scanned.
  private func hasDeletes(after position: UInt64) throws(StoreError) -> Bool {
    let end = try reading { engine throws(StoreError) in engine.position }
    guard end > position else { return false }
    var walk = try compactor.deadRecords(after: position)
    while let more = try walk.next({ $2 || $3 != nil }) {
      if more.contains(where: { $0.position > position }) { return true }
    }
    compactor.deletesScannedTo.max(end, ordering: .relaxed)
    return false
  }

  /// Publishes what this copy covers, as a member, so that what all cover can be purged. False if this copy
  /// cannot vouch for it now.
  @discardableResult
  package func acknowledge(as device: DeviceID) throws(StoreError) -> Bool {
    let (isSaid, tail) = try writes.append { builder throws(StoreError) in
      let state = builder.state
      guard state.isHealthy, state.vector.covers(state.purged.floor) else { return false }
      if core.engine.withLock({ $0.localMetadata[StateKey.member] }) != device.bytes {
        try builder.setLocal(StateKey.member, device.bytes)
      }
      let key = ReservedKey.frontier(device)
      let held = try writes.heldForWriting(key, in: builder)
      // During a round its records are not covered yet: do not record the position, so that they are checked
      // again.
      if state.cursors.values.allSatisfy(\.closed) {
        let position = core.engine.withLock { $0.position }
        try builder.setLocal(StateKey.acknowledged, ReplicaState.encode(position: position))
      }
      try builder.issue(
        key: key, content: .inline(Frontier.bytes(state.vector, isNarrow: state.scope != nil)), type: .bytes,
        deadline: nil, held: held)
      return true
    }
    try sync(upTo: tail)
    return isSaid
  }
}
