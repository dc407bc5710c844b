internal import SyncStore

/// Reading entries and checkpoints into the store.
extension RelayClient {
  /// Steps of one pull after which it ends, and the next one continues: it must not read for ever while
  /// others publish.
  private static let mostSteps = 100_000

  /// Reads everything that the relay has for this copy; all of it is durable here on return.
  ///
  /// - Throws: `.network` if the relay cannot be reached; `.notAllowed` if it refuses; `.otherStore` if it is
  ///   another store's; `.digestsDiffer` if a member covers the same and holds something else; `.store` …
  package func pull() async throws(ReplicationError) -> RelayReport {
    try await claiming { report throws(ReplicationError) in
      guard let format = try await self.format(creates: false) else {
        report.remarks.append("the relay is empty: no member has published there yet")
        return
      }
      try await self.pull(format, &report)
    }
  }

  /// `pull`, with the relays claimed.
  func pull(_ format: RelayFormat, _ report: inout RelayReport) async throws(ReplicationError) {
    let relay = format.relay
    var progress = try await storeWork { store throws(StoreError) in try store.relayProgress(relay) }
    let quiet = progress.quietBell.isEmpty ? nil : ObjectVersion(tag: progress.quietBell)
    let bell = try await get(RelayName.bell, unless: quiet, limit: 1024)
    let health = try await storeWork { store throws(StoreError) in try store.relayReplica().health }
    let mustList = memory.withLock { $0.quietLooks >= RelayLimits.quietLooks }
    guard bell != .unchanged || !progress.owed.isEmpty || health != .healthy || mustList else {
      memory.withLock { $0.quietLooks += 1 }
      return try await fetchBlobs(format, &report)
    }
    var keys = try await keys(format)
    var view = try await readHeads(progress, keys, &report)
    memory.withLock { $0.quietLooks = 0 }
    let unknown = memory.withLock { exchange(&$0.unknownEpochs, with: []) }
    if !unknown.isEmpty, try await learnKeys(of: unknown, with: keys, &report) {
      keys = try await self.keys(format)
      report.setAside = []
      view = try await readHeads(progress, keys, &report)
    }
    for _ in 0..<Self.mostSteps {
      let copy = try await storeWork { store throws(StoreError) in try store.relayReplica() }
      progress = try await storeWork { store throws(StoreError) in try store.relayProgress(relay) }
      switch RelayReader(view, progress, for: copy).next {
      case .startOver(let why):
        report.remarks.append(why)
        try await update(relay, as: copy.actor) { $0.startOver() }
      case .becomeNewActor(let why):
        report.remarks.append(why)
        try await storeWork { store throws(StoreError) in try store.becomeNewActor() }
      case .fetchRun(let stream, let reference):
        view = try await readRun(stream, at: reference, keys, into: &report)
      case .fetchCheckpoint(let name, let reference):
        view = try await readCheckpoint(name, reference, keys, &report)
      case .apply(let stream, let entry):
        var next = progress
        next.read(entry, in: stream, by: copy)
        let isRead = try await apply(
          entry, isFull: false, copy, recording: RelayRecord(relay: relay, progress: next), keys, &report)
        if isRead { report.entries += 1 } else { view = missing(entry, in: stream) }
      case .take(let checkpoint, let isFull):
        var next = progress
        next.read(checkpoint)
        let isRead = try await apply(
          checkpoint.state, isFull: isFull, copy, recording: RelayRecord(relay: relay, progress: next), keys,
          &report)
        if !isRead { view = missing(checkpoint) }
      case .end(let backlog):
        // Entries may have brought members, or rights.
        let present = try await self.keys(format)
        if present.standings != keys.standings {
          keys = present
          view = renewView(keys)
          continue
        }
        report.waitingEntries = backlog.entries
        report.unknownDevices = keys.unknownDevices(in: view)
        let lacksState =
          copy.health != .healthy || backlog.waiting.values.contains { $0.reason != .dependencies }
        memory.withLock { $0.needsFullState = lacksState }
        if copy.health != .healthy {
          report.remarks.append(
            "this copy needs a full state, which nothing there gives yet: `sync` asks for one")
        }
        try await fetchBlobs(format, &report)
        try await finishPull(
          relay, view, copy, isComplete: backlog.isEmpty && !view.hasEntriesThatMayCount, bell, &report)
        return
      }
    }
  }

