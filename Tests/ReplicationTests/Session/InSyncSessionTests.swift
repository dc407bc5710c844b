import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// Client behaviour when the hellos show that nothing needs to be done.
@Suite("A session between copies in sync")
struct InSyncSessionTests {
  static let vector = VersionVector([Samples.left: 10, Samples.right: 7])

  static func summary(_ actor: ActorID, _ position: UInt64) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: vector[actor], vector: vector, floor: VersionVector(),
      horizon: .zero, position: position)
  }
  static let own = Replica(
    summary: summary(Samples.left, 40), digest: Samples.digest, wallMilliseconds: Samples.wall, cursor: nil,
    missingBlobs: [])
  static let cursor = Cursor(position: 50, mark: Samples.mark, closed: true)

  static func theirs(_ direction: SessionDirection) -> Hello {
    Hello(
      compatibleFeatures: SessionFeature.isComplete, summary: summary(Samples.right, 50),
      wallMilliseconds: Samples.wall, digest: Samples.digest, directions: direction.directions.mirrored,
      cursor: Cursor(position: 40, mark: Samples.mark, closed: true))
  }

  /// A client's answer once it has both hellos and its cursor.
  static func answer(
    _ direction: SessionDirection, _ own: Replica = own, cursor: Cursor? = cursor,
    _ change: (inout Hello) -> Void = { _ in }
  ) -> (actions: [SessionAction], figures: SessionFigures) {
    var session = Session(role: .client(direction), peerName: "right", peerRight: .readWrite)
    _ = session.start()
    _ = session.handle(.replica(own))
    var hello = theirs(direction)
    change(&hello)
    _ = session.handle(.received(Message.hello(hello).frame.bytes))
    return (session.handle(.cursor(cursor)), session.figures)
  }

  static func isOver(_ actions: [SessionAction]) -> Bool { actions.contains(.close(.done)) }

  @Test(
    "ends after the hellos, with the server's confirmation",
    arguments: [SessionDirection.push, .pull, .sync])
  func nothing(direction: SessionDirection) {
    let (actions, figures) = Self.answer(direction)
    #expect(actions.first == .send(Message.goodbye.frame.bytes))
    #expect(Self.isOver(actions))
    #expect(figures.roundTrips == 1)
    #expect(figures.receipt?.received == (direction.sends ? 40 : nil))
    #expect(figures.receipt?.state.digest == (direction.sends ? Samples.digest : nil))
  }

  @Test("goes through the rounds if anything may be left to transfer")
  func something() {
    let changes: [(String, SessionDirection, (inout Hello) -> Void)] = [
      ("writes that it lacks", .push, { $0.summary.vector[Samples.left] = 9 }),
      (
        "writes that are news", .pull,
        {
          $0.summary.vector[Samples.right] = 8; $0.summary.sequence = 8
        }
      ),
      ("a later position", .pull, { $0.summary.position = 51 }),
      ("a cursor that lags", .push, { $0.cursor?.position = 39 }),
      ("a round that is open", .push, { $0.cursor?.closed = false }),
      ("no cursor", .push, { $0.cursor = nil }),
      ("large values to come", .push, { $0.compatibleFeatures = 0 }),
      (
        "group keys", .sync,
        {
          $0.epochs = [EpochCheck(epoch: 2, check: Samples.bytes(8, from: 1))]; $0.compatibleFeatures |= 8
        }
      ),
      ("a copy in doubt", .sync, { $0.summary.health = .unconfirmed }),
      ("deletes that were purged", .sync, { $0.summary.floor[Samples.right] = 9 }),
      ("another digest", .sync, { $0.digest = StateDigest(bytes: Samples.bytes(16, from: 1))! }),
    ]
    for (name, direction, change) in changes {
      #expect(!Self.isOver(Self.answer(direction, Self.own, change).actions), "\(name)")
    }
    #expect(!Self.isOver(Self.answer(.pull, cursor: nil).actions))
    #expect(
      !Self.isOver(Self.answer(.pull, cursor: Cursor(position: 49, mark: Samples.mark, closed: true)).actions)
    )
    #expect(
      !Self.isOver(
        Self.answer(.pull, cursor: Cursor(position: 50, mark: Samples.mark, closed: false)).actions))
    var lacking = Self.own
    lacking.missingBlobs = [BlobNeed(hash: Samples.hash, size: 10, offset: 0)]
    #expect(!Self.isOver(Self.answer(.pull, lacking).actions))
    #expect(Self.isOver(Self.answer(.push, lacking).actions))
    // Fields that are irrelevant for the direction cause no delay.
    #expect(Self.isOver(Self.answer(.push, cursor: nil).actions))
    #expect(Self.isOver(Self.answer(.pull) { $0.cursor = nil }.actions))
  }
}
