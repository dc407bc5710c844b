package import SyncStore

/// The part of a relay read so far: heads, runs and tables of checkpoints. A value, without I/O.
package struct RelayView: Sendable {
  /// A stream of the relay.
  package struct Stream: Sendable {
    /// Its head.
    package var head: RelayHead
    /// The right of the device that writes it.
    package var standing: Standing
    /// Whether it may write in this store. Of a stream of any other device only what a trusted one has read
    /// counts.
    package var isTrusted: Bool { standing == .writer }
    /// Runs before the one in the head, by the number of their first entry.
    package var runs: [UInt64: RelayRun] = [:]
    /// Runs that are named and not there, or unreadable.
    package var missingRuns: Set<UInt64> = []
    /// Entries whose parts are missing, or unreadable.
    package var missingEntries: Set<UInt64> = []

    /// A stream whose head alone was read.
    package init(head: RelayHead, standing: Standing) { (self.head, self.standing) = (head, standing) }
  }

  /// The right of a device that writes a stream.
  package enum Standing: Hashable, Sendable {
    /// A member that may write.
    case writer
    /// A member that may only read: what it has seen and asks for counts.
    case reader
    /// A member that was revoked.
    case revoked
    /// One that this copy has yet to hear of.
    case stranger

    /// Whether it is a member now.
    package var isMember: Bool { self == .writer || self == .reader }
  }

  /// Where an entry is.
  package enum Found: Sendable {
    /// Here, after that place.
    case entry(RelayEntry, after: RelayProgress.Place?)
    /// In a run that was not read yet.
    case inRun(RelayRunReference)
    /// Nowhere: it was collected, or it is missing.
    case gone
  }

  /// Names a checkpoint.
  package struct CheckpointName: Hashable, Sendable {
    /// The stream that names it.
    package var stream: StreamID
    /// Its entry.
    package var place: RelayProgress.Place
  }

  /// The streams whose heads were read.
  package var streams: [StreamID: Stream] = [:]
  /// Streams whose heads were asked for by name and are not there.
  package var absentHeads: Set<StreamID> = []
  /// Checkpoints whose tables were read; nil for one that is missing or unreadable.
  package var checkpoints: [CheckpointName: RelayCheckpoint?] = [:]

  /// Nothing was read.
  package init() {}

  /// The last entry of a stream that may be read.
  package func limit(of stream: StreamID) -> UInt64 {
    guard let known = streams[stream] else { return 0 }
    let last = known.head.last?.number ?? 0
    if known.isTrusted { return last }
    let vouched = streams.values.lazy.filter(\.isTrusted).compactMap { $0.head.seen[stream]?.number }.max()
    return min(last, vouched ?? 0)
  }

  /// Whether a stream has entries that may count later: its device is not known yet, or may not write now.
  package var hasEntriesThatMayCount: Bool {
    streams.contains { $0.value.standing != .revoked && limit(of: $0.key) < $0.value.head.last?.number ?? 0 }
  }

  /// The entry with a number.
  package func find(_ number: UInt64, in stream: StreamID) -> Found {
    guard let known = streams[stream] else { return .gone }
    if known.missingEntries.contains(number) { return .gone }
    let run = known.head.run
    if let entry = run.entry(number) { return .entry(entry, after: run.place(before: number)) }
    guard let reference = known.head.runs.first(where: { $0.numbers.contains(number) }),
      !known.missingRuns.contains(reference.numbers.lowerBound)
    else { return .gone }
    guard let run = known.runs[reference.numbers.lowerBound] else { return .inRun(reference) }
    guard let entry = run.entry(number) else { return .gone }
    return .entry(entry, after: run.place(before: number))
  }

  /// The mark of an entry, as far as it is known.
  package func mark(of number: UInt64, in stream: StreamID) -> RoundMark? {
    guard let known = streams[stream] else { return nil }
    if let last = known.head.last, last.number == number { return last.mark }
    for run in [known.head.run] + known.runs.values {
      if let entry = run.entry(number) { return entry.place.mark }
      if let previous = run.previous, previous.number == number { return previous.mark }
    }
    return nil
  }

  /// Whether a place is not, or no longer, in its stream, or the entry there is another one.
  package func lacks(_ place: RelayProgress.Place, in stream: StreamID) -> Bool {
    guard let known = streams[stream] else { return absentHeads.contains(stream) }
    guard let last = known.head.last, last.number >= place.number else { return true }
    return mark(of: place.number, in: stream).map { $0 != place.mark } ?? false
  }

  /// Whether everything that a checkpoint stands for is there, and the same.
  package func stands(_ checkpoint: RelayCheckpoint) -> Bool {
    checkpoint.places.allSatisfy { streams[$0.key] != nil && !lacks($0.value, in: $0.key) }
  }

  /// Whether another member than the writer of `own` needs a full state, and there is no checkpoint that it
  /// has not tried.
  package func isStateWanted(except own: StreamID?) -> Bool {
    let asking = streams.filter {
      $0.key != own && $0.value.standing.isMember && $0.value.head.needsFullState
    }
    guard !asking.isEmpty else { return false }
    let named = namedCheckpoints.prefix(RelayLimits.tried).map(\.reference.fingerprint)
    return asking.values.contains { known in named.allSatisfy { known.head.tried.contains($0) } }
  }

  /// Checkpoints named by trusted streams, newest first.
  package var namedCheckpoints: [(name: CheckpointName, reference: RelayCheckpointReference)] {
    streams.flatMap { stream, known in
      known.isTrusted
        ? known.head.checkpoints.map { (CheckpointName(stream: stream, place: $0.place), $0) } : []
    }
    .sorted { ($0.1.time, $0.0.stream) > ($1.1.time, $1.0.stream) }
  }
}

