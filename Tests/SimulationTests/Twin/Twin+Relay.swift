import SyncStore
import SyncTestSupport

@testable import Replication

/// Operations on a relay. The store works by whole pushes and pulls; the model follows each of their steps, in
/// the order that the store's rules give: streams by their names, checkpoints by their times. What the store
/// decides itself (which checkpoints it writes in addition, what it collects) the model takes over, if its
/// rules allow it.
extension Twin {
  /// From now on there is a relay. Every machine has its own keys there, and knows those of the others.
  func addRelay(_ use: Model.Relay.Use) throws {
    relay = TwinRelay(seed: random.next())
    model.relay.use = use
    for machine in machines { _ = try StoreKeys(machine.store).makeIdentity() }
  }

  func perform(_ operation: Model.RelayOperation) throws {
    guard let relay else { throw Mismatch("\(operation): the twin has no relay") }
    relay.objects.objects.time = UInt64(model.now * Self.unit)
    switch operation {
    case .publish(let copy, let loss): try publish(copy, losingPower: loss)
    case .checkpoint(let copy): try exchange(copy)
    // A pull reads one stream after the other: it can only be broken off. An entry as small as these ones is
    // applied as a whole.
    case .fetch(let copy, let stream, let count): try pull(copy, requests: count.map { 2 + stream + $0 })
    case .poll(let copy), .read(let copy, _): try pull(copy)
    case .collect:
      for copy in machines.indices where model.copies[copy].isAlive { try collect(copy) }
    case .loss(let which, _): putBack(which)
    case .newcomer(let isScoped):
      guard machines.count < Model.mostCopies else { return }
      try add(scope: isScoped ? Array(stride(from: 0, to: model.keys, by: 2)) : nil)
      model.count(.newcomer)
    }
  }

  private var theRelay: TwinRelay {
    guard let relay else { preconditionFailure("asked for by operations on the relay only") }
    return relay
  }

  /// The relay client of a machine. It is made again after the machine has reopened its store.
  private func client(_ copy: Int) throws -> RelayClient {
    let store = machines[copy].store
    try introduce(copy)
    if let known = theRelay.clients[copy], known.store === store { return known.client }
    let client = try RelayClient(store: store, objects: theRelay.objects, name: "relay")
    theRelay.clients[copy] = (store, client)
    return client
  }

  /// Names all other machines to this one. A record of a member would be a write, which the model knows
  /// nothing of; the name of a peer stays on its copy.
  private func introduce(_ copy: Int) throws {
    let membership = Membership(machines[copy].store)
    let known = Set(try membership.peers().map(\.name))
    for other in machines.indices where other != copy && !known.contains("peer-\(other)") {
      let device = try StoreKeys(machines[other].store).identity().id
      try membership.add(Peer(name: "peer-\(other)", addresses: ["peer:1"], device: device))
    }
  }

  // MARK: Reading

  /// Pulls at a copy; with `requests` the relay is gone after so many of them.
  private func pull(_ copy: Int, requests: Int? = nil) throws {
    try wake(copy)
    let client = try client(copy)
    theRelay.objects.objects.faults.diesAfter = requests
    let outcome = waiting { () throws(ReplicationError) in try await client.pull() }
    let isBroken = theRelay.objects.hasStopped
    theRelay.objects.objects.faults.diesAfter = nil
    switch outcome {
    case .success(let report): try follow(report, at: copy)
    case .failure where isBroken:
      // It has applied some of what there was.
      let reached = try theRelay.facts(of: machines[copy].store)
      while RelayFacts(of: model.copies[copy].live.relay) != reached, try readNext(copy) { capture(copy) }
    // A copied directory has forgotten its cursors, and with them that a round was received in part. It takes
    // itself for complete, and reports that the digests differ: a false alarm, until the rest has come.
    case .failure(let error) where error.code == .digestsDiffer && holdsUncovered(copy):
      while try readNext(copy) { capture(copy) }
      settle(copy)
    case .failure(let error): throw Mismatch("the pull of copy \(copy): \(error)")
    }
  }

  private func holdsUncovered(_ copy: Int) -> Bool { !model.copies[copy].live.isComplete(keys: model.keys) }

  /// The model reads all that a pull has read.
  private func follow(_ report: RelayReport, at copy: Int) throws {
    while try readNext(copy) { capture(copy) }
    settle(copy)
    let waiting = model.relay.streams.indices.map { unread(copy, $0 + 1) }.reduce(0, +)
    guard Int(report.waitingEntries) == waiting else {
      throw Mismatch("at copy \(copy) \(report.waitingEntries) entries wait, and in the model \(waiting)")
    }
  }

