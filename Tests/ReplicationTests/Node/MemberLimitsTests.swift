import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

/// The effects a peer can have on this copy.
@Suite("The influence of a member") struct MemberLimitsTests {
  private static let device = DeviceID(bytes: (0..<32).map { UInt8($0) })!

  // MARK: New actors (rule R9)

  /// The session's answer to a member that covers more of this copy's writes than it has made.
  private static func claimed(by right: MemberRight, mayRenew: Bool = true) -> [SessionAction] {
    var session = Session(role: .server, peerName: "left", peerRight: right)
    session.mayBecomeNewActor = mayRenew
    _ = session.start()
    var hello = SessionTests.hello(Samples.left, .receives)
    hello.summary.vector[Samples.right] = 1 << 40
    _ = session.handle(.message(.hello(hello)))
    return session.handle(.replica(SessionTests.replica(Samples.right)))
  }

  private static func renews(_ actions: [SessionAction]) -> Bool {
    actions.contains { if case .becomeNewActor = $0 { true } else { false } }
  }

  @Test(
    "R9 a new actor is begun at the word of a read-write member, not of a read-only one, and not too often")
  func claims() {
    #expect(Self.renews(Self.claimed(by: .readWrite)))
    for actions in [Self.claimed(by: .readOnly), Self.claimed(by: .readWrite, mayRenew: false)] {
      #expect(!Self.renews(actions))
      #expect(actions.last?.failure == .unavailable)
      guard case .refuse(let refusal)? = actions.compactMap(\.message).last else {
        Issue.record("the other side is not told")
        return
      }
      #expect(refusal.code == .unavailable)
    }
  }

  @Test(
    "R9 a copy does not become a new actor because a read-only member refused it",
    arguments: [MemberRight.readOnly, .readWrite])
  func refusals(right: MemberRight) {
    var session = Session(role: .server, peerName: "left", peerRight: right)
    _ = session.start()
    let actions = session.handle(.message(.refuse(Refusal(.sameActor, "you bear a name that I gave up"))))
    #expect(Self.renews(actions) == (right == .readWrite))
  }

  @Test("R9 an unknown mark from a read-only member gives it a round from the start")
  func unknownMark() throws {
    let store = try Store.create(on: SimulatedHost(seed: 3))
    try Node.prepare(store, name: "first")
    try store.put(Key("key"), [1])
    let receiver = RoundReceiver(
      cursor: Cursor(position: 1, mark: Samples.mark, closed: true), covered: VersionVector())
    func opened(_ right: MemberRight) -> SessionEvent? {
      let guest = RemotePeer(
        device: Self.device, right: right, scans: HoldingsScans(), renewals: Locked(RenewalThrottle()))
      return SessionStore(store, remotePeer: guest).answer(.openRound(for: receiver), peer: Samples.left)
    }
    guard case .roundOpened(let records, _)? = opened(.readOnly) else {
      Issue.record("no round")
      return
    }
    #expect(records >= 1)
    guard case .rolledBack? = opened(.readWrite) else {
      Issue.record("who may write is not believed")
      return
    }
  }

  @Test("R9 peers can cause only a limited number of new actors per hour")
  func renewals() {
    var throttle = RenewalThrottle()
    for number in 0..<WireLimits.renewals {
      #expect(throttle.admits(at: UInt64(number)))
      throttle.count(at: UInt64(number))
    }
    #expect(!throttle.admits(at: WireLimits.renewalMilliseconds - 1))
    #expect(throttle.admits(at: WireLimits.renewalMilliseconds))
    throttle.count(at: WireLimits.renewalMilliseconds)
    #expect(!throttle.admits(at: WireLimits.renewalMilliseconds))
  }

  // MARK: Scans on behalf of a session

  @Test("One request of a device is answered at a time; a read-only device has a bounded rate")
  func scans() {
    let scans = HoldingsScans()
    let (second, size) = (Samples.proof.joiner, 10 * WireLimits.readOnlyScanBytesPerSecond)
    #expect(scans.begin(for: Self.device, .readWrite, bytes: size, at: 0))
    #expect(!scans.begin(for: Self.device, .readWrite, bytes: 1, at: 0))
    #expect(scans.begin(for: second, .readOnly, bytes: size, at: 0))
    scans.end(for: Self.device, at: 1)
    #expect(scans.begin(for: Self.device, .readWrite, bytes: size, at: 1))
    scans.end(for: second, at: 1)
    #expect(!scans.begin(for: second, .readOnly, bytes: 1, at: 9_000))
    #expect(scans.begin(for: second, .readOnly, bytes: 1, at: 10_001))
  }