/// Entries left unread after everything that could be read.
package struct RelayBacklog: Hashable, Sendable {
  /// Why entries wait.
  package enum Reason: String, Hashable, Sendable, CaseIterable {
    /// Entries that they presume have not come yet.
    case dependencies
    /// They, or entries before them, are not in the relay, and no checkpoint stands for them.
    case gone
    /// This copy needs a full state, and no checkpoint gives one.
    case fullState = "full-state"
  }

  /// Entries of a stream that wait.
  package struct Waiting: Hashable, Sendable {
    /// Their number.
    package var entries: UInt64
    /// Why.
    package var reason: Reason
  }

  /// The streams with entries that wait.
  package var waiting: [StreamID: Waiting] = [:]

  /// Nothing waits.
  package init() {}

  /// Whether nothing waits.
  package var isEmpty: Bool { waiting.isEmpty }

  /// Number of entries that wait.
  package var entries: UInt64 { waiting.values.reduce(0) { $0 + $1.entries } }
}

/// Decides what a copy reads next of a relay (rules L3–L9, L12). Pure: the same view, progress and copy give
/// the same step.
package struct RelayReader {
  /// The next step.
  package enum Step: Sendable {
    /// The relay lacks what this copy has seen there: forget it (L6).
    case startOver(String)
    /// This copy was rolled back, or another one lives its life (R9, L8, L9).
    case becomeNewActor(String)
    /// Read a run.
    case fetchRun(StreamID, RelayRunReference)
    /// Apply the records of an entry, if it brings any, and close it.
    case apply(StreamID, RelayEntry)
    /// Read the table of a checkpoint.
    case fetchCheckpoint(RelayView.CheckpointName, RelayCheckpointReference)
    /// Apply a checkpoint, as an increment or as a full state.
    case take(RelayCheckpoint, isFull: Bool)
    /// Nothing more can be read.
    case end(RelayBacklog)
  }

  private let view: RelayView
  private let progress: RelayProgress
  private let copy: ReplicaSummary

  /// A reader of what was read of a relay, for a copy in a state.
  package init(_ view: RelayView, _ progress: RelayProgress, for copy: ReplicaSummary) {
    (self.view, self.progress, self.copy) = (view, progress, copy)
  }

  /// The next step.
  package var next: Step {
    if let why = loss { return .startOver(why) }
    var backlog = RelayBacklog()
    // A copy that has read nothing yet begins with a checkpoint, which stands for all entries before it.
    if progress.seen.isEmpty, progress.last == nil, let step = stepWithCheckpoint { return step }
    for (stream, known) in view.streams.sorted(by: { $0.key < $1.key }) where stream != progress.stream {
      if known.head.actor == copy.actor, !progress.ownStreams.contains(stream) {
        return .becomeNewActor("another copy writes in the relay under this copy's name")
      }
      if let step = step(in: stream, known, &backlog) { return step }
    }
    guard copy.health != .healthy || !backlog.isEmpty else { return .end(backlog) }
    return stepWithCheckpoint ?? .end(backlog)
  }

  /// Why the relay is not what it was; nil if it may be.
  var loss: String? {
    if let own = progress.stream, let last = progress.last, view.lacks(last, in: own) {
      return "the relay lacks what this copy has published there"
    }
    for (stream, place) in progress.seen where view.lacks(place, in: stream) {
      return "the relay lacks what this copy has read there"
    }
    return nil
  }

  private func step(
    in stream: StreamID, _ known: RelayView.Stream, _ backlog: inout RelayBacklog
  ) -> Step? {
    let place = progress.place(in: stream)
    let (read, limit) = (place?.number ?? 0, view.limit(of: stream))
    guard read < limit else { return nil }
    func waits(_ reason: RelayBacklog.Reason) -> Step? {
      backlog.waiting[stream] = RelayBacklog.Waiting(entries: limit - read, reason: reason)
      return nil
    }
    switch view.find(read + 1, in: stream) {
    case .inRun(let reference): return .fetchRun(stream, reference)
    case .gone: return waits(.gone)
    case .entry(let entry, let before):
      if before != place { return .startOver("the relay has other entries than this copy has read there") }
      if let why = echo(of: entry, in: stream) { return .becomeNewActor(why) }
      guard copy.health == .healthy else { return waits(.fullState) }
      guard entry.isNarrow || copy.vector.covers(entry.floor) else { return waits(.fullState) }
      guard hasDependencies(of: entry) else { return waits(.dependencies) }
      return .apply(stream, entry)
    }
  }

  /// Why an entry shows that this copy was rolled back; nil if it does not.
  private func echo(of entry: RelayEntry, in stream: StreamID) -> String? {
    if entry.vector[copy.actor] > copy.sequence {
      return "a copy covers writes of this copy that it does not know"
    }
    if entry.actor == copy.actor, !progress.ownStreams.contains(stream) {
      return "another copy has published in the relay under this copy's name"
    }
    guard let own = progress.stream, let theirs = entry.dependencies[own] else { return nil }
    let known = (progress.last?.number ?? 0) + (progress.pending == nil ? 0 : 1)
    return theirs.number > known
      ? "a copy has read more of this copy in the relay than it has published" : nil
  }

  private func hasDependencies(of entry: RelayEntry) -> Bool {
    entry.dependencies.allSatisfy { stream, place in
      guard let reached = progress.place(in: stream), reached.number >= place.number else { return false }
      if reached.number == place.number { return reached.mark == place.mark }
      return !view.lacks(place, in: stream)
    }
  }

  // MARK: Checkpoints

  /// The first checkpoint, newest first, that brings something; nil if none does.
  private var stepWithCheckpoint: Step? {
    for (name, reference) in view.namedCheckpoints {
      guard let read = view.checkpoints[name] else { return .fetchCheckpoint(name, reference) }
      guard let checkpoint = read, view.stands(checkpoint) else { continue }
      if let why = echo(of: checkpoint.state, in: checkpoint.stream) { return .becomeNewActor(why) }
      let isFull = copy.health != .healthy || !copy.vector.covers(checkpoint.state.floor)
      if copy.health == .recovering, !checkpoint.state.vector.covers(copy.floor) { continue }
      guard isFull || !hasRead(checkpoint) else { continue }
      return .take(checkpoint, isFull: isFull)
    }
    return nil
  }

  /// Of its own stream a copy has everything, also an entry that it has yet to learn it has published.
  private func hasRead(_ checkpoint: RelayCheckpoint) -> Bool {
    checkpoint.places.allSatisfy { stream, place in
      stream == progress.stream || (progress.seen[stream]?.number ?? 0) >= place.number
    }
  }
}

extension RelayProgress {
  /// After an entry was read and closed. `merged` is what a close that is not owed has added to the vector.
  mutating func read(_ entry: RelayEntry, in stream: StreamID, by copy: ReplicaSummary) {
    seen[stream] = entry.place
    isPartial = false
    guard entry.isNarrow else { return covered.merge(entry.vector) }
    guard entry.sequence > 0 else { return }
    let close = OwedClose(actor: entry.actor, vector: entry.vector, floor: entry.floor)
    if let addition = close.addition(to: copy.vector) { covered.merge(addition) } else { owe(close) }
  }

  /// After a checkpoint was taken.
  mutating func read(_ checkpoint: RelayCheckpoint) {
    isPartial = false
    covered.merge(checkpoint.closing)
    for (stream, place) in checkpoint.places where stream != self.stream {
      if (seen[stream]?.number ?? 0) < place.number { seen[stream] = place }
    }
  }

  /// After an entry of the own stream was published.
  mutating func published(_ entry: RelayEntry) {
    publish(entry.place, upTo: entry.position)
    covered.merge(entry.isNarrow ? VersionVector([entry.actor: entry.sequence]) : entry.vector)
  }
}