  /// Entries of a stream that a copy has yet to read.
  private func unread(_ copy: Int, _ stream: Int) -> Int {
    let state = model.copies[copy].live.relay
    return stream == state.stream ? 0 : max(0, model.relay.length(stream) - state.progress(stream))
  }

  /// The next step of a pull, as `RelayReader` decides it. False if there is none.
  private func readNext(_ copy: Int) throws -> Bool {
    let before = model.copies[copy].live
    model.detectLoss(copy)
    if model.copies[copy].live != before { return true }
    let state = before.relay
    let isNew = state.number == 0 && state.seen.allSatisfy { $0.id.number == 0 }
    if isNew, try readCheckpoint(copy) { return true }
    let streams = theRelay.streams.sorted { $0.key < $1.key }.map(\.value)
    for stream in streams where stream != state.stream {
      if try model.fetch(copy, stream) || model.copies[copy].live.actor != before.actor { return true }
    }
    guard !before.suspects.isEmpty || before.isMending || streams.contains(where: { unread(copy, $0) > 0 })
    else { return false }
    return try readCheckpoint(copy)
  }

  /// Reads the newest checkpoint that brings something. False if none does.
  private func readCheckpoint(_ copy: Int) throws -> Bool {
    let names = Dictionary(uniqueKeysWithValues: theRelay.streams.map { ($0.value, $0.key) })
    let newest = model.relay.checkpoints.indices.sorted { left, right in
      let (one, other) = (model.relay.checkpoints[left], model.relay.checkpoints[right])
      guard let first = names[one.id.stream], let second = names[other.id.stream] else { return left < right }
      return one.wall != other.wall ? one.wall > other.wall : first != second ? first > second : left < right
    }
    let before = model.copies[copy].live
    for index in newest {
      try model.read(copy, checkpoint: index)
      if model.copies[copy].live != before { return true }
    }
    return false
  }

  // MARK: Publishing

  private func publish(_ copy: Int, losingPower loss: Model.RelayOperation.PowerLoss) throws {
    try wake(copy)
    let client = try client(copy)
    let before = try theRelay.progress(of: machines[copy].store)
    theRelay.objects.plan = loss
    let outcome = waiting { () throws(ReplicationError) in try await client.push() }
    theRelay.objects.plan = .never
    guard theRelay.objects.hasStopped else { return try follow(outcome, ofPushAt: copy) }
    theRelay.objects.objects.faults.diesAfter = nil
    let after = try theRelay.progress(of: machines[copy].store)
    // Otherwise the head that it wrote only states what was read.
    if after.pending != nil, after.pending != before.pending {
      try model.publish(copy, loss, withCheckpoint: loss == .afterCreation && hasCheckpoint(after))
      capture(copy)
      settle(copy)
      theRelay.pair(after, with: model.copies[copy].live.relay)
      // It was not rung: running programs look again at their hundredth quiet look.
      theRelay.clients = [:]
    } else {
      // It may have found what it had published before.
      try model.publish(copy)
      capture(copy)
    }
    try crash(copy)
    keepSnapshot()
  }

  /// Whether there is a checkpoint of the entry that is pending.
  private func hasCheckpoint(_ progress: RelayProgress) -> Bool {
    guard let stream = progress.stream, let mark = progress.pending else { return false }
    let place = RelayProgress.Place(number: (progress.last?.number ?? 0) + 1, mark: mark)
    return theRelay.objects.objects.names.contains(RelayName.checkpoint(stream, place))
  }

  /// Pulls and pushes.
  private func exchange(_ copy: Int) throws {
    try wake(copy)
    let client = try client(copy)
    let outcome = waiting { () throws(ReplicationError) in try await client.sync() }
    switch outcome {
    case .success(let report): try follow(report, at: copy)
    case .failure(let error) where error.store?.code == .unsettled: while try readNext(copy) { capture(copy) }
    case .failure(let error): throw Mismatch("the exchange of copy \(copy): \(error)")
    }
    try follow(outcome, ofPushAt: copy)
  }

  /// The model publishes what a push has published.
  private func follow(
    _ outcome: Result<RelayReport, ReplicationError>, ofPushAt copy: Int
  ) throws {
    var probe = model
    try probe.publish(copy)
    let isDue = probe.count(of: .checkpoint) > model.count(of: .checkpoint)
    let published = probe.count(of: .published) > model.count(of: .published)
    // The first entry has everything: in parts, it is a checkpoint as well.
    let isFirst = published && probe.copies[copy].live.relay.number == 1
    switch outcome {
    case .success(let report):
      let isWanted = report.checkpoints > 0
      guard report.checkpoints == (isDue ? 1 : 0) || isWanted && (isAsked(of: copy) || isFirst) else {
        throw Mismatch("copy \(copy) has written \(report.checkpoints) checkpoints, not \(isDue ? 1 : 0)")
      }
      try model.publish(copy, withCheckpoint: isWanted)
    // L7.
    case .failure(let error) where error.store?.code == .unsettled && !published: try model.publish(copy)
    case .failure(let error): throw Mismatch("the push of copy \(copy): \(error)")
    }
    capture(copy)
    let progress = try theRelay.progress(of: machines[copy].store)
    theRelay.pair(progress, with: model.copies[copy].live.relay)
    try comparePublished(copy, progress)
    keepSnapshot()
  }

