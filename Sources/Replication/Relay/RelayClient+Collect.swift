internal import SyncStore

/// Deleting objects that no member needs any more (rule L11).
extension RelayClient {
  /// Deletes, or with `isDryRun` only counts, the objects that the relay need not keep: entries of the own
  /// stream that all members have read and a checkpoint covers, older checkpoints, and objects that nothing
  /// refers to, a day after they were named as doomed.
  ///
  /// - Throws: as `pull`; `.unavailable` if the relay has entries that this copy cannot read yet: it cannot
  ///   tell then what they refer to.
  package func collect(isDryRun: Bool) async throws(ReplicationError) -> RelayReport {
    try await claiming { report throws(ReplicationError) in
      guard let format = try await self.format(creates: false) else { return }
      try await self.pull(format, &report)
      guard report.waitingEntries == 0 else {
        throw ReplicationError(
          .unavailable,
          "\(self.name): \(CountText.of(report.waitingEntries, noun: "entry", plural: "entries")) there cannot be read yet: nothing is deleted: see `relay status`"
        )
      }
      let progress = try await self.storeWork { store throws(StoreError) in
        try store.relayProgress(format.relay)
      }
      let keys = try await self.keys(format)
      let view = try await self.readHeads(progress, keys, &report)
      guard let stream = progress.stream, let head = view.streams[stream]?.head else { return }
      try await self.collect(head, with: keys, isDryRun: isDryRun, &report)
    }
  }

  private func collect(
    _ head: RelayHead, with keys: Keys, isDryRun: Bool, _ report: inout RelayReport
  ) async throws(ReplicationError) {
    let view = try await readOwnRuns(head, keys, &report)
    let listed = try await list("")
    guard let clock = objects.clock else {
      throw ReplicationError(
        .unavailable, "\(name): it does not say what time it is: without that nothing can be deleted there")
    }
    var ages: StringDictionary<UInt64> = [:]
    for entry in listed { ages[entry.name] = entry.modified.map { clock - min(clock, $0) } }
    let collection = RelayCollection(
      of: head, in: view, readers: try await readers(of: head.stream, view), ages: ages)
    let unreferenced =
      try await unreferenced(among: listed, by: head, in: view, with: keys) + RelayName.abandoned(ages)
    let dooms = RelayDooms(
      earlier: head.doomed, unreferenced: unreferenced, written: listed, at: clock)
    let gone = StringSet(collection.deletions + dooms.due)
    report.collectedObjects = gone.count
    report.collectedBytes = listed.reduce(0) { $0 + (gone.contains($1.name) ? $1.size : 0) }
    report.doomedObjects = dooms.left.count
    let total = listed.reduce(0) { $0 + $1.size }
    report.storedBytes = isDryRun ? total : total - report.collectedBytes
    guard !isDryRun else { return }
    var new = head
    (new.runs, new.checkpoints, new.doomed) = (collection.runs, collection.checkpoints, dooms.left)
    new.time = store.environment.now()
    if new != head {
      // What no head names can go; never the other way round.
      guard try await write(new, keys) else {
        throw ReplicationError(.unavailable, "\(name): this copy's stream changed meanwhile: try again")
      }
      // Members that rely on an object that is doomed by now read so.
      if !dooms.left.isEmpty { try await ringBell() }
    }
    memory.withLock { memory in
      for name in gone { memory.blobsThere.remove(name) }
    }
    try await delete(gone)
  }

  /// Reads the runs of a stream, and the tables of all named checkpoints.
  private func readOwnRuns(
    _ head: RelayHead, _ keys: Keys, _ report: inout RelayReport
  ) async throws(ReplicationError) -> RelayView {
    var view = memory.withLock { $0.view }
    for reference in head.runs where view.streams[head.stream]?.runs[reference.numbers.lowerBound] == nil {
      view = try await readRun(head.stream, at: reference, keys, into: &report)
    }
    for (name, reference) in view.namedCheckpoints where view.checkpoints[name] == nil {
      view = try await readCheckpoint(name, reference, keys, &report)
    }
    return view
  }

