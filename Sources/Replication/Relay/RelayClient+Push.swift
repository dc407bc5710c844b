internal import SyncStore

/// Publishing what is new in the store.
extension RelayClient {
  /// Attempts of one push: each time this copy turned out to have been put back, or its own entry to be
  /// there.
  private static let attempts = 4

  /// Publishes everything that is new here; all of it is durable in the relay on return.
  ///
  /// - Throws: `.store` with `.unsettled` if this copy is in doubt about itself (it was damaged or put back):
  ///   let it `pull` first; otherwise as `pull`.
  package func push() async throws(ReplicationError) -> RelayReport {
    try await claiming { report throws(ReplicationError) in
      guard let format = try await self.format(creates: true) else { return }
      try await self.push(format, [.readsHeads, .acknowledges], &report)
      try await self.answerRequests(format, &report)
    }
  }

  /// Publishes everything that is new here, as far as is known without a look into the relay: nothing new
  /// costs no request.
  package func publish() async throws(ReplicationError) -> RelayReport {
    try await claiming { report throws(ReplicationError) in
      guard try await self.mayPublish(), let format = try await self.format(creates: true) else { return }
      try await self.push(format, [], &report)
    }
  }

  /// Reads everything, then publishes what is new; a copy that may only read states what it has read.
  /// With `acknowledges`, the head also states what was read if there is nothing to publish.
  package func sync(acknowledges: Bool = true) async throws(ReplicationError) -> RelayReport {
    try await claiming { report throws(ReplicationError) in
      guard let format = try await self.format(creates: true) else { return }
      try await self.pull(format, &report)
      if try await self.mayPublish() {
        try await self.push(format, acknowledges ? .acknowledges : [], &report)
        try await self.answerRequests(format, &report)
      } else if acknowledges {
        try await self.acknowledge(format)
      }
    }
  }

  /// How `push` is done.
  struct PushOptions: OptionSet {
    let rawValue: Int
    /// The heads are read first: nothing has just read them.
    static let readsHeads = PushOptions(rawValue: 1)
    /// The head states what was read, also if there is nothing to publish.
    static let acknowledges = PushOptions(rawValue: 2)
  }

  /// `push`, with the relays claimed.
  func push(
    _ format: RelayFormat, _ options: PushOptions, _ report: inout RelayReport
  ) async throws(ReplicationError) {
    try await checkMayPublish()
    var reads = options.contains(.readsHeads)
    for _ in 0..<Self.attempts {
      let isDone: Bool
      do throws(ReplicationError) {
        isDone = try await pushOnce(format, readsHeads: reads, &report)
      } catch {
        // It can publish nothing before it has read a full state, and can ask for one.
        if error.store?.code == .unsettled { try await acknowledge(format) }
        throw error
      }
      if isDone {
        let asks = memory.withLock { $0.asks }
        if asks || options.contains(.acknowledges) { try await acknowledge(format) }
        return
      }
      // The relay is not as this copy knew it.
      reads = true
    }
    throw ReplicationError(
      .unavailable, "\(name): this copy's stream changed \(Self.attempts) times meanwhile: try again")
  }

  /// Throws `.notAllowed` if others would refuse what this copy publishes.
  private func checkMayPublish() async throws(ReplicationError) {
    let (store, name) = (store, name)
    try await workers.run { () throws(ReplicationError) in
      try Membership(store).checkMayDecide("publish in \(name)")
    }
  }

  /// Whether this copy may write.
  private func mayPublish() async throws(ReplicationError) -> Bool {
    try await storeWork { store throws(StoreError) in try store.writeDenial == nil }
  }