  /// Settles what is owed, remembers the bell if everything was read, and makes all of it durable.
  private func finishPull(
    _ relay: RelayID, _ view: RelayView, _ copy: ReplicaSummary, isComplete: Bool, _ bell: ObjectReading,
    _ report: inout RelayReport
  ) async throws(ReplicationError) {
    let tag: String? =
      if case .found(let content) = bell, isComplete, report.setAside.isEmpty {
        content.version?.tag
      } else {
        nil
      }
    try await storeWork { store throws(StoreError) in
      let progress = try store.settleRelay(relay, as: copy.actor)
      if let tag, tag != progress.quietBell {
        try store.updateRelay(relay, as: copy.actor, isDurable: false) { $0.quietBell = tag }
      }
      try store.sync()
    }
    try await compareDigests(relay, view)
    report.position = try await storeWork { store throws(StoreError) in store.journalPosition }
  }

  /// Compares this copy's digest with those of entries that cover exactly the same (rule L10).
  ///
  /// An entry states the digest of one moment. A record that has expired since may be gone here, so only
  /// entries are compared that are no older than the time for which expired records are kept in any case.
  private func compareDigests(_ relay: RelayID, _ view: RelayView) async throws(ReplicationError) {
    let entries = view.streams.values.filter(\.isTrusted).compactMap(\.head.run.entries.last)
    let differs = try await storeWork { store throws(StoreError) -> Bool in
      let copy = try store.relayReplica()
      let oldest = store.environment.now() - min(store.environment.now(), Limits.clockDriftMilliseconds)
      guard copy.scope == nil, try store.holdsOnlyCovered() else { return false }
      for entry in entries where !entry.isNarrow && entry.vector == copy.vector {
        guard let stated = entry.digest, stated.time >= oldest else { continue }
        let digest = try store.digest(at: stated.time)
        // A concurrent write or read may have changed the vector since the digest was computed.
        if digest != stated.digest, try store.relayReplica().vector == entry.vector {
          try store.updateRelay(relay, as: copy.actor, isDurable: true) { $0.disagrees = true }
          return true
        }
      }
      return false
    }
    guard differs else { return }
    throw ReplicationError(
      .digestsDiffer,
      "\(name): a member covers the same writes as this copy and holds something else: a machine was cloned or put back: synchronize the two directly, which repairs the keys that differ"
    )
  }

  // MARK: Entries

  /// Applies the records of an entry, or of a checkpoint, and closes it. False if a part of it cannot be
  /// read: then nothing is closed.
  private func apply(
    _ entry: RelayEntry, isFull: Bool, _ copy: ReplicaSummary, recording record: RelayRecord, _ keys: Keys,
    _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    let close = entry.close(isFull: isFull, scope: copy.scope, recording: record)
    let applier = EntryApplier(store: store, copy: copy, close: close)
    // A copy that covers all of it already needs none of its records.
    guard isFull || !copy.vector.covers(entry.vector) else {
      try await storeWork { _ throws(StoreError) in try applier.finish() }
      return true
    }
    do throws(ReplicationError) {
      switch entry.content {
      case .inline(let payloads):
        report.receivedRecords += try await workers.run { () throws(ReplicationError) in
          try applier.apply(payloads, areLast: true)
        }
      case .parts(let parts):
        guard try await apply(parts, with: applier, keys, &report) else { return false }
      }
      try await storeWork { _ throws(StoreError) in try applier.finish() }
      return true
    } catch {
      switch error.store?.code {
      case .rolledBack?:
        report.remarks.append(error.message)
        try await storeWork { store throws(StoreError) in try store.becomeNewActor() }
        return true
      case .overtaken?:
        // A concurrent session has given this copy a new actor.
        return true
      default: throw error
      }
    }
  }
}

