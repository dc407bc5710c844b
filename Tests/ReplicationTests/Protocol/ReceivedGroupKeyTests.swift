import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Group keys received from another member, which may be hostile or broken.
@Suite("Received group keys") struct ReceivedGroupKeyTests {
  private static func summary(_ actor: ActorID) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector(), floor: VersionVector(),
      horizon: .zero, position: 10)
  }

  @Test("They are sent once per session: each message of them stays in memory until it is taken")
  func keysTwice() throws {
    var session = Session(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    let check = EpochCheck(epoch: 1, check: Samples.bytes(8, from: 1))
    let hello = Hello(
      compatibleFeatures: SessionFeature.groupKeys, summary: Self.summary(Samples.left),
      wallMilliseconds: Samples.wall, digest: Samples.digest, directions: .both, epochs: [check])
    _ = session.handle(.received(Message.hello(hello).frame.bytes))
    _ = session.handle(
      .replica(
        Replica(
          summary: Self.summary(Samples.right), digest: Samples.digest, wallMilliseconds: Samples.wall,
          epochs: [check])))
    let keys = Message.groupKeys([1, 2]).frame.bytes
    #expect(session.handle(.received(keys)) == [.mergeGroupKeys([1, 2])])
    guard case .close(.failed(.protocolViolation, _))? = session.handle(.received(keys)).last else {
      Issue.record("keys were taken twice")
      return
    }
  }

  /// Consecutive epochs.
  private static func ring(_ count: Int, from ring: GroupKeyRing? = nil) throws -> GroupKeyRing {
    var ring = ring ?? GroupKeyRing(key: [UInt8](repeating: 1, count: 32))
    for number in 0..<count {
      _ = try ring.beginEpoch([UInt8](repeating: 2, count: 32), random: UInt32(number))
    }
    return ring
  }

  @Test(
    "A member that sends the last possible epoch, or the maximum number of them, does not end key renewal",
    arguments: [true, false])
  func lastEpoch(isLast: Bool) throws {
    var ring = try Self.ring(2)
    let before = ring
    var given = ring
    // The highest number, or more epochs than fit.
    if isLast {
      try given.insert([UInt8](repeating: 9, count: 32), epoch: .max)
    } else {
      for number in 2...1000 as ClosedRange<UInt32> {
        try given.insert([UInt8](repeating: 9, count: 32), epoch: number)
      }
    }
    #expect(throws: ReplicationError.self) { try ring.merge(given) }
    #expect(ring == before)
    _ = try ring.beginEpoch([UInt8](repeating: 3, count: 32), random: 1)
  }

  @Test("A member that missed many key renewals receives all keys; the last ones come a few at a time")
  func manyEpochs() throws {
    let most = GroupKeyRing.maximumEpochs - GroupKeyRing.reservedEpochs
    var ring = try Self.ring(0)
    let other = try Self.ring(most - 1)
    try ring.merge(other)
    #expect(ring == other && ring.epochs.count == most)
    // From then on a member may still be revoked, and all members learn of it.
    let further = try Self.ring(GroupKeyRing.epochsFromReserve, from: other)
    try ring.merge(further)
    #expect(ring == further)
    let tooMany = try Self.ring(GroupKeyRing.epochsFromReserve + 1, from: further)
    #expect(throws: ReplicationError.self) { try ring.merge(tooMany) }
  }
}