  /// One attempt; false if it must be made again.
  private func pushOnce(
    _ format: RelayFormat, readsHeads: Bool, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    let relay = format.relay
    let copy = try await storeWork { store throws(StoreError) in try store.relayReplica() }
    let progress = try await storeWork { store throws(StoreError) in try store.relayProgress(relay) }
    let keys = try await keys(format)
    // Another process of this copy may have published since this one has read its head.
    let isOwnUnknown =
      progress.last != nil
      && memory.withLock { memory in
        progress.stream.map { memory.heads[$0]?.head.last != progress.last } ?? false
      }
    let isRead = readsHeads || isOwnUnknown
    let view = isRead ? try await readHeads(progress, keys, &report) : memory.withLock { $0.view }
    // An entry that presumes what is gone could never be closed. Heads that were read earlier do not tell:
    // another process of this copy may have read more since.
    if isRead, let why = RelayReader(view, progress, for: copy).loss {
      report.remarks.append(why)
      try await update(relay, as: copy.actor) { $0.startOver() }
      return false
    }
    switch RelayPublisher(view, progress).ownStream {
    case .asKnown: break
    case .published(let entry):
      // Perhaps it was not rung: members that find the bell as they know it would not read the entry.
      try await ringBell()
      try await update(relay, as: copy.actor) { $0.published(entry) }
      return false
    case .continuedByAnother:
      report.remarks.append("another copy has published under this copy's name: this one takes another")
      try await storeWork { store throws(StoreError) in try store.becomeNewActor() }
      return false
    }
    try await shareKeys(in: view, with: keys)
    try await publishWanted(in: view, with: keys, &report)
    report.position = copy.position
    let isStateWanted = view.isStateWanted(except: progress.stream)
    let isCovered = progress.covered.covers(copy.vector) && progress.covered.covers(copy.floor)
    let state = Published(position: copy.position, vector: copy.vector, floor: copy.floor)
    let isPublished = memory.withLock { $0.published } == state
    if isCovered || isPublished, !isStateWanted { return true }
    var next = progress
    let stream = progress.stream ?? newStream(of: copy.actor)
    next.stream = stream
    next.ownStreams.insert(stream)
    let place = RelayProgress.Place(number: (progress.last?.number ?? 0) + 1, mark: newMark())
    next.begin(place.mark)
    let record = RelayRecord(relay: relay, progress: next)
    let round = try await storeWork { store throws(StoreError) in try store.openPublication(record) }
    guard
      round.count > 0 || !progress.covered.covers(Self.closing(round.close, copy))
        || !progress.covered.covers(round.close.floor) || (isStateWanted && copy.scope == nil)
    else {
      memory.withLock { $0.published = Published(round.close) }
      return true
    }
    let publication = RelayPublication(
      keys: keys, view: view, progress: next, copy: copy, stream: stream, place: place,
      isStateWanted: isStateWanted)
    let isDone = try await publish(round, publication, &report)
    if isDone { memory.withLock { $0.published = Published(round.close) } }
    return isDone
  }

  /// What readers merge of a round.
  private static func closing(_ close: RoundClose, _ copy: ReplicaSummary) -> VersionVector {
    copy.scope == nil ? close.vector : VersionVector([close.sender: close.vector[close.sender]])
  }

  /// A name for a new stream of `actor`. From the store's generator, as marks are: the order in which streams
  /// are read follows their names, and a simulated history must be the same each time.
  func newStream(of actor: ActorID) -> StreamID {
    let name = store.environment.newMark(mixing: Array("relay stream".utf8) + actor.bytes)
    return StreamID(high: name.high, low: name.low)
  }

  private func newMark() -> RoundMark {
    store.environment.newMark(mixing: Array("relay".utf8) + store.id.bytes)
  }

  // MARK: One entry