  @Test("A scan on behalf of a session ends with the session, between two pieces")
  func cancelled() throws {
    let store = try Store.create(
      on: SimulatedHost(seed: 4), configuration: Configuration(blobThreshold: 1000))
    try Node.prepare(store, name: "first")
    // Larger than the limit of packs: such values are read in one piece.
    let bytes = noise(5 << 20, seed: 5)
    try store.put(Key("large"), bytes)
    let blob = BlobReference(hash: BlobHash(bytes: SHA256.hash(bytes))!, size: UInt64(bytes.count))
    let wanted = HoldingsWanted(number: 1, blobs: [blob])
    func session() -> SessionStore {
      SessionStore(
        store,
        remotePeer: RemotePeer(
          device: Self.device, right: .readWrite, scans: HoldingsScans(), renewals: Locked(RenewalThrottle()))
      )
    }
    guard case .holdingsStated(let stated)? = session().answer(.stateHoldings(wanted), peer: nil) else {
      Issue.record("it does not say what it holds")
      return
    }
    #expect(stated.statement?.held == [true])
    let over = session()
    over.cancel()
    #expect(
      over.answer(.stateHoldings(wanted), peer: nil)
        == .holdingsStated(HoldingsStated(number: 1, statement: nil)))
    var (asked, code): (Int, StoreError.Code?) = (0, nil)
    do throws(StoreError) {
      _ = try store.holdings(of: [blob]) {
        asked += 1
        return asked > 2
      }
    } catch {
      code = error.code
    }
    #expect(code == .cancelled && asked == 3)
  }

  // MARK: Memory

  @Test("Empty ranges of large values throttle their sender, too")
  func emptyRanges() {
    let session = SessionTests.server(missing: [SessionTests.wanted])
    var sent = 0
    var isPaused = false
    while !isPaused, sent < 1 << 20 {
      let range = BlobRange(hash: Samples.hash, offset: UInt64(100 + sent), isLast: false, encrypted: [])
      isPaused = session.handle(.message(.blobRange(range))).contains(.pauseReading)
      sent += 1
    }
    #expect(isPaused && sent <= WireLimits.unstoredBytes / WireLimits.rangeOverheadBytes + 2)
  }

  @Test("The number of unavailable large values is updated as it changes")
  func lacking() throws {
    func need(_ number: UInt8, isSpare: Bool = false) -> BlobNeed {
      var need = BlobNeed(hash: BlobHash(bytes: Samples.bytes(32, from: number))!, size: 5)
      need.isSpare = isSpare
      return need
    }
    var (fetch, port) = (BlobFetch(), SessionPort(peerName: "peer"))
    fetch.need([need(1), need(2, isSpare: true), need(3)])
    fetch.pump(&port)
    for number in 1...3 as ClosedRange<UInt8> { try fetch.lacking(need(number).hash) }
    #expect(fetch.lacking == 2 && fetch.unavailable.count == 3)
    fetch.need([need(3, isSpare: true), need(1)])
    #expect(fetch.lacking == 1 && fetch.finishedRequests.isEmpty)
    fetch.want([need(1)])
    #expect(fetch.lacking == 0)
    fetch.pump(&port)
    try fetch.lacking(need(1).hash)
    #expect(fetch.lacking == 1 && fetch.finishedRequests.map(\.hash) == [need(1).hash])
    #expect(fetch.finishedRequests.map(\.isHere) == [false])
  }

  @Test("A batch of more records than one transaction can have is refused")
  func records() throws {
    func payload(_ count: Int) -> [UInt8] {
      let records = (1...UInt64(count)).map { number in
        PositionedRecord(
          position: number,
          record: Record(
            version: Version(stamp: Stamp(rawValue: 1), dot: Dot(actor: Samples.left, sequence: number)),
            type: .bytes, key: [1], content: .tombstone))
      }
      return RecordCodec.encode(RecordCodec.Payload(position: UInt64(count), records: records))
    }
    #expect(throws: DecodingFailure.self) { try RecordCodec.read(payload(WireLimits.batchRecords + 1)) }
    #expect(try RecordCodec.read(payload(WireLimits.batchRecords)).records.count == WireLimits.batchRecords)
    // No transaction of the journal has as many.
    #expect(Limits.transactionBytes / 40 < WireLimits.batchRecords)
  }

  @Test("Decrypted batches count until they are applied, and throttle their sender")
  func opened() throws {
    let store = try Store.create(on: SimulatedHost(seed: 6))
    try Node.prepare(store, name: "first")
    let (session, keys) = (SessionStore(store), try StoreKeys(store).groupKeys())
    let record = Record(
      version: Version(stamp: Stamp(rawValue: 1 << 20), dot: Dot(actor: Samples.right, sequence: 1)),
      type: .bytes, key: [1], content: .inline([UInt8](repeating: 7, count: 1000)))
    let sealed = try BatchCodec.encrypt(
      RecordCodec.encode(.init(position: 1, records: [PositionedRecord(position: 1, record: record)])),
      as: .records(store: store.id, sender: Samples.right, mark: Samples.mark, index: 0), keys: keys,
      randomness: noise(BatchCodec.randomnessBytes, seed: 1))
    let action = SessionAction.applyBatch(
      sender: Samples.right, mark: Samples.mark, index: 0, encrypted: sealed, isFull: false, expansion: nil)
    let opened = session.decrypt(try #require(StagedBatch(action)))
    #expect(session.decryptedBytes.withLock { $0 } > 1000)
    _ = session.awaitDurability(session.append(opened))
    #expect(session.decryptedBytes.withLock { $0 } == 0)
    var greedy = Session(role: .server, peerName: "left", peerRight: .readWrite)
    _ = greedy.start()
    _ = greedy.handle(.message(.hello(SessionTests.hello(Samples.left, .both))))
    greedy.decryptedBytes = WireLimits.decryptedBytes + 1
    #expect(greedy.handle(.replica(SessionTests.replica(Samples.right))).contains(.pauseReading))
    #expect(greedy.heldBytes > WireLimits.decryptedBytes)
    greedy.decryptedBytes = 0
    #expect(greedy.handle(.sent(0)).contains(.resumeReading))
  }
}