extension RelayClient {
  /// A part that was read: its payloads, or why it cannot be used.
  private struct PartReading: Sendable {
    var payloads: [[UInt8]]?
    var setAside: [RelayReport.SetAside] = []
    var error: ReplicationError?
  }

  /// Applies parts in order; each is read while the one before it is applied. False if one cannot be read.
  private func apply(
    _ parts: [RelayPart], with applier: EntryApplier, _ keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    var reading = await reading(of: parts.first, keys)
    for number in 1..<parts.count + 1 {
      if let error = reading.error { throw error }
      for object in reading.setAside { report.setAside(object.object, object.reason) }
      guard let payloads = reading.payloads else { return false }
      let isLast = number == parts.count
      async let following = self.reading(of: isLast ? nil : parts[number], keys)
      report.receivedRecords += try await workers.run { () throws(ReplicationError) in
        try applier.apply(payloads, areLast: isLast)
      }
      reading = await following
    }
    return true
  }

  private func reading(of part: RelayPart?, _ keys: Keys) async -> PartReading {
    var (reading, report) = (PartReading(), RelayReport(relay: name))
    guard let part else { return reading }
    do throws(ReplicationError) { reading.payloads = try await payloads(of: part, keys, &report) } catch {
      reading.error = error
    }
    reading.setAside = report.setAside
    return reading
  }
}

/// Applies the batches of one entry to the store. Blocks.
final class EntryApplier: Sendable {
  private let store: Store
  private let copy: ReplicaSummary
  private let close: RoundClose
  private let full: FullState?
  private let isClosed = LockedField(false)

  init(store: Store, copy: ReplicaSummary, close: RoundClose) {
    (self.store, self.copy, self.close) = (store, copy, close)
    full = close.isFull ? FullState() : nil
  }

  private var expected: ExpectedReplicaState { ExpectedReplicaState(actor: copy.actor) }

  /// Applies batches; `areLast` ones of an increment close it. Returns the number of users' records.
  func apply(_ payloads: [[UInt8]], areLast: Bool) throws(ReplicationError) -> Int {
    var users = 0
    for (index, payload) in payloads.enumerated() {
      let decoded: RecordCodec.DecodedBatch
      do throws(DecodingFailure) { decoded = try RecordCodec.read(payload) } catch {
        throw ReplicationError(.protocolViolation, "a batch cannot be read: \(error.description)")
      }
      let isLast = areLast && index + 1 == payloads.count && full == nil
      users += decoded.records.userCount
      try mappingStoreErrors { () throws(StoreError) in try self.apply(decoded, isLast: isLast) }
    }
    return users
  }

  private func apply(_ decoded: RecordCodec.DecodedBatch, isLast: Bool) throws(StoreError) {
    var batch = IncomingBatch(
      sender: close.sender, mark: close.mark, position: decoded.position,
      records: Self.records(decoded.records, in: copy.scope), present: decoded.present, scope: copy.scope,
      expansion: nil)
    batch.expectedState = expected
    var partial = close.relay
    if var progress = try partial.map({ relay throws(StoreError) in try store.relayProgress(relay.relay) }) {
      progress.isPartial = true
      partial?.progress = progress
    }
    batch.relay = partial
    var closing = close
    closing.expectedState = expected
    _ = try store.applyBatch(batch, full, closing: isLast ? closing : nil)
    if isLast { isClosed.withLock { $0 = true } }
  }

  /// Closes the entry, if its last batch has not done so.
  func finish() throws(StoreError) {
    guard isClosed.withLock({ !exchange(&$0, with: true) }) else { return }
    var closing = close
    closing.expectedState = expected
    try store.finish(closing, full)
  }

  /// The records that a copy with this scope holds. Transactions lose those that it does not.
  private static func records(_ records: BatchRecords, in scope: KeyScope?) -> BatchRecords {
    guard let scope else { return records }
    var kept: [PositionedRecord] = []
    for item in records.list {
      let isHeld = item.record.isReserved || scope.contains(item.record.key)
      if isHeld { kept.append(item) }
      // The last record of a transaction ends it, whether it is held or not.
      if !item.record.continues, let last = kept.indices.last { kept[last].record.continues = false }
    }
    return .list(kept)
  }
}
