internal import SyncStore

/// TLS over a TCP connection: plaintext in, plaintext out. Confined to its loop's thread.
///
/// The handshake runs on a worker, because it looks the other side up in the store and is by far the most
/// expensive part; once it is done, TLS runs on the loop. Invariant: no two threads are in the engine at
/// once, and ciphertext is processed in order of arrival.
final class PeerLink {
  /// The identity of the other side.
  struct Established: Sendable {
    /// The device, as proven by its key.
    var device: DeviceID
    /// The application protocol agreed on.
    var applicationProtocol: String
  }

  /// Called once, when the other side is authenticated.
  var onEstablished: (Established) -> Void = { _ in }
  /// Called with received plaintext.
  var onPlaintext: ([UInt8]) -> Void = { _ in }
  /// Called with the number of further plaintext bytes that the operating system has taken.
  var onSent: (Int) -> Void = { _ in }
  /// Called once, when the link ended on its own: broken, or closed by the other side (nil).
  var onEnd: (ReplicationError?) -> Void = { _ in }

  /// Address of the other side.
  var remote: SocketAddress { connection.remote }
  /// Local address of the connection.
  var local: SocketAddress { connection.local }
  /// Bytes on the wire, TLS included.
  private(set) var sentBytes: UInt64 = 0
  private(set) var receivedBytes: UInt64 = 0

  private let connection: TCPConnection
  private let loop: EventLoop
  private let engine: HandshakeEngine
  private var handshake: Handshake
  private var unsent = UnsentPlaintext()
  private var isOver = false

  /// The handshake of a link. Confined to the loop's thread.
  private struct Handshake {
    let worker: WorkerQueue
    /// Whether the other side is authenticated.
    private(set) var isDone = false
    /// Pieces of ciphertext that the worker is processing.
    private var pieces = 0
    private var deadline: UInt64?

    init(on worker: WorkerQueue) { self.worker = worker }

    /// Whether ciphertext goes to the worker: the handshake is not done, or the worker still has a piece.
    var takesCiphertext: Bool { !isDone || pieces > 0 }

    mutating func begin(deadline: UInt64) { self.deadline = deadline }

    mutating func beginPiece() { pieces += 1 }

    /// The worker has processed a piece. Whether it has none left.
    mutating func endPiece() -> Bool {
      pieces -= 1
      return pieces == 0
    }

    /// The other side is authenticated. False if it was before.
    mutating func establish(_ loop: EventLoop) -> Bool {
      guard !isDone else { return false }
      isDone = true
      cancelDeadline(loop)
      return true
    }

    mutating func cancelDeadline(_ loop: EventLoop) {
      if let timer = deadline.take() { loop.cancel(timer) }
    }
  }

  /// Plaintext whose ciphertext the operating system has not taken yet. Confined to the loop's thread.
  private struct UnsentPlaintext {
    /// The ciphertext offset where each piece ends, and its length.
    private var pieces: [(end: UInt64, count: Int)] = []
    private var ciphertextBytes: UInt64 = 0

    /// The next piece has `count` bytes of plaintext, and `ciphertext` bytes that are not added yet.
    mutating func append(_ count: Int, ciphertext: Int) {
      pieces.append((ciphertextBytes + UInt64(ciphertext), count))
    }

    mutating func addCiphertext(_ count: Int) { ciphertextBytes += UInt64(count) }

    /// The operating system has taken that much ciphertext in all. Returns the plaintext bytes of the pieces
    /// that are complete now; nil if none is.
    mutating func taken(upTo offset: UInt64) -> Int? {
      var (plaintext, done) = (0, 0)
      while done < pieces.count, pieces[done].end <= offset {
        plaintext += pieces[done].count
        done += 1
      }
      guard done > 0 else { return nil }
      pieces.removeFirst(done)
      return plaintext
    }
  }

  /// A link over `connection`, which is not started yet.
  init(_ connection: TCPConnection, engine: HandshakeEngine, worker: WorkerQueue, loop: EventLoop) {
    (self.connection, self.engine, self.loop) = (connection, engine, loop)
    handshake = Handshake(on: worker)
  }

  /// Starts the handshake.
  func start() {
    connection.onBytes = { [weak self] in self?.received($0) }
    connection.onSent = { [weak self] in self?.sent(upTo: $0) }
    connection.onEnd = { [weak self] in self?.end($0) }
    guard connection.start() else {
      return end(ReplicationError(.network, "no memory is left to watch a connection: end other programs"))
    }
    let deadline = loop.schedule(after: Limits.handshakeSeconds * 1000) { [weak self] in
      guard let self else { return }
      end(
        ReplicationError(
          .timeout,
          "\(remote) did not finish its handshake in \(Limits.handshakeSeconds) s: check that it is up"))
    }
    handshake.begin(deadline: deadline)
    transmit(engine.takeOutgoing())
  }

  /// Encrypts and sends, in pieces small enough to be still in the processor's cache when the operating
  /// system takes them, and whose memory the next piece reuses.
  func send(_ plaintext: [UInt8]) {
    var rest = plaintext[...]
    while !rest.isEmpty, !isOver {
      let piece = rest.prefix(Self.pieceBytes)
      rest = rest.dropFirst(Self.pieceBytes)
      do throws(ReplicationError) {
        let ciphertext = try engine.send(piece)
        unsent.append(piece.count, ciphertext: ciphertext.count)
        transmit(ciphertext)
      } catch {
        end(error)
      }
    }
  }

