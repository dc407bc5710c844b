internal import SyncStore

// Work for a relay besides reading and publishing: deleting what it need not keep, once a day (rule L11), and
// counting requests.
extension RelayKeeper {
  /// Deletes what the relay need not keep, if that is due and this copy may write. Never fails: the relay
  /// works as well without it. `interval`: milliseconds between two collections.
  func collectIfDue(_ relay: RelayDescription, _ client: RelayClient, every interval: UInt64) async {
    let schedule = CollectionSchedule(interval: interval)
    do throws(ReplicationError) {
      guard try await claimCollection(relay, schedule) else { return }
      let report = try await client.collect(isDryRun: false)
      let store = context.store
      try await context.workers.run { () throws(ReplicationError) in
        try RelayHistories(store: store).recordCollection(relay.name, schedule)
      }
      collected(relay, report, at: store.environment.now())
    } catch {
      guard !Task.isCancelled, error.store?.code != .closed else { return }
      var isNew = false
      change(relay) { state in
        state.collections.failures += 1
        isNew = state.collections.failures == 1
      }
      context.log.emit(
        isNew ? .warning : .debug, "what \(relay.name) need not keep is not deleted: \(error.message)")
    }
  }

  /// Whether a collection is due. If so, the time of the next attempt is durable on return: other processes
  /// do not begin one as well, and a process that dies in it does not do so again and again.
  private func claimCollection(
    _ relay: RelayDescription, _ schedule: CollectionSchedule
  ) async throws(ReplicationError) -> Bool {
    let store = context.store
    let (history, isDue) = try await context.workers.run { () throws(ReplicationError) in
      let histories = RelayHistories(store: store)
      let (history, now) = (try histories[relay.name], store.environment.now())
      guard schedule.decision(next: history.nextCollection, at: now) != .wait,
        try Membership(store).own()?.right ?? .readWrite == .readWrite,
        try mappingStoreErrors({ () throws(StoreError) in try store.writeDenial }) == nil
      else { return (history, false) }
      var isDue = false
      try histories.update(relay.name) { history in
        // Again: another process may have been faster.
        let decision = schedule.decision(next: history.nextCollection, at: now)
        isDue = decision == .collect
        switch decision {
        case .wait: break
        case .collect: history.nextCollection = schedule.retry(after: now)
        case .choose:
          history.nextCollection = schedule.first(after: now, random: UInt64.random(in: 0 ... .max))
        }
      }
      return (history, isDue)
    }
    change(relay) { $0.collections.last = history.lastCollection }
    return isDue
  }

  private func collected(_ relay: RelayDescription, _ report: RelayReport, at now: UInt64) {
    // It has read everything, as a look does.
    succeeded(relay, report, isLook: true)
    change(relay) { state in
      (state.collections.last, state.collections.failures) = (now, 0)
      state.collections.objects += report.collectedObjects
      state.collections.bytes += report.collectedBytes
      state.collections.storedBytes = report.storedBytes ?? state.collections.storedBytes
    }
    guard report.collectedObjects > 0 else { return }
    context.log.emit(
      .info,
      "\(relay.name): deleted \(CountText.of(report.collectedObjects, noun: "object")) that no member needs")
  }
}

extension RelayKeeper {
  /// State of the upkeep of one relay between two looks.
  struct Upkeep {
    /// The client that was used last.
    var client: RelayClient?
    /// When its requests are added to the history next.
    var nextRecord: UInt64 = 0
  }

  /// Shows the last news and the requests so far, and now and then adds them to the history.
  func showUsage(_ relay: RelayDescription, _ upkeep: inout Upkeep, every milliseconds: UInt64) async {
    guard let client = upkeep.client else { return }
    let now = MonotonicClock.milliseconds()
    if now >= upkeep.nextRecord {
      if upkeep.nextRecord > 0 { await context.recordUsage(of: client) }
      upkeep.nextRecord = now + milliseconds
    }
    let store = context.store
    let usage = try? await context.workers.run { () throws(ReplicationError) in
      try RelayHistories(store: store)[relay.name].usage
    }
    let (figures, unrecorded) = (client.objects.figures, client.unrecordedFigures)
    let lastNews = client.lastNews
    change(relay) { state in
      (state.figures, state.lastNews) = (figures, lastNews)
      guard let usage else { return }
      state.billing.usage = usage.adding(unrecorded, at: store.environment.now())
    }
  }

  /// Adds to the history what is not in it, unless the relay was forgotten.
  func endUsage(_ relay: RelayDescription, _ upkeep: Upkeep) async {
    guard let client = upkeep.client else { return }
    let store = context.store
    let isKnown = try? await context.workers.run { () throws(ReplicationError) in
      try Membership(store).relay(named: relay.name) != nil
    }
    if isKnown == true { await context.recordUsage(of: client) }
  }
}