  /// Writes the objects of an entry, then the head that makes it exist, then the bell. False if the head was
  /// not as this copy left it.
  private func publish(
    _ round: DeltaStream, _ publication: RelayPublication, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    let (stream, place) = (publication.stream, publication.place)
    let writer = RelayPartWriter(client: self, keys: publication.keys) {
      RelayName.part(stream, place, index: $0)
    }
    let written = try await writer.write(round, inline: RelayLimits.inlineEntryBytes)
    try await publish(written.blobs, with: publication.keys, &report)
    var entry = publication.entry(of: round.close, written.content, records: written.records)
    entry.digest = try await digest(for: entry)
    entry.time = store.environment.now()
    var head = head(
      of: publication.stream, in: publication.view, after: publication.progress, by: publication.copy)
    head.time = entry.time
    let isDue = try await isCheckpointDue(adding: written.bytes, publication, &report)
    let isBehind = !publication.progress.covered.covers(entry.floor)
    let isWhole = publication.isWhole && !entry.parts.isEmpty
    head.total += written.bytes
    if publication.copy.scope == nil,
      isBehind || isDue || isWhole || publication.isStateWanted
    {
      let checkpoint = try await writeCheckpoint(
        entry, written.bytes, publication, sharesParts: isWhole, &report)
      head.checkpoints.append(checkpoint)
      head.checkpoints = head.checkpoints.suffix(RelayLimits.checkpoints)
    }
    try await append(entry, to: &head, publication)
    guard try await write(head, publication.keys) else { return false }
    report.sentRecords += written.users
    report.position = entry.position
    try await ringBell()
    try await deleteDamagedHeads()
    let published = entry
    try await update(publication.keys.format.relay, as: publication.copy.actor) { $0.published(published) }
    return true
  }

  /// Tells those who have read everything that there is something new.
  func ringBell() async throws(ReplicationError) {
    _ = try await put(RelayName.bell, SecureRandom.bytes(16), if: .always)
  }

  /// Deletes own heads that cannot be read, now that everything is published in another stream.
  private func deleteDamagedHeads() async throws(ReplicationError) {
    let streams = memory.withLock { exchange(&$0.damagedHeads, with: []) }
    try await delete(StringSet(streams.map { RelayName.head($0) }))
  }

  /// The digest of this copy, if it is that of exactly what the entry covers.
  private func digest(for entry: RelayEntry) async throws(ReplicationError) -> RelayEntry.StatedDigest? {
    guard !entry.isNarrow else { return nil }
    return try await storeWork { store throws(StoreError) in
      guard try store.holdsOnlyCovered() else { return nil }
      let time = store.environment.now()
      let (summary, digest, _) = try store.replicaSummary(digestAt: time)
      return summary.vector == entry.vector ? RelayEntry.StatedDigest(digest: digest, time: time) : nil
    }
  }

  /// Adds an entry to a head. If the head would become too large, its other entries become a run.
  private func append(
    _ entry: RelayEntry, to head: inout RelayHead, _ publication: RelayPublication
  ) async throws(ReplicationError) {
    var longer = head.run
    longer.entries.append(entry)
    if longer.bytes.count > RelayLimits.inlineBytes, !head.run.entries.isEmpty {
      let numbers = head.run.first...head.run.first + UInt64(head.run.entries.count) - 1
      let name = RelayName.run(head.stream, numbers)
      let bytes = try publication.keys.encrypt(head.run.bytes, as: name)
      _ = try await put(name, bytes, if: .always)
      head.runs.append(
        RelayRunReference(
          numbers: numbers, bytes: UInt64(bytes.count), fingerprint: RelaySeal.fingerprint(bytes)))
      if head.runs.count > RelayLimits.runs { head.runs.removeFirst(head.runs.count - RelayLimits.runs) }
      longer = RelayRun(stream: head.stream, after: head.run.last)
      longer.entries.append(entry)
    }
    head.run = longer
  }

  /// Writes the own head over the version that this copy knows. False if it was another one.
  func write(_ head: RelayHead, _ keys: Keys) async throws(ReplicationError) -> Bool {
    let name = RelayName.head(head.stream)
    let signed = head.signedBytes
    let signature = try identity.signature(of: Self.signedText(signed, keys.seal.relay))
    let bytes = try keys.encrypt(signed + signature, as: name)
    let known = memory.withLock { $0.heads[head.stream] }
    if known?.head.seen != head.seen {
      // A pull that failed, or whose process died, has read what is not durable yet; others may delete what
      // all have seen.
      try await storeWork { store throws(StoreError) in try store.sync() }
    }
    let condition: PutCondition =
      known.map { known in known.version.map { .version($0) } ?? .always } ?? .absent
    let outcome = try await put(name, bytes, if: condition)
    guard case .stored(let version) = outcome else {
      // Perhaps the answer to a first attempt was lost, and it is there: the next attempt reads it.
      memory.withLock { $0.heads[head.stream] = nil }
      return false
    }
    memory.withLock { memory in
      memory.heads[head.stream] = (head, version)
      var stream = memory.view.streams[head.stream] ?? RelayView.Stream(head: head, standing: .writer)
      (stream.head, stream.standing) = (head, keys.standing(of: head.device))
      memory.view.streams[head.stream] = stream
      memory.view.absentHeads.remove(head.stream)
    }
    return true
  }