  /// Whether another copy asks for a full state.
  private func isAsked(of copy: Int) -> Bool {
    guard let client = theRelay.clients[copy]?.client else { return false }
    let own = (try? theRelay.progress(of: machines[copy].store))?.stream
    return client.memory.withLock { memory in
      memory.heads.contains { $0.key != own && $0.value.head.needsFullState }
    }
  }

  /// The last entry of a copy, and its checkpoint, say in the relay what they say in the model's.
  private func comparePublished(_ copy: Int, _ progress: RelayProgress) throws {
    guard let client = theRelay.clients[copy]?.client, let stream = progress.stream, let last = progress.last,
      let number = theRelay.streams[stream]
    else { return }
    let view = client.memory.withLock { $0.view }
    guard let real = view.streams[stream]?.head.run.entry(last.number),
      let ideal = model.relay.entry(number, Int(last.number))
    else { throw Mismatch("copy \(copy) has published an entry that is not there") }
    var (left, right) = (try PublishedFacts(real, theRelay), PublishedFacts(ideal))
    // In parts its records are not here.
    if left.dots.isEmpty { right.dots = [] }
    guard left == right else {
      throw Mismatch("copy \(copy) has published\n\(left)\nand in the model\n\(right)")
    }
    let name = RelayView.CheckpointName(stream: stream, place: last)
    guard let table = view.checkpoints[name].flatMap({ $0 }) else { return }
    guard let state = model.relay.checkpoints.last(where: { $0.id == ideal.id }) else {
      throw Mismatch("copy \(copy) has written a checkpoint that the model does not have")
    }
    var (one, other) = (try PublishedFacts(table.state, theRelay), PublishedFacts(state))
    other.deps.removeAll { $0.stream == number }
    if one.dots.isEmpty { other.dots = [] }
    guard one == other else {
      throw Mismatch("the checkpoint of copy \(copy) is\n\(one)\nand in the model\n\(other)")
    }
  }

  // MARK: The relay

  private func keepSnapshot() {
    theRelay.snapshots.append((theRelay.objects.objects.snapshot, model.relay))
    if theRelay.snapshots.count > 4 { theRelay.snapshots.removeFirst() }
  }

  /// The relay is put back to one of its last states.
  private func putBack(_ which: Int) {
    guard !theRelay.snapshots.isEmpty else { return }
    let earlier = theRelay.snapshots[which % theRelay.snapshots.count]
    theRelay.objects.objects.putBack(earlier.objects)
    model.relay.putBack(to: earlier.model)
    model.count(.relayLoss)
    // A running program that finds the bell as it left it notices at its hundredth look.
    theRelay.clients = [:]
  }

  /// A copy collects what its rules and the ages of the objects let it. The model, which knows no ages, takes
  /// that over, if a standing checkpoint covers it.
  private func collect(_ copy: Int) throws {
    try wake(copy)
    let client = try client(copy)
    let outcome = waiting { () throws(ReplicationError) in try await client.collect(isDryRun: false) }
    switch outcome {
    case .success(let report): try follow(report, at: copy)
    case .failure(let error) where error.code == .unavailable:
      while try readNext(copy) { capture(copy) }
      settle(copy)
      guard model.relay.streams.indices.contains(where: { unread(copy, $0 + 1) > 0 }) else {
        throw Mismatch("copy \(copy) collects nothing: \(error)")
      }
      return
    case .failure(let error): throw Mismatch("the collection of copy \(copy): \(error)")
    }
    let progress = try theRelay.progress(of: machines[copy].store)
    guard let stream = progress.stream, let number = theRelay.streams[stream],
      let head = client.memory.withLock({ $0.heads[stream]?.head }), head.last != nil
    else { return }
    try followCollection(of: number, head)
  }

