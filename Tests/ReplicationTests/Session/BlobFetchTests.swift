import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Requests for and storage of large values, step by step: `BlobFetch` alone.
@Suite("Fetching large values") struct BlobFetchTests {
  private static func need(_ number: UInt8) -> BlobNeed {
    BlobNeed(hash: BlobHash(bytes: Samples.bytes(32, from: number))!, size: 5)
  }

  private static func whole(_ number: UInt8) -> BlobRange {
    BlobRange(hash: need(number).hash, offset: 0, isLast: true, encrypted: [number])
  }

  /// A fetch of several values, and its requests since the last check.
  private struct Probe {
    var fetch = BlobFetch()
    var port = SessionPort(peerName: "peer")

    init(_ count: UInt8) { fetch.need((1..<count + 1).map(need)) }

    mutating func actions() -> [SessionAction] {
      fetch.pump(&port)
      defer { port.actions = [] }
      return port.actions
    }
  }

  private static func wanting(_ numbers: ClosedRange<UInt8>) -> SessionAction {
    .send(Message.blobWant(numbers.map(need)).frame.bytes)
  }

  @Test func `Values received in one piece each while others are being stored are stored together`() throws {
    var probe = Probe(4)
    #expect(probe.actions() == [Self.wanting(1...4)])
    try probe.fetch.arrived(Self.whole(1))
    #expect(probe.actions() == [.storeBlobs([Self.whole(1)], sizes: [5])])
    for number in 2...4 as ClosedRange<UInt8> { try probe.fetch.arrived(Self.whole(number)) }
    #expect(probe.actions() == [])
    probe.fetch.stored(whole: [true], &probe.port)
    #expect(probe.actions() == [.storeBlobs((2...4).map(Self.whole), sizes: [5, 5, 5])])
    #expect(!probe.fetch.isComplete && probe.fetch.unstoredBytes == 0)
    probe.fetch.stored(whole: [true, true, true], &probe.port)
    #expect(probe.fetch.isComplete && probe.port.figures.receivedBlobs == 4)
  }

