import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A hostile or broken member: its announcements and requests, step by step.
@Suite("Members that send or request too much") struct GreedyPeerTests {
  private static func summary(_ actor: ActorID) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero, position: 10)
  }

  private static func receiver() -> ReceivingHalf {
    ReceivingHalf(sender: summary(Samples.right), own: summary(Samples.left), cursor: nil)
  }

  @Test("F78 rounds that announce more records than can be counted do not end the session")
  func announced() throws {
    var (half, port) = (Self.receiver(), SessionPort(peerName: "peer"))
    let end = RoundEnd(
      mark: Samples.mark, position: 10, batches: 0, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero)
    try half.roundBegan(RoundBegin(mark: Samples.mark, position: 10, records: .max), &port)
    try half.closed(end, &port)
    half.pump(&port)
    half.finished(&port)
    half.stateDigested(
      DigestedState(position: 10, vector: VersionVector(), digest: Samples.digest, at: Samples.wall), &port)
    try half.liveUpdateBegan(
      LiveUpdate(
        mark: Samples.mark, position: 11, records: 1, vector: VersionVector(), floor: VersionVector(),
        horizon: .zero), &port)
    #expect(port.figures.announced.received == .max)
    try half.liveUpdateEnded(batches: 0, &port)
    half.pump(&port)
    half.finished(&port)
    half.expectAnother()
    try half.roundBegan(RoundBegin(mark: Samples.mark, position: 12, records: 2), &port)
    #expect(port.figures.announced.received == .max)
  }

  @Test("F78 there is no batch after the greatest position")
  func lastPosition() throws {
    var (half, port) = (Self.receiver(), SessionPort(peerName: "peer"))
    try half.roundBegan(RoundBegin(mark: Samples.mark, position: .max, records: 0), &port)
    for index in 0...1 as ClosedRange<UInt32> { try half.batchArrived(index: index, encrypted: [1], &port) }
    half.pump(&port)
    try half.applied(to: .max, records: 0, missing: [], &port)
    #expect(throws: SessionEnd.self) { try half.applied(to: .max, records: 0, missing: [], &port) }
  }

  // MARK: Bounds of remembered messages

  /// Unknown actors, numbered from `first` on.
  private static func actors(_ count: Int, from first: Int) -> VersionVector {
    VersionVector(
      Dictionary(
        uniqueKeysWithValues: (first..<first + count).map { (ActorID(high: 1, low: UInt64($0)), UInt64(1)) }))
  }

  private static func burst(_ number: Int, vector: VersionVector, floor: VersionVector) -> LiveUpdate {
    LiveUpdate(
      mark: Samples.mark, position: UInt64(11 + number), records: 0, vector: vector, floor: floor,
      horizon: .zero)
  }

  @Test("A copy with a key scope cannot give a full state")
  func fullStateOfNarrow() throws {
    var (sender, port) = (Self.summary(Samples.right), SessionPort(peerName: "peer"))
    sender.scope = try KeyScope(prefixes: ["a/"])
    var half = ReceivingHalf(sender: sender, own: Self.summary(Samples.left), cursor: nil)
    #expect(throws: SessionEnd.self) {
      try half.roundBegan(RoundBegin(mark: Samples.mark, kind: .full, position: 10, records: 0), &port)
    }
  }

  @Test(
    "F82 the coverage and floor remembered of a copy with a key scope fit in one vector",
    arguments: [false, true])
  func saidOfNarrow(isFloor: Bool) throws {
    var (sender, port) = (Self.summary(Samples.right), SessionPort(peerName: "peer"))
    sender.scope = try KeyScope(prefixes: ["a/"])
    var half = ReceivingHalf(sender: sender, own: Self.summary(Samples.left), cursor: nil)
    func take(_ number: Int) throws(SessionEnd) {
      let (some, none) = (Self.actors(Limits.actors, from: number * Limits.actors), VersionVector())
      try half.liveUpdateBegan(
        Self.burst(number, vector: isFloor ? none : some, floor: isFloor ? some : none), &port)
      try half.liveUpdateEnded(batches: 0, &port)
      half.pump(&port)
      half.finished(&port)
    }
    try take(0)
    // Repeating the same adds nothing.
    try take(0)
    #expect(throws: SessionEnd.self) { try take(1) }
  }

  @Test(
    "F82 a session with a copy with a key scope remembers at most the coverage of two copies"
  )
  func coveredByNarrow() throws {
    var port = SessionPort(peerName: "peer")
    let hellos = [Samples.left, Samples.right].map { actor in
      var summary = Self.summary(actor)
      if actor == Samples.right { summary.scope = try? KeyScope(prefixes: ["a/"]) }
      return Hello(
        compatibleFeatures: SessionFeature.live, summary: summary, wallMilliseconds: Samples.wall,
        digest: Samples.digest, directions: actor == Samples.left ? .receives : .sends)
    }
    var exchange = Exchange(serverOf: hellos[1], own: hellos[0], missing: [], &port)
    let end = RoundEnd(
      mark: Samples.mark, position: 10, batches: 0, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero)
    try exchange.accept(.roundBegin(RoundBegin(mark: Samples.mark, position: 10, records: 0)), &port)
    try exchange.accept(.roundClose(end), &port)
    try exchange.pump(&port)
    try exchange.answered(.roundFinished, &port)
    let state = DigestedState(position: 10, vector: VersionVector(), digest: Samples.digest, at: Samples.wall)
    try exchange.answered(.stateDigested(state), &port)
    try exchange.accept(.live, &port)
    #expect(throws: SessionEnd.self) {
      for number in 0..<3 {
        let vector = Self.actors(Limits.actors, from: number * Limits.actors)
        // Each round is abandoned before its end, but still states what its sender covers.
        try exchange.accept(.liveUpdate(Self.burst(number, vector: vector, floor: VersionVector())), &port)
        try exchange.accept(.liveUpdateEnd(batches: 0), &port)
        try exchange.pump(&port)
        try exchange.answered(.roundFinished, &port)
      }
    }
  }

  @Test("A full state with endless, widely spaced dots is ended before it fills the memory")
  func presentWithoutEnd() throws {
    let store = try Store.create(on: SimulatedHost(seed: 6))
    try Node.prepare(store, name: "first")
    let (session, keys) = (SessionStore(store), try StoreKeys(store).groupKeys())
    func answer(_ index: UInt32) throws -> SessionEvent? {
      let dots = (0..<UInt64(WireLimits.presentDots)).map {
        Dot(actor: Samples.right, sequence: (UInt64(index) << 16 + $0) << 16 + 1)
      }
      let context = BatchContext.records(
        store: store.id, sender: Samples.right, mark: Samples.mark, index: UInt64(index))
      let sealed = try BatchCodec.encrypt(
        RecordCodec.encode(.init(position: 1, records: [], present: dots)), as: context, keys: keys,
        randomness: noise(BatchCodec.randomnessBytes, seed: UInt64(index)))
      return session.answer(
        .applyBatch(
          sender: Samples.right, mark: Samples.mark, index: index, encrypted: sealed, isFull: true,
          expansion: nil), peer: Samples.right)
    }
    for index in 0..<12 as Range<UInt32> {
      let event = try answer(index)
      if case .batchApplied? = event { continue }
      guard case .failed(.protocolViolation, _, _)? = event else { break }
      #expect(index > 2)
      return
    }
    Issue.record("it goes on")
  }

  @Test("A listed dot costs two bytes where dots are close together, and a bitmap at most")
  func costOfNames() {
    var names = DotSet()
    for sequence in 1...4000 as ClosedRange<UInt64> {
      names.insert(Dot(actor: Samples.left, sequence: sequence))
    }
    #expect(names.bytes == DotSet.containerBytes + 8000)
    for sequence in 1...6000 as ClosedRange<UInt64> {
      names.insert(Dot(actor: Samples.left, sequence: sequence))
    }
    #expect(names.count == 6000 && names.bytes == DotSet.containerBytes + 8192)
    for far in 1...10 as ClosedRange<UInt64> {
      for _ in 0..<2 { names.insert(Dot(actor: Samples.left, sequence: far << 16)) }
    }
    #expect(names.bytes == 11 * DotSet.containerBytes + 8192 + 10 * 2)
  }

  @Test("The dots listed by an honest sender are never too many, however far apart its live writes are")
  func farApart() {
    var names = DotSet()
    let count = 5000
    for number in 1...UInt64(count) { names.insert(Dot(actor: Samples.left, sequence: number << 16)) }
    #expect(names.count == count && names.bytes <= count * WireLimits.fullStateBytesPerKey)
  }

  // MARK: Parts of large values

  private static func parts(_ count: Int) -> BlobPartsWanted {
    BlobPartsWanted(
      hash: Samples.hash, size: UInt64(2 * count),
      parts: (0..<count).map { BlobPart(offset: UInt64(2 * $0), count: 1) })
  }

  @Test("All parts of a recipe are sent, in order, with what else was requested; no more at once")
  func parts() throws {
    var (source, port) = (BlobSource(), SessionPort(peerName: "peer"))
    try source.wanted(Self.parts(WireLimits.blobParts))
    try source.wanted((1..<Limits.blobsInFlight).map { BlobNeed(hash: Samples.hash, size: UInt64($0)) })
    // One request more than permitted, and one part more.
    var greedy = source
    #expect(throws: SessionEnd.self) { try greedy.wanted(Self.parts(1)) }
    greedy = BlobSource()
    try greedy.wanted(Self.parts(WireLimits.blobParts))
    #expect(throws: SessionEnd.self) { try greedy.wanted(Self.parts(WireLimits.blobParts)) }
    var offsets: [UInt64] = []
    repeat {
      source.pump(&port)
      let reads = port.actions
      (port.actions, port.queued) = ([], 0)
      for case .readBlob(let hash, _, let offset, _) in reads {
        offsets.append(offset)
        source.blobRead(hash, offset: offset, encrypted: [1], &port)
      }
      (port.actions, port.queued) = ([], 0)
    } while !source.isQuiet
    let ofParts = (0..<WireLimits.blobParts).map { UInt64(2 * $0) }
    #expect(offsets == ofParts + [UInt64](repeating: 0, count: Limits.blobsInFlight - 1))
    #expect(port.figures.sentBlobs == Limits.blobsInFlight)
  }

  @Test(
    "A range whose length differs from that of its part ends the session",
    arguments: [4, 5, 6])
  func otherLength(count: Int) throws {
    var port = SessionPort(peerName: "peer")
    let hellos = [Samples.left, Samples.right].map {
      Hello(
        compatibleFeatures: SessionFeature.chunks, summary: Self.summary($0), wallMilliseconds: Samples.wall,
        digest: Samples.digest, directions: $0 == Samples.left ? .receives : .sends)
    }
    var exchange = Exchange(
      client: .pull, own: hellos[0], peer: hellos[1], missing: [], mode: .controlOnly, &port)
    try exchange.answered(.cursor(nil), &port)
    exchange.want(
      BlobPartsWanted(hash: Samples.hash, size: 20, parts: [BlobPart(offset: 10, count: 5)]), &port)
    let range = BlobRange(hash: Samples.hash, offset: 10, isLast: true, encrypted: [1])
    try exchange.accept(.blobRange(range), &port)
    #expect(port.actions.last == .decryptBlobRange(range))
    let opened = SessionEvent.blobRangeDecrypted(Samples.hash, offset: 10, noise(count, seed: 1))
    if count == 5 {
      try exchange.answered(opened, &port)
      #expect(port.notifications == [.part(Samples.hash, offset: 10, noise(count, seed: 1))])
    } else {
      #expect(throws: SessionEnd.self) { try exchange.answered(opened, &port) }
      #expect(port.notifications.isEmpty)
    }
  }

  @Test("A value for which less arrives than its recipe needs is requested whole, and not waited for")
  func lessThanItsRecipe() throws {
    var port = SessionPort(peerName: "peer")
    var assembly = BlobAssembly(BlobNeed(hash: Samples.hash, size: 5), &port)
    try assembly.arrived(EncryptedRecipe(hash: Samples.hash, offset: 0, encrypted: [1]))
    assembly.pump(&port)
    assembly.matched(end: 5, missing: [BlobPart(offset: 0, count: 5)], &port)
    try assembly.arrived(BlobRange(hash: Samples.hash, offset: 0, isLast: true, encrypted: [1]))
    assembly.pump(&port)
    assembly.stored(held: 4, isComplete: false, &port)
    assembly.pump(&port)
    #expect(assembly.result == .plainly(BlobNeed(hash: Samples.hash, size: 5, offset: 4)))
  }

  @Test("If a value is gone, its remaining requested ranges are skipped, and the next value is sent")
  func lacking() throws {
    var (source, port) = (BlobSource(), SessionPort(peerName: "peer"))
    let other = try #require(BlobHash(bytes: Samples.bytes(32, from: 1)))
    try source.wanted(Self.parts(2000))
    try source.wanted([BlobNeed(hash: other, size: 5)])
    source.pump(&port)
    for index in 0..<WireLimits.blobReadsInFlight - 1 {
      source.blobRead(Samples.hash, offset: UInt64(2 * index), encrypted: [1], &port)
    }
    port.actions = []
    source.lacks(Samples.hash, &port)
    #expect(port.actions == [.send(Message.blobUnavailable(Samples.hash).frame.bytes)])
    (port.actions, port.queued) = ([], 0)
    source.pump(&port)
    #expect(port.actions == [.readBlob(hash: other, size: 5, offset: 0, count: 5)])
  }

  @Test("One batch more than the window allows ends the session", arguments: [4, 8])
  func batches(most: Int) throws {
    var port = SessionPort(peerName: "peer")
    var half = ReceivingHalf(
      sender: Self.summary(Samples.right), own: Self.summary(Samples.left), cursor: nil, batchesInFlight: most
    )
    try half.roundBegan(RoundBegin(mark: Samples.mark, position: 100, records: 100), &port)
    for index in 0..<UInt32(most) { try half.batchArrived(index: index, encrypted: [1], &port) }
    #expect(throws: SessionEnd.self) { try half.batchArrived(index: UInt32(most), encrypted: [1], &port) }
  }
}
