import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// Rules of relays (L1 to L12) whose absence shows only in rare moments, each brought about here.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct RelayRuleTests {
  // MARK: Decisions of a reader

  private let own = StreamID(high: 1, low: 1)
  private let other = StreamID(high: 2, low: 2)
  private let copy = ActorID(high: 1, low: 1)
  private let writer = ActorID(high: 2, low: 2)

  private func place(_ number: UInt64, mark: UInt64? = nil) -> RelayProgress.Place {
    RelayProgress.Place(number: number, mark: RoundMark(high: 9, low: mark ?? number))
  }

  private func entry(
    _ place: RelayProgress.Place, dependencies: [StreamID: RelayProgress.Place] = [:]
  ) -> RelayEntry {
    RelayEntry(
      place: place, actor: writer, sequence: 1, position: 1, vector: VersionVector([writer: 1]),
      floor: VersionVector(), horizon: Stamp(rawValue: 0), dependencies: dependencies, digest: nil, time: 0,
      isNarrow: false, records: 0, content: .inline([]))
  }

  /// A stream by `actor` that has these entries after one that was collected.
  private func stream(
    _ name: StreamID, by actor: ActorID, _ entries: [RelayEntry], after previous: RelayProgress.Place? = nil
  ) -> RelayView.Stream {
    var head = RelayHead(
      stream: name, publicKey: [UInt8](repeating: 1, count: 32),
      wrappingKey: [UInt8](repeating: 2, count: 32),
      actor: actor, time: 0)
    head.run = RelayRun(stream: name, after: previous)
    head.run.entries = entries
    return RelayView.Stream(head: head, standing: .writer)
  }

  private func summary() throws -> ReplicaSummary {
    var summary = try Store.create(on: SimulatedHost(seed: 1)).relayReplica()
    (summary.actor, summary.sequence, summary.vector) = (copy, 0, VersionVector())
    return summary
  }

  @Test("an entry that has another mark than the one that was read means that the relay was put back (L6)")
  func marks() throws {
    var (view, progress) = (RelayView(), RelayProgress())
    view.streams[other] = stream(other, by: writer, [entry(place(2))], after: place(1))
    progress.seen[other] = place(2)
    if case .end = RelayReader(view, progress, for: try summary()).next {
    } else {
      Issue.record("not the same")
    }
    progress.seen[other] = place(2, mark: 7)
    guard case .startOver = RelayReader(view, progress, for: try summary()).next else {
      Issue.record("a copy takes another entry for the one that it has read")
      return
    }
  }

  @Test("a stream of the own actor that this copy did not begin means that two copies live one life (L8)")
  func twins() throws {
    var (view, progress) = (RelayView(), RelayProgress())
    view.streams[other] = stream(other, by: copy, [])
    guard case .becomeNewActor = RelayReader(view, progress, for: try summary()).next else {
      Issue.record("another life of the copy goes unnoticed")
      return
    }
    progress.ownStreams = [other]
    if case .end = RelayReader(view, progress, for: try summary()).next {
    } else {
      Issue.record("it is its own")
    }
  }

  @Test("an entry that presumes more of this copy than it has published shows that it was put back (L9)")
  func echo() throws {
    var (view, progress) = (RelayView(), RelayProgress())
    (progress.stream, progress.last, progress.ownStreams) = (own, place(1), [own])
    view.streams[own] = stream(own, by: copy, [entry(place(1))])
    view.streams[other] = stream(other, by: writer, [entry(place(1), dependencies: [own: place(2)])])
    guard case .becomeNewActor = RelayReader(view, progress, for: try summary()).next else {
      Issue.record("a copy that was put back does not notice")
      return
    }
    // It may have published that entry, and died before it learned of it.
    progress.begin(place(2).mark)
    if case .end = RelayReader(view, progress, for: try summary()).next {
    } else {
      Issue.record("a copy takes itself for put back")
    }
  }

  @Test("a copy takes no checkpoint of which it lacks only an own entry that it has yet to find (L2)")
  func ownCheckpoint() throws {
    var (view, progress) = (RelayView(), RelayProgress())
    (progress.stream, progress.ownStreams) = (own, [own])
    progress.begin(place(1).mark)
    progress.seen[other] = place(1)
    view.streams[own] = stream(own, by: copy, [entry(place(1), dependencies: [other: place(1)])])
    // It presumes the entry that this copy will find when it publishes next.
    view.streams[other] = stream(
      other, by: writer, [entry(place(1)), entry(place(2), dependencies: [own: place(1)])])
    view.streams[own]?.head.checkpoints = [
      RelayCheckpointReference(place: place(1), time: 1, fingerprint: [UInt8](repeating: 0, count: 16))
    ]
    view.checkpoints[RelayView.CheckpointName(stream: own, place: place(1))] = RelayCheckpoint(
      stream: own, state: entry(place(1), dependencies: [other: place(1)]), totals: [:], bytes: 0,
      closing: VersionVector([writer: 1]))
    guard case .end(let backlog) = RelayReader(view, progress, for: try summary()).next else {
      Issue.record("it takes its own checkpoint, again and again")
      return
    }
    #expect(backlog.entries == 1)
  }

  @Test("a copy that only pushes notices that entries which it has read are gone (L6)")
  func lossAtPush() async throws {
    let pair = try RelayPair()
    _ = try await pair.client(1).push()
    let earlier = pair.objects.snapshot
    try pair.stores[0].put(Key("a"), [1])
    _ = try await pair.client(0).push()
    let reader = try pair.client(1)
    _ = try await reader.pull()
    pair.objects.putBack(earlier)
    try pair.stores[1].put(Key("b"), [2])
    _ = try await reader.push()
    #expect(try await pair.client(0).pull().waitingEntries == 0)
    #expect(try pair.stores[0].get(Key("b")) != nil)
  }

  @Test("the last two checkpoints stay, and others for two weeks (L11)")
  func checkpoints() throws {
    var view = RelayView()
    var head = stream(own, by: copy, (1...4).map { entry(place($0)) }).head
    var ages: StringDictionary<UInt64> = [:]
    for number in 1...4 as ClosedRange<UInt64> {
      let reference = RelayCheckpointReference(
        place: place(number), time: number, fingerprint: [UInt8](repeating: 0, count: 16))
      head.checkpoints.append(reference)
      view.checkpoints[RelayView.CheckpointName(stream: own, place: place(number))] = RelayCheckpoint(
        stream: own, state: entry(place(number)), totals: [:], bytes: 0, closing: VersionVector([writer: 1]))
      ages[RelayName.checkpoint(own, place(number))] = RelayLimits.checkpointMilliseconds
    }
    view.streams[own] = RelayView.Stream(head: head, standing: .writer)
    #expect(RelayCollection(of: head, in: view, readers: [], ages: ages).checkpoints.count == 4)
    for name in ages.keys { ages[name] = RelayLimits.checkpointMilliseconds + 1 }
    let collection = RelayCollection(of: head, in: view, readers: [], ages: ages)
    #expect(collection.checkpoints.map(\.place.number) == [3, 4])
  }

  @Test("entries stay until a checkpoint covers them and all members have read them (L11)")
  func runs() throws {
    var view = RelayView()
    var known = stream(own, by: copy, [entry(place(3))], after: place(2))
    var run = RelayRun(stream: own, after: nil)
    run.entries = [entry(place(1)), entry(place(2))]
    known.runs[1] = run
    let fingerprint = [UInt8](repeating: 0, count: 16)
    known.head.runs = [RelayRunReference(numbers: 1...2, bytes: 1, fingerprint: fingerprint)]
    view.streams[own] = known
    func isCollected(_ readers: [UInt64?]) -> Bool {
      RelayCollection(of: known.head, in: view, readers: readers, ages: [:]).runs.isEmpty
    }
    #expect(!isCollected([2, 3]), "no checkpoint covers them")
    known.head.checkpoints = [
      RelayCheckpointReference(place: place(3), time: 1, fingerprint: fingerprint)
    ]
    view.streams[own] = known
    view.checkpoints[RelayView.CheckpointName(stream: own, place: place(3))] = RelayCheckpoint(
      stream: own, state: entry(place(3)), totals: [:], bytes: 0, closing: VersionVector([writer: 1]))
    #expect(!isCollected([2, nil]) && !isCollected([3, 1]), "a member has yet to read them")
    #expect(isCollected([2, 3]))
  }

  // MARK: Whole copies

  @Test("an entry is closed only once all of its parts have been applied (L1)")
  func parts() async throws {
    let pair = try RelayPair()
    for number in 0..<1_100 {
      try pair.stores[0].put(
        Key("key/\(number)"), noise(16_000, seed: UInt64(number)), durability: .relaxed)
    }
    _ = try await pair.client(0).push()
    let reader = pair.stores[1]
    for requests in 0..<20 {
      pair.objects.faults.diesAfter = requests
      let report = try? await pair.client(1).pull()
      pair.objects.faults.diesAfter = nil
      let covers = try reader.versionVector().covers(pair.stores[0].versionVector())
      let holds = try reader.get(Key("key/0")) != nil && reader.get(Key("key/1099")) != nil
      #expect(holds || !covers, "after \(requests) requests it covers what it does not hold")
      guard report == nil else {
        #expect(holds && covers && requests > 5)
        return
      }
    }
    Issue.record("it was never read")
  }

  @Test("a head that another life of this copy has written meanwhile stays, and is noticed (L2)")
  func overwriting() async throws {
    let pair = try RelayPair()
    try pair.stores[0].put(Key("a"), [1])
    _ = try await pair.client(0).push()
    let (host, actor) = (try pair.hosts[0].cloned(reseeded: 9), try pair.stores[0].actor)
    host.killProcesses()
    let clone = try Store.open(on: host)
    try #require(try clone.actor == actor)
    try clone.put(Key("of clone"), [2])
    try pair.stores[0].put(Key("of first"), [3])
    let late = LateObjectStore(pair.objects)
    let first = try RelayClient(store: pair.stores[0], objects: late, name: "relay")
    _ = try await first.pull()
    let second = try RelayClient(store: clone, objects: pair.objects, name: "relay")
    late.plan { _ = try? await second.push() }
    // It is in doubt about what it wrote under that name, and asks for a full state.
    await #expect(throws: ReplicationError.self) { try await first.push() }
    #expect(try pair.stores[0].actor != actor)
    _ = try await pair.client(1).pull()
    #expect(try pair.stores[1].get(Key("of clone")) != nil, "an entry was written over")
  }

  @Test("a digest that differs is reported, unless records may have expired since (L10)")
  func digests() async throws {
    let pair = try RelayPair()
    let reader = try pair.client(1)
    _ = try await reader.push()
    _ = try await pair.client(0).pull()
    try pair.stores[0].put(Key("a"), [1])
    _ = try await pair.client(0).push()
    _ = try await reader.pull()
    // As if the writer held something else.
    reader.memory.withLock { memory in
      for stream in memory.heads.keys {
        guard let count = memory.heads[stream]?.head.run.entries.count, count > 0 else { continue }
        memory.heads[stream]?.head.run.entries[count - 1].digest?.digest = StateDigest()
      }
    }
    try await pair.client(0).ringBell()
    await #expect { _ = try await reader.pull() } throws: {
      ($0 as? ReplicationError)?.code == .digestsDiffer
    }
    pair.hosts[1].time += Limits.clockDriftMilliseconds + 1
    try await pair.client(0).ringBell()
    _ = try await reader.pull()
  }

  @Test(
    "a process whose copy was published by another one meanwhile goes on with the same stream",
    arguments: [false, true])
  func processes(ignoresConditions: Bool) async throws {
    let pair = try RelayPair()
    pair.objects.faults.ignoresConditions = ignoresConditions
    let (daemon, program) = (try pair.client(0), try pair.client(0))
    try pair.stores[0].put(Key("a"), [1])
    _ = try await daemon.push()
    try pair.stores[0].put(Key("b"), [2])
    _ = try await program.push()
    try pair.stores[0].put(Key("c"), [3])
    let report = try await daemon.publish()
    #expect(report.remarks.isEmpty && report.sentRecords == 1)
    #expect(pair.objects.names.count { $0.hasPrefix(RelayName.heads) } == 1)
    #expect(try await pair.client(1).pull().entries == 3)
    for key in ["a", "b", "c"] { #expect(try pair.stores[1].get(Key(key)) != nil) }
  }

  @Test("writes made while a checkpoint is written reach those who never read it (L3)")
  func writesDuringCheckpoint() async throws {
    let pair = try RelayPair(members: 3)
    let late = LateObjectStore(pair.objects)
    let writer = try RelayClient(store: pair.stores[0], objects: late, name: "relay")
    // One that has read the first entry needs no checkpoint.
    try pair.stores[0].put(Key("first"), [1])
    _ = try await writer.push()
    _ = try await pair.client(2).pull()
    // The state is asked for, so the next entry has a checkpoint; a write comes between the two.
    for number in 0..<80 {
      try pair.stores[0].put(
        Key("key/\(number)"), noise(16_000, seed: UInt64(number)), durability: .relaxed)
    }
    let store = pair.stores[0]
    late.plan(at: "e/") { try? store.put(Key("between"), [2]) }
    let report = try await writer.push()
    try #require(report.checkpoints == 1)
    // This one begins with the checkpoint, and writes something.
    _ = try await pair.client(1).pull()
    try #require(try pair.stores[1].get(Key("between")) != nil)
    try pair.stores[1].put(Key("second"), [3])
    _ = try await pair.client(1).push()
    // This one reads only the entries.
    _ = try await pair.client(2).pull()
    let covers = try pair.stores[2].versionVector().covers(pair.stores[0].versionVector())
    #expect(try !covers || pair.stores[2].get(Key("between")) != nil, "it covers what it never read")
    _ = try await writer.push()
    _ = try await pair.client(2).pull()
    #expect(try pair.stores[2].get(Key("between")) != nil)
  }
}

/// Objects between whose writes something else happens.
private final class LateObjectStore: ForwardingObjectStore {
  let objects: VirtualObjectStore
  private let planned = Locked<(prefix: String, body: @Sendable () async -> Void)?>(nil)

  init(_ objects: VirtualObjectStore) { self.objects = objects }

  /// Does `body` right before the next write of an object whose name begins with `prefix`.
  func plan(at prefix: String = RelayName.heads, _ body: @escaping @Sendable () async -> Void) {
    planned.withLock { $0 = (prefix, body) }
  }

  func put(
    _ name: String, _ bytes: [UInt8], if condition: PutCondition
  ) async throws(ObjectStoreError) -> PutOutcome {
    let body = planned.withLock { plan -> (@Sendable () async -> Void)? in
      guard let due = plan, name.hasPrefix(due.prefix) else { return nil }
      plan = nil
      return due.body
    }
    await body?()
    return try await objects.put(name, bytes, if: condition)
  }
}