  /// Four records of TLS.
  private static let pieceBytes = 64 << 10

  /// The exporter secret of this connection, which binds proofs to it (F77).
  func exporter() throws(ReplicationError) -> [UInt8] { try engine.exporter() }

  /// Whether reading is paused.
  private(set) var isPaused = false

  /// Stops reading until `resume`.
  func pause() {
    isPaused = true
    connection.pause()
  }

  /// Continues reading.
  func resume() {
    isPaused = false
    connection.resume()
  }

  /// Sends what is queued and the TLS close, then closes. Nothing is reported any more.
  func finish() {
    guard !isOver else { return }
    over()
    connection.send(engine.close())
    connection.finish()
  }

  /// Closes at once, and reports `error`.
  func fail(_ error: ReplicationError) { end(error) }

  /// Closes at once. Nothing is reported any more.
  func close() {
    over()
    connection.close()
  }

  private func over() {
    isOver = true
    handshake.cancelDeadline(loop)
    (onEstablished, onPlaintext, onSent, onEnd) = ({ _ in }, { _ in }, { _ in }, { _ in })
  }

  private func received(_ bytes: [UInt8]) {
    receivedBytes += UInt64(bytes.count)
    guard handshake.takesCiphertext else { return apply(engine.receive(bytes)) }
    handshake.beginPiece()
    // One flight of a handshake is small: a peer that sends more has not waited for the answer, and can wait.
    connection.pause()
    let this = LoopBound(self, to: loop)
    let (engine, loop) = (engine, loop)
    handshake.worker.async {
      let progress = engine.receive(bytes)
      loop.execute { this.value.handshakeAdvanced(progress) }
    }
  }

  private func handshakeAdvanced(_ progress: HandshakeEngine.Progress) {
    let isLast = handshake.endPiece()
    guard !isOver else { return }
    if isLast { connection.resume() }
    apply(progress)
  }

  private func apply(_ progress: HandshakeEngine.Progress) {
    transmit(progress.outgoing)
    if let established = progress.established, handshake.establish(loop) { onEstablished(established) }
    if !isOver, !progress.plaintext.isEmpty { onPlaintext(progress.plaintext) }
    if !isOver, let failure = progress.failure {
      let tell = onEnd
      over()
      // The alert tells the other side why.
      connection.finish()
      tell(failure)
    }
  }

  private func transmit(_ ciphertext: [UInt8]) {
    unsent.addCiphertext(ciphertext.count)
    connection.send(ciphertext)
  }

  private func sent(upTo count: UInt64) {
    sentBytes = count
    if let plaintext = unsent.taken(upTo: count) { onSent(plaintext) }
  }

  private func end(_ error: ReplicationError?) {
    guard !isOver else { return }
    let tell = onEnd
    over()
    connection.close()
    tell(error)
  }
}

/// A TLS engine that several threads may use, one at a time.
final class HandshakeEngine: Sendable {
  /// The result of processing ciphertext.
  struct Progress: Sendable {
    var outgoing: [UInt8]
    var plaintext: [UInt8]
    var failure: ReplicationError?
    var established: PeerLink.Established?
  }

  private let engine: LockedField<TLSEngine>

  /// One end of a connection. `accept` is called once, on a worker.
  init(
    _ context: TLSContext, protocols: [String], accept: @escaping @Sendable (DeviceID, String) -> Bool
  ) throws(ReplicationError) {
    engine = LockedField(
      try TLSEngine(context: context, alpn: protocols, accept: accept), rank: .link)
  }

  func receive(_ ciphertext: [UInt8]) -> Progress {
    engine.withLock { engine in
      var failure: ReplicationError?
      do throws(ReplicationError) { try engine.receive(ciphertext) } catch { failure = error }
      let device = engine.isEstablished ? engine.peer : nil
      return Progress(
        outgoing: engine.takeOutgoing(), plaintext: engine.takePlaintext(), failure: failure,
        established: device.map {
          PeerLink.Established(device: $0, applicationProtocol: engine.negotiatedProtocol ?? "")
        })
    }
  }

  func send(_ plaintext: ArraySlice<UInt8>) throws(ReplicationError) -> [UInt8] {
    try engine.withLock { engine throws(ReplicationError) in
      try engine.send(plaintext)
      return engine.takeOutgoing()
    }
  }

  func takeOutgoing() -> [UInt8] { engine.withLock { $0.takeOutgoing() } }

  func close() -> [UInt8] {
    engine.withLock { engine in
      engine.close()
      return engine.takeOutgoing()
    }
  }

  /// The exporter secret of this connection, which binds proofs to it (F77).
  func exporter() throws(ReplicationError) -> [UInt8] {
    try engine.withLock { engine throws(ReplicationError) in
      try engine.exporter(label: PairingProof.exporterLabel, context: [], count: PairingProof.exporterBytes)
    }
  }
}
