import SyncStore
import SyncTestSupport
import Testing

@testable import Replication

// Session behaviour over time, with queues, and with invalid input.
extension SessionTests {
  @Test("F80 a batch that cannot be decrypted ends the session, and the other side learns no more than that")
  func unopened() {
    let session = Self.server()
    _ = session.handle(.message(Self.begin()))
    _ = session.handle(.message(.batch(index: 0, encrypted: [1])))
    let actions = session.handle(.failed(.protocolViolation, "bad tag at /secret/path"))
    #expect(actions.last == .close(.failed(.protocolViolation, "bad tag at /secret/path")))
    guard case .refuse(let refusal)? = actions.first?.message else {
      Issue.record("\(actions)")
      return
    }
    #expect(refusal.code == .protocolViolation && !refusal.text.contains("secret"))
  }

  @Test(
    "At most four batches are in flight before a confirmation, eight where the other side supports it",
    arguments: zip([0, SessionFeature.moreBatches], [4, 8] as [UInt32]))
  func window(features: UInt64, most: UInt32) {
    let session = Self.client(.push, features: features)
    _ = session.handle(.cursor(nil))
    var actions = session.handle(.roundOpened(records: 9, close: Self.close(Samples.left)))
    for index in 0..<most {
      #expect(actions.contains(.nextBatch(mark: Samples.mark, index: index)))
      actions = session.handle(.batchEncrypted([1], position: UInt64(index) + 1, records: 1))
    }
    #expect(actions.count == 1)
    #expect(
      session.handle(.message(.batchReceived(position: 1))) == [.nextBatch(mark: Samples.mark, index: most)])
    #expect(session.handle(.message(.batchReceived(position: 3))).last?.failure == .protocolViolation)
  }

  @Test(
    "F72 a receipt before every batch was confirmed, or for another position, is refused",
    arguments: [true, false])
  func earlyReceipt(isConfirmed: Bool) {
    let session = Self.client(.push)
    _ = session.handle(.cursor(nil))
    _ = session.handle(.roundOpened(records: 1, close: Self.close(Samples.left)))
    _ = session.handle(.batchEncrypted([1], position: 10, records: 1))
    _ = session.handle(.roundExhausted)
    if isConfirmed { _ = session.handle(.message(.batchReceived(position: 10))) }
    let receipt = Receipt(
      received: isConfirmed ? 9 : 10, state: Self.judged(Samples.right), missingBlobs: 0)
    #expect(session.handle(.message(.receipt(receipt))).last?.failure == .protocolViolation)
  }

  @Test("Blob ranges wait while the send queue is long, and continue as the transport drains")
  func blobBackpressure() {
    let session = Self.server()
    let need = BlobNeed(hash: Samples.hash, size: UInt64(20 * Limits.blobRangeBytes))
    var reads = session.handle(.message(.blobWant([need])))
    #expect(reads.count == WireLimits.blobReadsInFlight)
    let sealed = [UInt8](repeating: 0, count: Limits.blobRangeBytes)
    var queued = 0
    for read in reads {
      guard case .readBlob(_, _, let offset, _) = read else { continue }
      let actions = session.handle(.blobRead(hash: Samples.hash, offset: offset, encrypted: sealed))
      // Reading stops. Large data is forwarded unchanged after the start of its frame.
      #expect(actions.count == 2)
      for case .send(let bytes) in actions { queued += bytes.count }
    }
    reads = session.handle(.sent(queued))
    #expect(reads.count == WireLimits.blobReadsInFlight)
  }

  @Test("A missing blob is reported once, and the next is sent")
  func blobUnavailable() {
    let session = Self.server()
    let other = BlobHash(bytes: Samples.bytes(32, from: 0x61))!
    let needs = [BlobNeed(hash: Samples.hash, size: 600_000), BlobNeed(hash: other, size: 5)]
    #expect(session.handle(.message(.blobWant(needs))).count == 4)
    #expect(session.handle(.blobUnavailable(Samples.hash)) == [.message(.blobUnavailable(Samples.hash))])
    #expect(session.handle(.blobUnavailable(Samples.hash)) == [])
    #expect(session.handle(.blobUnavailable(Samples.hash)) == [])
    #expect(
      session.handle(.blobRead(hash: other, offset: 0, encrypted: [1])) == [
        .message(.blobRange(BlobRange(hash: other, offset: 0, isLast: true, encrypted: [1])))
      ])
  }

  @Test(
    "F85 a blob with a wrong hash is requested once more from its start, then counted as missing")
  func blobRejected() {
    let session = Self.server(missing: [Self.wanted])
    func range(_ offset: UInt64) -> Message {
      .blobRange(BlobRange(hash: Samples.hash, offset: offset, isLast: true, encrypted: [1]))
    }
    _ = session.handle(.message(range(100)))
    let again = BlobNeed(hash: Samples.hash, size: 300_000, offset: 0)
    #expect(session.handle(.blobRejected(Samples.hash)) == [.message(.blobWant([again]))])
    _ = session.handle(.message(range(0)))
    #expect(session.handle(.blobRejected(Samples.hash)) == [])
    _ = session.handle(.message(Self.begin(records: 0)))
    #expect(
      session.handle(.message(Self.end(batches: 0, Samples.left))) == [.finishRound(Self.close(Samples.left))]
    )
    #expect(session.handle(.roundFinished) == [.digestState(at: nil)])
    let state = Self.judged(Samples.right)
    #expect(
      session.handle(.stateDigested(state)) == [
        .message(.receipt(Receipt(received: 10, state: state, missingBlobs: 1)))
      ])
  }

  @Test("A push whose blobs did not all arrive is incomplete")
  func missingBlobsAtTheOtherSide() {
    let session = Self.client(.push)
    _ = session.handle(.cursor(nil))
    _ = session.handle(.roundOpened(records: 0, close: Self.close(Samples.left)))
    let receipt = Receipt(received: 10, state: Self.judged(Samples.right), missingBlobs: 2)
    _ = session.handle(.message(.receipt(receipt)))
    let actions = session.handle(.stateDigested(Self.judged(Samples.left)))
    #expect(actions.first == .message(.goodbye))
    #expect(actions.last?.failure == .unavailable)
  }

  @Test(
    "F61 differing digests of copies in sync end the session with an error; otherwise they are not compared",
    arguments: [true, false])
  func digests(isInStep: Bool) {
    let cursor = Cursor(position: isInStep ? 10 : 9, mark: Self.endMark, closed: true)
    let session = Self.client(.push)
    _ = session.handle(.cursor(cursor))
    _ = session.handle(.roundOpened(records: 0, close: Self.close(Samples.left)))
    let receipt = Receipt(received: 10, state: Self.judged(Samples.left), missingBlobs: 0)
    _ = session.handle(.message(.receipt(receipt)))
    let actions = session.handle(.stateDigested(Self.judged(Samples.left, digest: StateDigest())))
    #expect(actions.last?.failure == (isInStep ? .digestsDiffer : nil))
  }

  @Test("The store's own time to produce a hello does not count against the other side")
  func slowStore() {
    let client = SessionProbe(role: .client(.push), peerName: "right", peerRight: .readWrite)
    #expect(client.start() == [.loadReplica(peer: nil, at: nil)])
    #expect(client.handle(.timer(.handshake)) == [])
    _ = client.handle(.replica(Self.replica(Samples.left)))
    #expect(client.handle(.timer(.handshake)).last?.failure == .timeout)
    let server = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = server.start()
    _ = server.handle(.message(.hello(Self.hello(Samples.left, .both))))
    #expect(server.handle(.timer(.handshake)) == [])
    let hello = server.handle(.replica(Self.replica(Samples.right))).first?.message
    guard case .hello? = hello else {
      Issue.record("\(String(describing: hello))")
      return
    }
  }

  @Test("F88 without a hello in time the connection ends, as it does after a message before the hello")
  func handshakeDeadline() {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
    _ = session.start()
    #expect(session.handle(.timer(.handshake)).last?.failure == .timeout)
    for message in [Message.want(nil), .batchReceived(position: 1), Self.begin()] {
      let session = SessionProbe(role: .server, peerName: "left", peerRight: .readWrite)
      _ = session.start()
      #expect(session.handle(.message(message)).last?.failure == .protocolViolation)
    }
  }

  @Test("F68 a silent peer is pinged, and dropped after the idle limit")
  func halfOpen() {
    let session = Self.server()
    session.drain()
    // The hello came within the first interval.
    #expect(session.handle(.timer(.ping)) == [.setTimer(.ping, seconds: Limits.pingSeconds)])
    let intervals = Limits.idleSeconds / Limits.pingSeconds
    for _ in 1..<intervals {
      session.drain()
      let actions = session.handle(.timer(.ping))
      guard case .ping? = actions.first?.message else {
        Issue.record("\(actions)")
        return
      }
    }
    #expect(session.handle(.timer(.ping)).last?.failure == .timeout)
  }

  @Test("F68 a peer that answers pings is kept")
  func alive() {
    let session = Self.server()
    for _ in 0..<20 {
      session.drain()
      for action in session.handle(.timer(.ping)) {
        if case .ping(let number)? = action.message { _ = session.handle(.message(.pong(number))) }
        #expect(action.failure == nil)
      }
    }
    session.drain()
    #expect(session.handle(.message(.ping(9))) == [.message(.pong(9))])
  }

  @Test("F88 bytes that trickle in without completing a frame count as silence")
  func drip() {
    let session = Self.server()
    _ = session.handle(.timer(.ping))
    _ = session.handle(.received([0xFF, 0xFF, 0, 0, MessageType.batch.rawValue]))
    var failure: ReplicationError.Code?
    // Ten minutes.
    for _ in 0..<(600 / Limits.pingSeconds) where failure == nil {
      _ = session.handle(.received([0]))
      failure = session.handle(.timer(.ping)).last?.failure
    }
    #expect(failure == .timeout)
  }

  @Test(
    "F88 the rate below which bytes count as silence does not depend on the interval",
    arguments: [5, 15, 60, 200])
  func rate(pingSeconds: Int) {
    for (bytesPerMinute, isKept) in [(3 << 10, false), (5 << 10, true)] {
      var liveness = Liveness(pingSeconds: pingSeconds)
      var isAlive = true
      for _ in 0..<(3600 / pingSeconds) {
        liveness.bytes = bytesPerMinute * pingSeconds / 60
        if !liveness.tick(isPaused: false, queued: 0) { isAlive = false }
      }
      #expect(isAlive == isKept, "\(bytesPerMinute) bytes a minute")
    }
  }

  @Test("F90 a peer that requests and never reads costs a bounded queue, and is dropped after the idle limit")
  func neverReads() {
    let session = Self.server()
    let pings = (0..<1000).flatMap { Message.ping(UInt64($0)).frame.bytes }
    var queued = 0
    for _ in 0..<100 {
      for case .send(let bytes) in session.handle(.received(pings)) { queued += bytes.count }
    }
    #expect(queued <= Limits.controlFrameBytes + 100)
    var failure: ReplicationError.Code?
    for _ in 0..<(Limits.idleSeconds / Limits.pingSeconds) {
      #expect(failure == nil)
      _ = session.handle(.received(pings))
      failure = session.handle(.timer(.ping)).last?.failure
    }
    #expect(failure == .timeout)
  }

  @Test("Reading pauses while much received data is not stored yet")
  func pausing() {
    let session = Self.server(missing: [Self.wanted])
    let sealed = [UInt8](repeating: 1, count: Limits.blobRangeBytes)
    var paused = false
    for number in 0..<40 {
      let range = BlobRange(
        hash: Samples.hash, offset: UInt64(100 + number), isLast: false, encrypted: sealed)
      paused = paused || session.handle(.message(.blobRange(range))).contains(.pauseReading)
    }
    #expect(paused)
    // Excess input is discarded, and reading continues.
    let actions = session.handle(.blobStored(hash: Samples.hash, held: 5000, isComplete: false))
    #expect(actions.contains(.resumeReading))
  }

  @Test("A server is done when the client disconnects in good order, with or without a goodbye")
  func goodbye() {
    let session = Self.server()
    #expect(session.handle(.message(.goodbye)) == [.close(.done)])
    let other = Self.server()
    #expect(other.handle(.disconnected) == [.close(.done)])
    let busy = Self.server()
    _ = busy.handle(.message(Self.begin()))
    #expect(busy.handle(.disconnected).last?.failure == .network)
  }

  @Test("A client whose peer disconnects early reports it")
  func leftAlone() {
    let session = Self.client(.pull)
    #expect(session.handle(.message(.goodbye)).last?.failure == .network)
    let other = Self.client(.push)
    #expect(other.handle(.disconnected).last?.failure == .network)
  }

  @Test("F78 random bytes after a good hello never crash a session", arguments: 1...50 as ClosedRange<UInt64>)
  func garbage(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    let session = Self.server()
    for _ in 0..<200 {
      let type = random.chance(90) ? UInt8(random.next() % 18) : UInt8(random.next() % 256)
      let frame = Frame(type: type, payload: random.bytes(Int(random.next() % 80)))
      let actions = session.handle(.received(random.chance(95) ? frame.bytes : random.bytes(9)))
      if case .close? = actions.last { return }
    }
  }

  static func refusal(of hello: Hello, right: MemberRight = .readWrite) -> Refusal? {
    let session = SessionProbe(role: .server, peerName: "left", peerRight: right)
    _ = session.start()
    _ = session.handle(.message(.hello(hello)))
    let actions = session.handle(.replica(replica(Samples.right)))
    for action in actions { if case .refuse(let refusal)? = action.message { return refusal } }
    return nil
  }
}