  @Test func `Received values free space in the fetch window before they are stored`() throws {
    let limit = UInt8(WireLimits.wholeBlobs)
    var probe = Probe(limit + 3)
    #expect(probe.actions() == [Self.wanting(1...limit)])
    try probe.fetch.arrived(Self.whole(1))
    try probe.fetch.arrived(Self.whole(2))
    #expect(
      probe.actions() == [
        .storeBlobs([Self.whole(1), Self.whole(2)], sizes: [5, 5]), Self.wanting(limit + 1...limit + 2),
      ])
    #expect(throws: SessionEnd.self) { try probe.fetch.arrived(Self.whole(1)) }
    #expect(throws: SessionEnd.self) { try probe.fetch.lacking(Self.need(2).hash) }
    try probe.fetch.lacking(Self.need(3).hash)
    #expect(probe.actions() == [Self.wanting(limit + 3...limit + 3)])
  }

  @Test func `Of several values stored together, one with a wrong hash is requested once more (F85)`()
    throws
  {
    var probe = Probe(3)
    _ = probe.actions()
    for number in 1...3 as ClosedRange<UInt8> { try probe.fetch.arrived(Self.whole(number)) }
    _ = probe.actions()
    probe.fetch.stored(whole: [true, false, true], &probe.port)
    #expect(probe.actions() == [Self.wanting(2...2)])
    try probe.fetch.arrived(Self.whole(2))
    _ = probe.actions()
    probe.fetch.stored(whole: [false], &probe.port)
    #expect(probe.actions() == [])
    #expect(probe.fetch.isComplete && probe.fetch.unavailable == [Self.need(2).hash])
  }

  private static let large: BlobNeed = {
    var need = Self.need(1)
    need.size = 5 << 18
    return need
  }()

  private static func ranges(_ numbers: Range<UInt64>) -> [BlobRange] {
    numbers.map { BlobRange(hash: large.hash, offset: $0 << 18, isLast: $0 == 4, encrypted: [UInt8($0)]) }
  }

  /// A fetch of a large value of which these ranges have arrived.
  private static func fetching(_ numbers: Range<UInt64>) throws -> Probe {
    var probe = Probe(0)
    probe.fetch.need([large])
    _ = probe.actions()
    for range in ranges(numbers) { try probe.fetch.arrived(range) }
    return probe
  }

  @Test func `Ranges of one value received while others are being stored are stored together, two at most`()
    throws
  {
    var probe = try Self.fetching(0..<3)
    #expect(probe.actions() == [.storeBlobRanges(Self.ranges(0..<2), size: Self.large.size)])
    for range in Self.ranges(3..<5) { try probe.fetch.arrived(range) }
    probe.fetch.stored(Self.large.hash, held: 2 << 18, isComplete: false, &probe.port)
    #expect(probe.actions() == [.storeBlobRanges(Self.ranges(2..<4), size: Self.large.size)])
    #expect(probe.fetch.unstoredBytes == 1 + WireLimits.rangeOverheadBytes)
    probe.fetch.stored(Self.large.hash, held: 4 << 18, isComplete: false, &probe.port)
    #expect(probe.actions() == [.storeBlobRanges(Self.ranges(4..<5), size: Self.large.size)])
    probe.fetch.stored(Self.large.hash, held: Self.large.size, isComplete: true, &probe.port)
    #expect(probe.actions() == [] && probe.fetch.isComplete && probe.fetch.unavailable.isEmpty)
  }

  @Test("Where a joint store of ranges fails midway, the rest is discarded and requested once more")
  func brokenOff() throws {
    var probe = try Self.fetching(0..<5)
    #expect(probe.actions() == [.storeBlobRanges(Self.ranges(0..<2), size: Self.large.size)])
    probe.fetch.stored(Self.large.hash, held: 1 << 18, isComplete: false, &probe.port)
    var rest = Self.large
    rest.offset = 1 << 18
    #expect(probe.actions() == [.send(Message.blobWant([rest]).frame.bytes)])
    #expect(probe.fetch.unstoredBytes == 0 && !probe.fetch.isComplete)
  }

  // MARK: Chunks

  /// A value of several ranges was being stored when its sender cancelled it, and is wanted again before the
  /// outcome is known: now it may be assembled from chunks.
  private static func wantedAgain() throws -> (probe: Probe, need: BlobNeed) {
    var need = need(1)
    need.size = 600_000
    var probe = Probe(0)
    probe.fetch.takesRecipes = true
    probe.fetch.need([need])
    #expect(probe.actions() == [.send(Message.blobWant([need]).frame.bytes)])
    let range = BlobRange(hash: need.hash, offset: 0, isLast: false, encrypted: [1])
    try probe.fetch.arrived(range)
    #expect(probe.actions() == [.storeBlobRanges([range], size: need.size)])
    try probe.fetch.lacking(need.hash)
    need.hasKin = true
    probe.fetch.want([need])
    #expect(probe.actions() == [])
    return (probe, need)
  }

  @Test("A value wanted again while a range of it is being stored waits, and continues after that range")
  func again() throws {
    var (probe, need) = try Self.wantedAgain()
    probe.fetch.stored(need.hash, held: 262_144, isComplete: false, &probe.port)
    need.offset = 262_144
    #expect(probe.actions() == [.send(Message.recipeWant(need).frame.bytes)])
    #expect(probe.fetch.count == 1 && probe.fetch.finishedRequests.isEmpty)
  }

  @Test("A value wanted again that is present is not fetched; one of which nothing came starts over")
  func againComplete() throws {
    var (probe, need) = try Self.wantedAgain()
    probe.fetch.stored(need.hash, held: need.size, isComplete: true, &probe.port)
    #expect(probe.actions() == [] && probe.fetch.isComplete)
    #expect(probe.fetch.finishedRequests.map(\.isHere) == [true])
    (probe, need) = try Self.wantedAgain()
    probe.fetch.rejected(need.hash)
    need.offset = 0
    #expect(probe.actions() == [.send(Message.recipeWant(need).frame.bytes)])
  }
}
