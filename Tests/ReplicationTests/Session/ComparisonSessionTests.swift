import SyncTestSupport
import Testing

@testable import Replication
@testable import SyncStore

/// Transcripts of a comparison that moves no records: messages and store requests of each side, and the
/// violations it rejects.
@Suite("A session that compares") struct ComparisonSessionTests {
  private static func summary(_ actor: ActorID, scope: KeyScope? = nil) -> ReplicaSummary {
    var summary = ReplicaSummary(
      store: Samples.store, actor: actor, sequence: 10, vector: VersionVector([actor: 10]),
      floor: VersionVector(), horizon: .zero, position: 10)
    summary.scope = scope
    return summary
  }

  private static func replica(_ actor: ActorID, scope: KeyScope? = nil) -> Replica {
    Replica(summary: summary(actor, scope: scope), digest: Samples.digest, wallMilliseconds: Samples.wall)
  }

  private static func hello(
    _ actor: ActorID, features: UInt64 = SessionFeature.comparison, directions: Hello.Directions,
    scope: KeyScope? = nil
  ) -> Hello {
    Hello(
      compatibleFeatures: features, summary: summary(actor, scope: scope), wallMilliseconds: Samples.wall,
      digest: Samples.digest, directions: directions)
  }

  /// A client after both hellos and its cursor, and what it did then.
  private static func client(
    serverFeatures: UInt64 = SessionFeature.comparison, serverScope: KeyScope? = nil
  ) -> (Talk, [SessionAction]) {
    let session = Talk(.client(.pull), mode: .comparison)
    _ = session.handle(.replica(replica(Samples.left)))
    let hello = hello(Samples.right, features: serverFeatures, directions: .sends, scope: serverScope)
    _ = session.say(.hello(hello))
    let actions = session.handle(.cursor(nil))
    return (session, actions)
  }

  /// A server that has answered a hello of a member that may only read.
  private static func server(features: UInt64 = SessionFeature.comparison) -> Talk {
    let session = Talk(.server, .readOnly)
    let hello = hello(Samples.left, features: features, directions: .receives)
    _ = session.say(.hello(hello))
    _ = session.handle(.replica(replica(Samples.right)))
    return session
  }

  private static let scope = RepairScope(time: Samples.wall, position: 10)
  private static let own: [StateDigest] = {
    var buckets = Array(repeating: StateDigest(), count: Store.digestBuckets)
    buckets[0x0203] = Samples.digest
    return buckets
  }()
  private static let prints = BucketPrints(
    buckets: [0x0203], prints: [RecordFingerprint(keyHash: 0xABCD_0203, state: .live, content: 5)])
  private static let states = KeyStates(buckets: [0x0203], hashes: [0xABCD_0203], encrypted: [1])
  private static let empty = GroupBuckets(
    group: 2, digests: Array(repeating: StateDigest(), count: DigestGroups.count))

