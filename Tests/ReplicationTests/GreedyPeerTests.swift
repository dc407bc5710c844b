import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// A member whose program is hostile or broken: what it announces and asks for, step by step.
@Suite("Members that say or want too much") struct GreedyPeerTests {
  private static func summary(_ actor: ActorID) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero, position: 10)
  }

  private static func receiver() -> ReceivingHalf {
    ReceivingHalf(sender: summary(Samples.right), own: summary(Samples.left), cursor: nil)
  }

  @Test("F78 rounds that announce more records than can be counted end nothing")
  func announced() throws {
    var (half, port) = (Self.receiver(), SessionPort(peerName: "peer"))
    let end = RoundEnd(
      mark: Samples.mark, position: 10, batches: 0, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero)
    try half.begun(RoundBegin(mark: Samples.mark, position: 10, records: .max), &port)
    try half.closed(end, &port)
    half.pump(&port)
    half.finished(&port)
    half.judged(
      JudgedState(position: 10, vector: VersionVector(), digest: Samples.digest, at: Samples.wall), &port)
    try half.begun(
      Burst(
        mark: Samples.mark, position: 11, records: 1, vector: VersionVector(), floor: VersionVector(),
        horizon: .zero), &port)
    #expect(port.figures.announcedReceivedRecords == .max)
    try half.burstEnded(batches: 0, &port)
    half.pump(&port)
    half.finished(&port)
    half.expectAnother()
    try half.begun(RoundBegin(mark: Samples.mark, position: 12, records: 2), &port)
    #expect(port.figures.announcedReceivedRecords == .max)
  }

  @Test("F78 behind the last position of all there is no batch")
  func lastPosition() throws {
    var (half, port) = (Self.receiver(), SessionPort(peerName: "peer"))
    try half.begun(RoundBegin(mark: Samples.mark, position: .max, records: 0), &port)
    for index in 0...1 as ClosedRange<UInt32> { try half.arrived(index: index, sealed: [1], &port) }
    half.pump(&port)
    try half.applied(to: .max, records: 0, missing: [], &port)
    #expect(throws: SessionEnd.self) { try half.applied(to: .max, records: 0, missing: [], &port) }
  }

  // MARK: Parts of large values

  private static func parts(_ count: Int) -> BlobPartsWanted {
    BlobPartsWanted(
      hash: Samples.hash, size: UInt64(2 * count),
      parts: (0..<count).map { BlobPart(offset: UInt64(2 * $0), count: 1) })
  }

  @Test("All parts of a recipe are given, in order, and what is asked for beside them; not more at once")
  func parts() throws {
    var (source, port) = (BlobSource(), SessionPort(peerName: "peer"))
    try source.wanted(Self.parts(WireLimits.blobParts))
    try source.wanted((1..<Limits.blobsInFlight).map { BlobNeed(hash: Samples.hash, size: UInt64($0)) })
    // One more question than there may be, and one more part.
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
        source.read(hash, offset: offset, sealed: [1], &port)
      }
      (port.actions, port.queued) = ([], 0)
    } while !source.isQuiet
    let ofParts = (0..<WireLimits.blobParts).map { UInt64(2 * $0) }
    #expect(offsets == ofParts + [UInt64](repeating: 0, count: Limits.blobsInFlight - 1))
    #expect(port.figures.sentBlobs == Limits.blobsInFlight)
  }

  @Test(
    "A range that holds another number of bytes than the part it is of ends the session",
    arguments: [4, 5, 6])
  func otherLength(count: Int) throws {
    var port = SessionPort(peerName: "peer")
    let hellos = [Samples.left, Samples.right].map {
      Hello(
        compatibleFeatures: SessionFeature.chunks, summary: Self.summary($0), wallMilliseconds: Samples.wall,
        digest: Samples.digest, receives: $0 == Samples.left, sends: $0 == Samples.right)
    }
    var exchange = Exchange(
      client: .pull, own: hellos[0], peer: hellos[1], missing: [], isErrand: true, &port)
    try exchange.answered(.cursor(nil), &port)
    exchange.want(
      BlobPartsWanted(hash: Samples.hash, size: 20, parts: [BlobPart(offset: 10, count: 5)]), &port)
    let range = BlobRange(hash: Samples.hash, offset: 10, isLast: true, sealed: [1])
    try exchange.accept(.blobRange(range), &port)
    #expect(port.actions.last == .openBlobRange(range))
    let opened = SessionEvent.blobRangeOpened(Samples.hash, offset: 10, noise(count, seed: 1))
    if count == 5 {
      try exchange.answered(opened, &port)
      #expect(port.news == [.part(Samples.hash, offset: 10, noise(count, seed: 1))])
    } else {
      #expect(throws: SessionEnd.self) { try exchange.answered(opened, &port) }
      #expect(port.news.isEmpty)
    }
  }

  @Test("A value of which less comes than its recipe wants is asked for plainly, and not waited for")
  func lessThanItsRecipe() throws {
    var port = SessionPort(peerName: "peer")
    var assembly = BlobAssembly(BlobNeed(hash: Samples.hash, size: 5), &port)
    try assembly.arrived(SealedRecipe(hash: Samples.hash, offset: 0, sealed: [1]))
    assembly.pump(&port)
    assembly.matched(end: 5, missing: [BlobPart(offset: 0, count: 5)], &port)
    try assembly.arrived(BlobRange(hash: Samples.hash, offset: 0, isLast: true, sealed: [1]))
    assembly.pump(&port)
    assembly.stored(held: 4, isComplete: false, &port)
    assembly.pump(&port)
    #expect(assembly.result == .plainly(BlobNeed(hash: Samples.hash, size: 5, offset: 4)))
  }

  @Test("Where a value is not here any more, the rest of what was asked of it is not given, and the next is")
  func lacking() throws {
    var (source, port) = (BlobSource(), SessionPort(peerName: "peer"))
    let other = try #require(BlobHash(bytes: Samples.bytes(32, from: 1)))
    try source.wanted(Self.parts(2000))
    try source.wanted([BlobNeed(hash: other, size: 5)])
    source.pump(&port)
    for index in 0..<WireLimits.blobReadsInFlight - 1 {
      source.read(Samples.hash, offset: UInt64(2 * index), sealed: [1], &port)
    }
    port.actions = []
    source.lacks(Samples.hash, &port)
    #expect(port.actions == [.send(Message.blobUnavailable(Samples.hash).frame.bytes)])
    (port.actions, port.queued) = ([], 0)
    source.pump(&port)
    #expect(port.actions == [.readBlob(hash: other, size: 5, offset: 0, count: 5)])
  }
}
