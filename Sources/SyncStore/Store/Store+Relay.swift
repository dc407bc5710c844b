/// The store's side of a relay: rounds for its readers, and what this copy knows of it (rules L1–L12).
extension Store {
  /// Opens a round for the readers of a relay: what is current here after the position published last, and
  /// not covered there. Durable on return, with its mark and with `record`, which names the entry that is
  /// about to be published as pending (rule L2).
  ///
  /// - Throws: `.unsettled` if this copy is in doubt about itself (rule L7); `.rolledBack` if what is covered
  ///   there has writes of this copy that it does not know.
  package func openPublication(_ record: RelayRecord) throws(StoreError) -> DeltaStream {
    try deltas.openPublication(record)
  }

  /// This copy as it is now, without a digest. Not durable.
  package func relayReplica() throws(StoreError) -> ReplicaSummary {
    try reading { engine throws(StoreError) in try summary(of: engine) }
  }

  /// Claims the relays of this copy for the caller, until the returned file is closed; nil if another process
  /// or task works on one of them.
  package func claimRelays() throws(StoreError) -> (any StorageFile)? {
    let file = try environment.storage.open(path + "/" + StoreLayout.control, .readWrite)
    return try file.lock(byte: StoreLayout.relayByte, .exclusive, wait: false) ? file : nil
  }

  /// Opens a round with everything that is held here, for a checkpoint. Durable, with its mark, on return.
  ///
  /// - Throws: `.unsettled` as `openPublication`, or if this copy holds only some keys.
  package func openCheckpoint() throws(StoreError) -> DeltaStream { try deltas.openCheckpoint() }

  /// The progress in a relay.
  package func relayProgress(_ relay: RelayID) throws(StoreError) -> RelayProgress {
    try reading { engine throws(StoreError) in engine.state.relays[relay] ?? RelayProgress() }
  }

  /// The relays of which something is known, in order.
  package func knownRelays() throws(StoreError) -> [RelayID] {
    try reading { engine throws(StoreError) in engine.state.relays.keys.sorted() }
  }

  /// Changes what is known of a relay, if this copy still is `actor`. Durable on return if `isDurable`.
  ///
  /// - Returns: what is known now.
  /// - Throws: `.overtaken` if the copy has become another actor.
  @discardableResult
  package func updateRelay(
    _ relay: RelayID, as actor: ActorID, isDurable: Bool,
    _ change: (inout RelayProgress) -> Void
  ) throws(StoreError) -> RelayProgress {
    let (progress, tail) = try writes.append { builder throws(StoreError) in
      try applier.requireExpectedState(ExpectedReplicaState(actor: actor), of: actor, builder.state)
      var progress = builder.state.relays[relay] ?? RelayProgress()
      change(&progress)
      try applier.record(RelayRecord(relay: relay, progress: progress), &builder)
      return progress
    }
    if isDurable { try sync(upTo: tail) }
    return progress
  }

  /// Merges closes of selective publishers that were owed, as far as they can be by now (rule L12).
  package func settleRelay(_ relay: RelayID, as actor: ActorID) throws(StoreError) -> RelayProgress {
    try writes.append { builder throws(StoreError) in
      try applier.requireExpectedState(ExpectedReplicaState(actor: actor), of: actor, builder.state)
      var progress = builder.state.relays[relay] ?? RelayProgress()
      guard !progress.owed.isEmpty, !builder.state.isRecovering else { return progress }
      var vector = builder.state.vector
      let added = progress.settle(into: &vector)
      guard !added.isEmpty else { return progress }
      try applier.requireOwnWrites(in: added, builder.state)
      try applier.requirePlaces(in: vector, builder.state)
      try builder.setLocal(StateKey.vector, ReplicaState.encode(vector))
      try applier.record(RelayRecord(relay: relay, progress: progress), &builder)
      return progress
    }.0
  }

  /// Forgets a relay, durably: its streams are read from the beginning if it is used again.
  package func forgetRelay(_ relay: RelayID) throws(StoreError) {
    let (_, tail) = try writes.append { builder throws(StoreError) in
      guard builder.state.relays[relay] != nil else { return }
      try builder.setLocal(StateKey.relay(relay), nil)
    }
    try sync(upTo: tail)
  }

  /// Whether every record that is held here is covered by the vector, as far as this copy knows: no round is
  /// received in part. Then two copies that cover the same hold the same (rule L10).
  package func holdsOnlyCovered() throws(StoreError) -> Bool {
    try reading { engine throws(StoreError) in
      let state = engine.state
      return state.isSound && state.cursors.values.allSatisfy(\.closed)
        && state.relays.values.allSatisfy { !$0.isPartial && $0.owed.isEmpty }
    }
  }
}

extension DeltaSource {
  /// `Store.openPublication`.
  func openPublication(_ record: RelayRecord) throws(StoreError) -> DeltaStream {
    var readers = RoundReceiver(cursor: nil, covered: record.progress.covered)
    readers.publication = record
    let (round, tail) = try makeRound(for: readers, after: record.progress.position, isLive: false)
    try journalSync.sync(upTo: tail)
    return round
  }

  /// `Store.openCheckpoint`.
  func openCheckpoint() throws(StoreError) -> DeltaStream {
    let newcomer = RoundReceiver(cursor: nil, covered: VersionVector(), health: .unconfirmed)
    let (round, tail) = try makeRound(for: newcomer, after: 0, isLive: false)
    try journalSync.sync(upTo: tail)
    return round
  }
}
