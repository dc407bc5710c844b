import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// Transcripts of a repair: the messages and store requests of each side, and the violations it rejects.
@Suite struct RepairSessionTests {
  private static func summary(_ actor: ActorID) -> ReplicaSummary {
    ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector([actor: 10]),
      floor: VersionVector(), horizon: .zero, position: 10)
  }

  private static func hello(_ actor: ActorID, repairs: Bool = true) -> Hello {
    Hello(
      compatibleFeatures: repairs ? SessionFeature.repair : 0, summary: summary(actor),
      wallMilliseconds: Samples.wall, digest: Samples.digest, directions: .both)
  }

  private static func replica(_ actor: ActorID) -> Replica {
    Replica(
      summary: summary(actor), digest: Samples.digest, wallMilliseconds: Samples.wall, repairs: true)
  }

  /// A server that has answered a client's hello.
  private static func server(_ right: MemberRight = .readWrite, clientRepairs: Bool = true) -> Talk {
    let session = Talk(.server, right)
    var client = hello(Samples.left, repairs: clientRepairs)
    client.directions = right == .readWrite ? .both : .receives
    _ = session.say(.hello(client))
    _ = session.handle(.replica(replica(Samples.right)))
    return session
  }

  private static let scope = RepairScope(time: Samples.wall, position: 10)
  private static let groups = DigestGroups(
    at: Samples.wall, digests: Array(repeating: StateDigest(), count: DigestGroups.count))
  private static let buckets: [StateDigest] = {
    var buckets = Array(repeating: StateDigest(), count: Store.digestBuckets)
    buckets[0x0203] = Samples.digest
    return buckets
  }()
  private static let hash: UInt64 = 0xABCD_0203
  private static let prints = BucketPrints(buckets: [0x0203], prints: [])
  private static let ownPrints = BucketPrints(
    buckets: [0x0203], prints: [RecordFingerprint(keyHash: hash, state: .live, content: 5)])

  @Test(
    "The server sends buckets of differing groups, records of differing keys, and repairs before its reply"
  )
  func server() {
    let session = Self.server()
    #expect(session.say(.digestGroups(Self.groups)) == [.digestBuckets(at: Samples.wall)])
    let own = GroupBuckets(group: 2, digests: Array(Self.buckets[0x0200..<0x0300]))
    #expect(
      session.handle(.bucketsDigested(Self.buckets)) == [.send(Message.groupBuckets([own]).frame.bytes)])
    #expect(session.say(.bucketPrints(Self.prints)) == [.fingerprint(buckets: [0x0203], Self.scope)])
    #expect(
      session.handle(.fingerprinted(Self.ownPrints)) == [
        .exchangeRecords(hashes: [Self.hash], theirs: nil, Self.scope, index: 1)
      ])
    let records = DifferingRecords(hashes: [Self.hash], encrypted: [1])
    #expect(
      session.handle(.recordsExchanged(records, keys: [])) == [
        .send(Message.differingRecords(records).frame.bytes)
      ])
    #expect(
      session.say(.differingRecords(DifferingRecords(hashes: [Self.hash], encrypted: [2]))) == [
        .repair(hashes: [Self.hash], theirs: [2], Self.scope, index: 1)
      ])
    #expect(
      session.handle(.repaired(RepairOutcome(keys: [[7]]))) == [
        .send(Message.repaired(keys: 1, isRenewed: false).frame.bytes)
      ])
    #expect(session.session.figures.repairedKeys == 1 && session.session.figures.repaired == [[7]])
    // The next comparison may follow, after another round.
    #expect(session.say(.digestGroups(Self.groups)) == [.digestBuckets(at: Samples.wall)])
  }

  @Test("A server that has become another actor sends nothing more in the session")
  func renewed() {
    let session = Self.server()
    _ = session.say(.digestGroups(Self.groups))
    _ = session.handle(.bucketsDigested(Self.buckets))
    _ = session.say(.bucketPrints(Self.prints))
    _ = session.handle(.fingerprinted(Self.ownPrints))
    _ = session.handle(.recordsExchanged(DifferingRecords(hashes: [Self.hash], encrypted: [1]), keys: []))
    _ = session.say(.differingRecords(DifferingRecords(hashes: [Self.hash], encrypted: [2])))
    _ = session.handle(.repaired(RepairOutcome(keys: [[7]], isRenewed: true)))
    guard case .close(.reconnect)? = session.say(.want(nil)).last else {
      Issue.record("it went on")
      return
    }
  }

  @Test("The comparison ends when no difference is left once the fingerprints are compared")
  func nothingFound() {
    let session = Self.server()
    _ = session.say(.digestGroups(Self.groups))
    _ = session.handle(.bucketsDigested(Self.buckets))
    _ = session.say(.bucketPrints(Self.ownPrints))
    let nothing = DifferingRecords(hashes: [], encrypted: [])
    #expect(
      session.handle(.fingerprinted(Self.ownPrints)) == [.send(Message.differingRecords(nothing).frame.bytes)]
    )
  }

  @Test("F81 there is no repair with a read-only member, nor with one that does not support it")
  func notAgreed() {
    #expect(Self.server(.readOnly).say(.digestGroups(Self.groups)).last?.failure == .protocolViolation)
    #expect(
      Self.server(clientRepairs: false).say(.digestGroups(Self.groups)).last?.failure == .protocolViolation)
  }

  @Test("F78 an unrequested or misplaced message ends the session")
  func outOfPlace() {
    let records = DifferingRecords(hashes: [Self.hash], encrypted: [1])
    for message in [
      Message.groupBuckets([]), .bucketPrints(Self.prints), .differingRecords(records),
      .repaired(keys: 1, isRenewed: false), .stateClaim(Samples.claim),
    ] {
      #expect(Self.server().say(message).last?.failure == .protocolViolation, "\(message)")
    }
    // Twice at once.
    let busy = Self.server()
    _ = busy.say(.digestGroups(Self.groups))
    #expect(busy.say(.digestGroups(Self.groups)).last?.failure == .protocolViolation)
    // Records of a key that was not offered.
    let session = Self.server()
    _ = session.say(.digestGroups(Self.groups))
    _ = session.handle(.bucketsDigested(Self.buckets))
    _ = session.say(.bucketPrints(Self.prints))
    _ = session.handle(.fingerprinted(Self.ownPrints))
    _ = session.handle(.recordsExchanged(records, keys: []))
    let others = DifferingRecords(hashes: [Self.hash + 1 << 16], encrypted: [2])
    #expect(session.say(.differingRecords(others)).last?.failure == .protocolViolation)
  }

  @Test("F78 a peer that compares endlessly is told to reconnect later")
  func endless() {
    let session = Self.server()
    for _ in 0..<WireLimits.repairPasses {
      #expect(session.say(.digestGroups(Self.groups)) == [.digestBuckets(at: Samples.wall)])
      _ = session.handle(.bucketsDigested(Self.buckets))
    }
    guard case .close(.reconnect)? = session.say(.digestGroups(Self.groups)).last else {
      Issue.record("it went on")
      return
    }
  }
}