  @Test("asks for the keys of the buckets that differ, until no group is left, and moves nothing")
  func client() {
    let (session, actions) = Self.client()
    #expect(actions == [.digestBuckets(at: Samples.wall)])
    let groups = DigestGroups(at: Samples.wall, digests: Repair.groups(of: Self.own))
    #expect(
      session.handle(.bucketsDigested(Self.own)) == [.send(Message.digestGroups(groups).frame.bytes)])
    #expect(session.say(.groupBuckets([Self.empty])) == [.fingerprint(buckets: [0x0203], Self.scope)])
    #expect(
      session.handle(.fingerprinted(Self.prints)) == [.send(Message.keysWant(Self.prints).frame.bytes)])
    let covered = VersionVector([Samples.right: 10])
    #expect(
      session.say(.keyStates(Self.states)) == [
        .compareKeys(Self.states, covered: covered, Self.scope, index: 1)
      ])
    let difference = KeyDifference(
      key: Key("k"), here: .nothing, there: .deleted(.zero), winner: .there)
    // The group that was compared is sent as the server stated it: it is not listed again.
    var rest = groups
    rest.digests[2] = StateDigest()
    #expect(
      session.handle(.keysCompared([difference])) == [.send(Message.digestGroups(rest).frame.bytes)])
    #expect(session.drainNotifications() == [.differences([difference])])
    let end = session.say(.groupBuckets([]))
    #expect(end == [.send(Message.goodbye.frame.bytes), .close(.done)])
  }

  @Test("asks again for the buckets that an answer leaves out")
  func partialAnswer() {
    let (session, _) = Self.client()
    var own = Self.own
    own[0x0204] = Samples.digest
    _ = session.handle(.bucketsDigested(own))
    _ = session.say(.groupBuckets([Self.empty]))
    let both = BucketPrints(buckets: [0x0203, 0x0204], prints: [])
    _ = session.handle(.fingerprinted(both))
    _ = session.say(.keyStates(Self.states))
    #expect(session.handle(.keysCompared([])) == [.fingerprint(buckets: [0x0204], Self.scope)])
  }

  @Test("ends with a reason if the other side cannot compare, or holds only some keys")
  func cannotCompare() throws {
    let old = Self.client(serverFeatures: 0).1
    #expect(old.last?.failure == .unavailable)
    let selective = Self.client(serverScope: try KeyScope(prefixes: ["a/"])).1
    #expect(selective.last?.failure == .notAllowed)
  }

  @Test("F78 rejects a statement about buckets that it did not ask for, and an empty one")
  func statements() {
    for states in [
      KeyStates(buckets: [0x0204], hashes: [], encrypted: [1]),
      KeyStates(buckets: [], hashes: [], encrypted: []),
      KeyStates(buckets: [0x0203], hashes: [0xABCD_0204], encrypted: [1]),
    ] {
      let (session, _) = Self.client()
      _ = session.handle(.bucketsDigested(Self.own))
      _ = session.say(.groupBuckets([Self.empty]))
      _ = session.handle(.fingerprinted(Self.prints))
      let end = session.say(.keyStates(states))
      #expect(end.last?.failure == .protocolViolation)
    }
  }

  @Test("is answered also for a member that may only read, as often as it asks, and repairs nothing")
  func server() {
    let session = Self.server()
    let groups = DigestGroups(
      at: Samples.wall, digests: Array(repeating: StateDigest(), count: DigestGroups.count))
    #expect(session.say(.digestGroups(groups)) == [.digestBuckets(at: Samples.wall)])
    _ = session.handle(.bucketsDigested(Self.own))
    for index in 1...2 {
      #expect(
        session.say(.keysWant(Self.prints)) == [.stateKeys(Self.prints, Self.scope, index: UInt64(index))])
      #expect(
        session.handle(.keysStated(Self.states)) == [.send(Message.keyStates(Self.states).frame.bytes)])
    }
    #expect(session.say(.goodbye) == [.close(.done)])
    // A repair remains closed to it.
    let other = Self.server()
    _ = other.say(.digestGroups(groups))
    _ = other.handle(.bucketsDigested(Self.own))
    let refused = other.say(.bucketPrints(Self.prints))
    #expect(refused.last?.failure == .protocolViolation)
  }

  @Test("F78 is rejected out of place, or where it was not agreed")
  func outOfPlace() {
    let groups = DigestGroups(
      at: Samples.wall, digests: Array(repeating: StateDigest(), count: DigestGroups.count))
    let early = Self.server()
    #expect(
      early.say(.keysWant(Self.prints)).last?.failure == .protocolViolation)
    let old = Self.server(features: 0)
    #expect(
      old.say(.digestGroups(groups)).last?.failure == .protocolViolation)
    let unasked = Self.server()
    #expect(
      unasked.say(.keyStates(Self.states)).last?.failure
        == .protocolViolation)
  }

  @Test("F78 ends a session that asks without end")
  func endless() {
    let session = Self.server()
    let groups = DigestGroups(
      at: Samples.wall, digests: Array(repeating: StateDigest(), count: DigestGroups.count))
    _ = session.say(.digestGroups(groups))
    _ = session.handle(.bucketsDigested(Self.own))
    for _ in 0..<WireLimits.comparisonAnswers {
      _ = session.say(.keysWant(Self.prints))
      _ = session.handle(.keysStated(Self.states))
    }
    let end = session.say(.keysWant(Self.prints))
    guard case .close(.reconnect)? = end.last else {
      Issue.record("it went on")
      return
    }
  }
}