  /// For each other member that may read, the last entry of the stream that it has read; nil for none.
  private func readers(of stream: StreamID, _ view: RelayView) async throws(ReplicationError) -> [UInt64?] {
    let (store, own) = (store, identity.id)
    let members = try await workers.run { () throws(ReplicationError) in
      try Membership(store).members().filter { $0.right != .revoked && $0.device != own }
    }
    return members.map { member in
      view.streams.values.filter { $0.head.device == member.device }
        .compactMap { $0.head.seen[stream]?.number }.max()
    }
  }

  /// Objects of the own stream that its head does not name, and objects of large values that no record here
  /// refers to. Large values only if this copy holds all keys.
  private func unreferenced(
    among listed: [ObjectEntry], by head: RelayHead, in view: RelayView, with keys: Keys
  ) async throws(ReplicationError) -> [String] {
    var named = view.names(ofStream: head.stream)
    let own = ["e/\(head.stream)/", "c/\(head.stream)/"]
    var unreferenced = listed.map(\.name).filter { name in
      own.contains { name.hasPrefix($0) } && !named.contains(name)
    }
    let blobs = listed.map(\.name).filter { $0.hasPrefix(RelayName.blobs) }
    let isWhole = try await storeWork { store throws(StoreError) in try store.relayReplica().scope == nil }
    guard !blobs.isEmpty, isWhole else { return unreferenced }
    let references = try await storeWork { store throws(StoreError) in try store.referencedBlobs() }
    for blob in references {
      let object = keys.format.blobName(blob.hash)
      named.insert(object)
      guard blob.size > RelayLimits.wholeBlobBytes else { continue }
      // If it cannot be read, its groups are not known: nothing under `b/` may go.
      guard let groups = try await groups(of: blob, as: object, with: keys) else {
        guard listed.contains(where: { $0.name == object }) else { continue }
        return unreferenced
      }
      for group in groups { named.insert(keys.format.blobName(group.hash)) }
    }
    unreferenced += blobs.filter { !named.contains($0) }
    return unreferenced
  }
}

/// Which objects are doomed, and which of them are due. Pure.
struct RelayDooms {
  /// To be deleted now.
  var due: [String] = []
  /// Doomed from now on, or still.
  var left: [RelayDoom] = []

  /// Decides.
  ///
  /// - Parameters:
  ///   - earlier: those that the head names.
  ///   - unreferenced: objects that nothing refers to now.
  ///   - listed: all objects, with their times.
  ///   - clock: the store's time.
  init(earlier: [RelayDoom], unreferenced: [String], written listed: [ObjectEntry], at clock: UInt64) {
    let since = StringDictionary(first: earlier.map { ($0.name, $0.time) })
    let times = StringDictionary(first: listed.map { ($0.name, $0.modified) })
    for name in unreferenced {
      // One that was written since is needed by a member.
      guard let time = since[name], let written = times[name] ?? nil, written <= time else {
        left.append(RelayDoom(name: name, time: clock))
        continue
      }
      if clock >= time, clock - time >= RelayLimits.doomMilliseconds {
        due.append(name)
      } else {
        left.append(RelayDoom(name: name, time: time))
      }
    }
    // The oldest first: beyond the limit, the rest waits for a later collection.
    left.sort { ($0.time, $0.name) < ($1.time, $1.name) }
    left = Array(left.prefix(RelayLimits.doomed))
  }
}

extension RelayView {
  /// The objects that a stream's head, runs and checkpoints name, and its own head.
  func names(ofStream stream: StreamID) -> StringSet {
    guard let known = streams[stream] else { return [] }
    var names: StringSet = [RelayName.head(stream)]
    for reference in known.head.runs { names.insert(RelayName.run(stream, reference.numbers)) }
    for run in [known.head.run] + known.runs.values {
      for part in run.entries.flatMap(\.parts) { names.insert(part.name) }
    }
    for reference in known.head.checkpoints {
      names.insert(RelayName.checkpoint(stream, reference.place))
      let name = CheckpointName(stream: stream, place: reference.place)
      for part in checkpoints[name].flatMap({ $0 })?.state.parts ?? [] { names.insert(part.name) }
    }
    return names
  }
}
