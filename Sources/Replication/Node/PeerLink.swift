internal import SyncStore

/// TLS over a TCP connection: plaintext in, plaintext out. Belongs to its loop's thread.
///
/// The handshake runs on a worker, because it looks the other side up in the store and costs more than all else; once it
/// is done TLS runs on the loop. Invariant: no two threads are in the engine at once, and ciphertext is worked off in the
/// order in which it came.
final class PeerLink {
  /// Who is at the other end.
  struct Established: Sendable {
    /// The device, as its key has proven.
    var device: DeviceID
    /// The application protocol agreed on.
    var applicationProtocol: String
  }

  /// Called once, when the other side is known.
  var onEstablished: (Established) -> Void = { _ in }
  /// Called with what the other side said.
  var onPlaintext: ([UInt8]) -> Void = { _ in }
  /// Called with how many more bytes of plaintext have been handed on.
  var onSent: (Int) -> Void = { _ in }
  /// Called once, when the link ended on its own: broken, or closed by the other side (nil).
  var onEnd: (ReplicationError?) -> Void = { _ in }

  /// Where the other side is.
  var remote: SocketAddress { connection.remote }
  /// The own address of the connection.
  var local: SocketAddress { connection.local }
  /// Bytes on the wire, TLS included.
  private(set) var sentBytes: UInt64 = 0
  private(set) var receivedBytes: UInt64 = 0

  private let connection: TCPConnection
  private let loop: EventLoop
  private let engine: HandshakeEngine
  private let worker: WorkerQueue
  private var isEstablished = false
  private var isOver = false
  /// Pieces of ciphertext that a worker has and has not answered.
  private var handshaking = 0
  private var deadline: UInt64?
  /// Plaintext under way: the place in the ciphertext where it ends, its length.
  private var underway: [(end: UInt64, count: Int)] = []
  private var ciphertextBytes: UInt64 = 0

  /// A link over `connection`, which is not started yet.
  init(_ connection: TCPConnection, engine: HandshakeEngine, worker: WorkerQueue, loop: EventLoop) {
    (self.connection, self.engine, self.worker, self.loop) = (connection, engine, worker, loop)
  }

  /// Begins the handshake.
  func start() {
    connection.onBytes = { [weak self] in self?.received($0) }
    connection.onSent = { [weak self] in self?.sent(upTo: $0) }
    connection.onEnd = { [weak self] in self?.end($0) }
    guard connection.start() else {
      return end(ReplicationError(.network, "no memory is left to watch a connection: end other programs"))
    }
    deadline = loop.schedule(after: Limits.handshakeSeconds * 1000) { [weak self] in
      guard let self else { return }
      end(
        ReplicationError(
          .timeout,
          "\(remote) did not finish its handshake in \(Limits.handshakeSeconds) s: check that it is up"))
    }
    transmit(engine.takeOutgoing())
  }

  /// Encrypts and sends: in pieces that are still in the processor's cache when the operating system takes them, and whose memory
  /// serves the next one.
  func send(_ plaintext: [UInt8]) {
    var rest = plaintext[...]
    while !rest.isEmpty, !isOver {
      let piece = rest.prefix(Self.pieceBytes)
      rest = rest.dropFirst(Self.pieceBytes)
      do throws(ReplicationError) {
        let ciphertext = try engine.send(piece)
        underway.append((ciphertextBytes + UInt64(ciphertext.count), piece.count))
        transmit(ciphertext)
      } catch {
        end(error)
      }
    }
  }

  /// Four records of TLS.
  private static let pieceBytes = 64 << 10

  /// The secret of this very connection, to which proofs are bound (F77).
  func exporter() throws(ReplicationError) -> [UInt8] { try engine.exporter() }

  /// Does it take nothing in, because it was told so?
  private(set) var isPaused = false

  /// Takes nothing more in until `resume`.
  func pause() {
    isPaused = true
    connection.pause()
  }

  /// Goes on.
  func resume() {
    isPaused = false
    connection.resume()
  }

  /// Sends what was given, says that nothing follows, and closes. Nothing is reported any more.
  func finish() {
    guard !isOver else { return }
    over()
    connection.send(engine.close())
    connection.finish()
  }

  /// Closes at once, and reports that the connection is broken.
  func fail(_ error: ReplicationError) { end(error) }

  /// Closes at once. Nothing is reported any more.
  func close() {
    over()
    connection.close()
  }

  private func over() {
    isOver = true
    if let deadline { loop.cancel(deadline) }
    deadline = nil
    (onEstablished, onPlaintext, onSent, onEnd) = ({ _ in }, { _ in }, { _ in }, { _ in })
  }

  private func received(_ bytes: [UInt8]) {
    receivedBytes += UInt64(bytes.count)
    guard !isEstablished || handshaking > 0 else { return apply(engine.receive(bytes)) }
    handshaking += 1
    // One flight of a handshake is small: who sends more does not wait for the answer, and can wait himself.
    connection.pause()
    let this = LoopBound(self, to: loop)
    let (engine, loop) = (engine, loop)
    worker.async {
      let progress = engine.receive(bytes)
      loop.execute { this.value.handshakeAdvanced(progress) }
    }
  }

  private func handshakeAdvanced(_ progress: HandshakeEngine.Progress) {
    handshaking -= 1
    guard !isOver else { return }
    if handshaking == 0 { connection.resume() }
    apply(progress)
  }

  private func apply(_ progress: HandshakeEngine.Progress) {
    transmit(progress.outgoing)
    if let established = progress.established, !isEstablished {
      isEstablished = true
      if let deadline { loop.cancel(deadline) }
      deadline = nil
      onEstablished(established)
    }
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
    ciphertextBytes += UInt64(ciphertext.count)
    connection.send(ciphertext)
  }

  private func sent(upTo count: UInt64) {
    sentBytes = count
    var plaintext = 0
    var done = 0
    while done < underway.count, underway[done].end <= count {
      plaintext += underway[done].count
      done += 1
    }
    guard done > 0 else { return }
    underway.removeFirst(done)
    onSent(plaintext)
  }

  private func end(_ error: ReplicationError?) {
    guard !isOver else { return }
    let tell = onEnd
    over()
    connection.close()
    tell(error)
  }
}

/// A TLS engine that may change threads: one at a time is in it.
final class HandshakeEngine: Sendable {
  /// What taking ciphertext in led to.
  struct Progress: Sendable {
    var outgoing: [UInt8]
    var plaintext: [UInt8]
    var failure: ReplicationError?
    var established: PeerLink.Established?
  }

  private let engine: LockedField<TLSEngine>

  /// One end of a connection. `accept` is asked once, on a worker.
  init(
    _ context: TLSContext, protocols: [String], accept: @escaping @Sendable (DeviceID, String) -> Bool
  ) throws(ReplicationError) {
    engine = LockedField(try TLSEngine(context: context, alpn: protocols, accept: accept))
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

  /// The secret of this very connection, to which proofs are bound (F77).
  func exporter() throws(ReplicationError) -> [UInt8] {
    try engine.withLock { engine throws(ReplicationError) in
      try engine.exporter(label: PairingProof.exporterLabel, context: [], count: PairingProof.exporterBytes)
    }
  }
}
