import SyncTestSupport
import Testing

@testable import SyncStore

/// A vector names a bounded number of actors; a session ends when it receives a larger one (F82).
@Suite("A copy that covers the maximum number of actors")
struct ManyActorsTests {
  private let store: Store
  private static let peer = ActorID(high: 2, low: 0)

  init() throws { store = try Store.create(on: SimulatedHost(seed: 21)) }

  /// The close of a round from a sender that covers this many actors.
  private static func close(_ count: Int, position: UInt64 = 1) -> RoundClose {
    let actors = (0..<count).map { (ActorID(high: 1, low: UInt64($0)), UInt64(1)) }
    return RoundClose(
      sender: peer, mark: RoundMark(high: 3, low: 3), position: position,
      vector: VersionVector(Dictionary(uniqueKeysWithValues: actors)), floor: VersionVector(), horizon: .zero)
  }

  private func expectReadable(_ count: Int) throws {
    let vector = try store.replicaSummary().vector
    #expect(vector.count == count && count <= Limits.actors)
    var writer = ByteWriter()
    writer.write(vector)
    var reader = ByteReader(writer.bytes)
    #expect(try reader.readVector() == vector)
  }

  @Test("has slots left for its own actor, and for a new one after a rollback")
  func placesLeft() throws {
    try store.finish(Self.close(Limits.actors - 2))
    try store.put("own", "1")
    try expectReadable(Limits.actors - 1)
    // Records already applied by the round stay covered.
    _ = try store.openRound(since: nil, covered: VersionVector())
    try store.becomeNewActor()
    try store.put("as another", "2")
    try expectReadable(Limits.actors)
    // It is told again of what it covers already.
    try store.finish(Self.close(Limits.actors - 2, position: 2))
  }

  @Test("accepts no vector that leaves no slot for itself, and says what to do", arguments: [0, 1])
  func noPlace(lacking: Int) throws {
    let error = #expect(throws: StoreError.self) { try store.finish(Self.close(Limits.actors - lacking)) }
    #expect(error?.code == .outOfBounds && error?.message.contains("importAll") == true)
    #expect(try store.replicaSummary().vector.isEmpty)
  }

  @Test("accepts no floor that it could not send")
  func floor() throws {
    func close(_ family: UInt64) -> RoundClose {
      var close = Self.close(1)
      let purged = (0..<Limits.actors).map { (ActorID(high: family, low: UInt64($0)), UInt64(1)) }
      (close.kind, close.floor) = (.fullState, VersionVector(Dictionary(uniqueKeysWithValues: purged)))
      return close
    }
    try store.finish(close(5))
    #expect(throws: StoreError.self) { try store.finish(close(6)) }
    #expect(try store.replicaSummary().floor == close(5).floor)
  }

  @Test("defines them once in a compacted journal, however often it became a new actor")
  func compacted() throws {
    let host = SimulatedHost(seed: 22, compacting: .onRequest)
    let store = try Store.create(on: host, configuration: CompactionTests.small)
    try store.finish(Self.close(Limits.actors - 20))
    for _ in 0..<16 {
      try store.becomeNewActor()
      try store.put("own", "1")
    }
    let before = try store.status().journalBytes
    try store.compact()
    let after = try store.status().journalBytes
    // A vector of that many actors has 96 KiB.
    #expect(before > 16 * 96 << 10 && after < 4 * 96 << 10, "\(before), \(after)")
  }
}