  private func followCollection(of stream: Int, _ head: RelayHead) throws {
    let first = Int(head.runs.first?.numbers.lowerBound ?? head.run.first)
    let standing = model.relay.checkpoints.filter { model.stands($0) }
    for number in 1..<max(first, 1) where model.relay.entry(stream, number) != nil {
      guard number < model.relay.length(stream), standing.contains(where: { $0.dep(on: stream) >= number })
      else { throw Mismatch("entry \(number) of stream \(stream) is gone, which no checkpoint covers") }
      model.count(.collected)
    }
    model.relay.collect(stream, upTo: first - 1)
    let left = Set(head.checkpoints.map { Int($0.place.number) })
    for old in model.relay.checkpoints where old.id.stream == stream && !left.contains(old.id.number) {
      let isCovered = standing.contains { new in
        new.id != old.id && old.deps.allSatisfy { new.dep(on: $0.stream) >= $0.number }
      }
      guard isCovered || !model.stands(old) else {
        throw Mismatch("checkpoint \(old.id) is gone, which no other one covers")
      }
      model.relay.checkpoints.removeAll { $0.id == old.id }
    }
    model.relay.isUnread = true
  }

  // MARK: Healing

  /// All faults stop; all copies exchange through the relay until they agree.
  func healThroughRelay() throws {
    let alive = try endFaults()
    try exchange(among: alive)
    // No copy covers what it had purged: it must join again.
    if alive.contains(where: { model.copies[$0].live.isMending }) { return }
    try model.checkHealed()
    try step(.time(Model.retirement + 5))
    for _ in 0..<3 {
      for copy in alive { try step(.acknowledge(copy)) }
      try exchange(among: alive)
      for copy in alive { try step(.purge(copy)) }
      try step(.time(1))
    }
    try exchange(among: alive)
    try step(.relay(.collect(checkpoint: -1)))
    try model.checkHealed()
    try model.checkRelay()
  }

  /// A copy that cannot read on asks for a full state, which another one gives, which it then reads.
  private func exchange(among alive: [Int]) throws {
    for _ in 0..<8 {
      for copy in alive { try step(.relay(.checkpoint(copy))) }
      let first = model.copies[alive[0]].live
      let isDone = alive.allSatisfy { copy in
        let live = model.copies[copy].live
        return live.isSound && live.vector == first.vector
      }
      if isDone { return }
    }
  }
}

/// What an entry says, by the model's numbers.
private struct PublishedFacts: Equatable, CustomStringConvertible {
  var actor: Int
  var sequence: Int
  var isNarrow: Bool
  var records: Int
  /// Empty if they are in objects of their own.
  var dots: [Twin.Facts.Dot]
  var vector: [Twin.Facts.Dot]
  var floor: [Twin.Facts.Dot]
  var horizon: Int
  var deps: [RelayFacts.Place]

  var description: String {
    func list(_ dots: [Twin.Facts.Dot]) -> String {
      dots.map { "\($0.actor):\($0.sequence)" }.joined(separator: " ")
    }
    return "  \(actor):\(sequence), \(isNarrow ? "narrow, " : "")\(records) records \(list(dots)); "
      + "vector \(list(vector)); floor \(list(floor)); horizon \(horizon); deps \(deps)"
  }

  init(_ entry: RelayEntry, _ relay: TwinRelay) throws {
    func dots(_ vector: VersionVector) -> [Twin.Facts.Dot] {
      vector.actors.map { Twin.Facts.Dot(actor: Int($0.low), sequence: Int(vector[$0])) }.sorted()
    }
    (actor, sequence) = (Int(entry.actor.low), Int(entry.sequence))
    (isNarrow, records) = (entry.isNarrow, Int(entry.records))
    self.dots = []
    if case .inline(let payloads) = entry.content {
      for payload in payloads {
        self.dots += try RecordCodec.read(payload).records.list.map {
          Twin.Facts.Dot(actor: Int($0.record.dot.actor.low), sequence: Int($0.record.dot.sequence))
        }
      }
      self.dots.sort()
    }
    (vector, floor) = (dots(entry.vector), dots(entry.floor))
    horizon = Int(entry.horizon.rawValue)
    deps = entry.dependencies.map { relay.place($0.value, in: $0.key) }.sorted()
  }

  init(_ entry: Model.Relay.Entry) {
    func dots(_ vector: Model.Vector) -> [Twin.Facts.Dot] {
      vector.pairs.map { Twin.Facts.Dot(actor: $0.actor.number, sequence: $0.sequence) }.sorted()
    }
    let snapshot = entry.snapshot
    (actor, sequence) = (snapshot.actor.number, snapshot.sequence)
    (isNarrow, records) = (entry.isNarrow, entry.records.count)
    self.dots = entry.records.map { Twin.Facts.Dot(actor: $0.actor.number, sequence: $0.sequence) }.sorted()
    (vector, floor) = (dots(snapshot.vector), dots(snapshot.floor))
    horizon = snapshot.horizon
    deps = entry.deps.filter { $0.number > 0 }.map { RelayFacts.Place($0) }.sorted()
  }
}