  // MARK: Checkpoints

  /// Whether a checkpoint is due. Checkpoints of other members are read first, which no pull has needed:
  /// otherwise each member would write one of its own.
  private func isCheckpointDue(
    adding bytes: UInt64, _ publication: RelayPublication, _ report: inout RelayReport
  ) async throws(ReplicationError) -> Bool {
    var publisher = RelayPublisher(publication.view, publication.progress)
    while publisher.isCheckpointDue(adding: bytes) {
      guard let (name, reference) = publisher.unreadCheckpoint else { return true }
      let view = try await readCheckpoint(name, reference, publication.keys, &report)
      publisher = RelayPublisher(view, publication.progress)
    }
    return false
  }

  /// Writes a full state that stands for the entry and all that it depends on (rule L5).
  ///
  /// Its snapshot is taken after that of the entry, so it covers the entry's floor. The first entry of all
  /// has every record: its parts serve as the checkpoint's.
  private func writeCheckpoint(
    _ entry: RelayEntry, _ bytes: UInt64, _ publication: RelayPublication, sharesParts: Bool,
    _ report: inout RelayReport
  ) async throws(ReplicationError) -> RelayCheckpointReference {
    let (stream, place, keys) = (publication.stream, publication.place, publication.keys)
    var (state, size) = (entry, bytes)
    if !sharesParts {
      let round = try await storeWork { store throws(StoreError) in try store.openCheckpoint() }
      let writer = RelayPartWriter(client: self, keys: keys) {
        RelayName.checkpointPart(stream, place, index: $0)
      }
      let written = try await writer.write(round, inline: RelayLimits.inlineEntryBytes)
      try await publish(written.blobs, with: keys, &report)
      state = publication.entry(of: round.close, written.content, records: written.records)
      (state.time, size) = (entry.time, written.bytes)
    }
    let places = state.dependencies.merging([stream: place]) { $1 }
    let checkpoint = RelayCheckpoint(
      stream: stream, state: state,
      totals: RelayPublisher(publication.view, publication.progress).totals(at: places), bytes: size,
      closing: entry.vector)
    let name = RelayName.checkpoint(stream, place)
    let table = try keys.encrypt(checkpoint.bytesOfTable, as: name)
    _ = try await put(name, table, if: .always)
    report.checkpoints += 1
    memory.withLock {
      $0.view.checkpoints[RelayView.CheckpointName(stream: stream, place: place)] = .some(checkpoint)
    }
    return RelayCheckpointReference(
      place: place, time: entry.time, fingerprint: RelaySeal.fingerprint(table))
  }
}

extension RelayClient.Published {
  /// The state that a round has closed.
  init(_ close: RoundClose) {
    self.init(position: close.position, vector: close.vector, floor: close.floor)
  }
}

/// What one publication is made from. A value.
struct RelayPublication: Sendable {
  var keys: RelayClient.Keys
  var view: RelayView
  /// With the entry pending.
  var progress: RelayProgress
  var copy: ReplicaSummary
  var stream: StreamID
  var place: RelayProgress.Place
  /// Whether another member needs a full state newer than any there is.
  var isStateWanted: Bool

  /// Whether the entry has everything that this copy holds.
  var isWhole: Bool { progress.position == 0 && progress.covered.isEmpty }

  /// The entry for a round.
  func entry(of close: RoundClose, _ content: RelayEntry.Content, records: UInt64) -> RelayEntry {
    RelayEntry(
      place: place, actor: close.sender, sequence: close.vector[close.sender], position: close.position,
      vector: close.vector, floor: close.floor, horizon: close.horizon, dependencies: progress.seen,
      digest: nil,
      time: 0, isNarrow: copy.scope != nil, records: records, content: content)
  }
}
