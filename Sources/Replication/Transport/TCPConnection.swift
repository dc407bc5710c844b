internal import SyncStore

/// An open connection: bytes in, bytes out. Confined to its loop's thread.
///
/// Invariants:
/// - at most `TransportLimits.queueBytes` are queued for the peer, or the connection ends (F90);
/// - while bytes are queued, the peer takes at least one every `TransportLimits.stallMilliseconds`, or the
///   connection ends;
/// - once finishing, it is closed within `TransportLimits.stallMilliseconds`, even if the
///   peer keeps taking bytes;
/// - it reads at most `TransportLimits.readBudget` per event, so that peers are served fairly;
/// - `onEnd` is called once, unless the owner itself ended the connection.
package final class TCPConnection: EventHandler {
  /// The peer's address.
  package let remote: SocketAddress
  /// The local address.
  package let local: SocketAddress
  /// Called with received bytes, in order.
  package var onBytes: ([UInt8]) -> Void = { _ in }
  /// Called with the total number of bytes passed to the operating system so far.
  package var onSent: (UInt64) -> Void = { _ in }
  /// Called when the peer closed the connection (nil) or it broke.
  package var onEnd: (ReplicationError?) -> Void = { _ in }
  /// Called once, when the descriptor is closed by either side.
  package var onClose: () -> Void = {}
  /// Bytes passed to `send` and not yet to the operating system.
  package var queuedBytes: Int { unsent.bytes }
  /// Whether the connection is neither broken nor closed.
  package private(set) var isOpen = true

  private var socket: Socket?
  private var unsent = UnsentBytes()
  private var readiness: Readiness
  private var deadlines: Deadlines
  private var isPaused = false
  private var isFinishing = false
  private var onFirstBytes: (() -> Void)?

  /// Takes over a connected socket. Nothing is read before `start`.
  init(
    _ socket: consuming Socket, remote: SocketAddress, loop: EventLoop,
    stallMilliseconds: Int = TransportLimits.stallMilliseconds
  ) {
    loop.checkCurrent()
    readiness = Readiness(of: socket.descriptor, loop: loop)
    deadlines = Deadlines(loop: loop, stallMilliseconds: stallMilliseconds)
    local = socket.localAddress
    self.socket = consume socket
    self.remote = remote
  }

  /// Calls `spoke` once the peer has sent something or is gone.
  ///
  /// Nothing is read before `start`. False if the operating system cannot watch another connection.
  func waitForFirstBytes(_ spoke: @escaping () -> Void) -> Bool {
    onFirstBytes = spoke
    return start()
  }

  /// Starts reading. False if the operating system cannot watch another connection.
  package func start() -> Bool {
    guard !readiness.isWatched else {
      watch()
      return isOpen
    }
    guard readiness.begin(self) else {
      close()
      return false
    }
    return true
  }

  /// Queues bytes, and writes as many as there is room for.
  package func send(_ bytes: [UInt8]) {
    guard isOpen, !isFinishing, !bytes.isEmpty else { return }
    guard queuedBytes + bytes.count <= TransportLimits.queueBytes else {
      return end(
        ReplicationError(
          .timeout, "\(remote) does not read: \(queuedBytes) bytes wait for it: it was dropped"))
    }
    unsent.append(bytes)
    if queuedBytes == bytes.count { flush() }
    watch()
  }

  /// Stops reading until `resume`.
  package func pause() {
    isPaused = true
    watch()
  }

  /// Resumes reading.
  package func resume() {
    isPaused = false
    watch()
  }

  /// Sends what is queued, closes the sending direction, and closes the connection once the peer has done so
  /// too, or soon after.
  package func finish() {
    guard isOpen, !isFinishing else { return }
    isFinishing = true
    isPaused = false
    // No other bound applies any more: a peer that takes a byte now and then would keep the whole queue in
    // memory.
    deadlines.beginFinishing { [weak self] in self?.close() }
    if queuedBytes == 0 { endWriting() }
    watch()
  }

  /// Closes at once. Queued bytes are lost.
  package func close() {
    guard isOpen else { return }
    isOpen = false
    readiness.end()
    deadlines.cancel()
    socket = nil
    unsent.discard()
    // The closures retain the connection's owner, which retains the connection.
    (onBytes, onSent, onEnd) = ({ _ in }, { _ in }, { _ in })
    onFirstBytes = nil
    let tell = onClose
    onClose = {}
    tell()
  }

  func handle(_ event: Epoll.Event) {
    if let spoke = onFirstBytes {
      onFirstBytes = nil
      // Received bytes stay in the kernel's buffer until reading starts.
      readiness.change(to: [])
      return spoke()
    }
    if event.isWritable {
      flush()
      watch()
    }
    guard isOpen, event.isReadable || event.isBroken else { return }
    // epoll reports a broken connection until it is closed, even without interest in reading.
    if event.isBroken, isPaused { return fail(socket?.pendingError) }
    readSome()
  }

  private func readSome() {
    var budget = TransportLimits.readBudget
    while isOpen, !isPaused || isFinishing, budget > 0 {
      guard let reading = socket?.read(TransportLimits.readBytes) else { return }
      switch reading {
      case .bytes(let bytes):
        budget -= bytes.count
        // The bytes are no longer needed, but unread bytes would turn the close into a reset.
        if !isFinishing { onBytes(bytes) }
        if bytes.count < TransportLimits.readBytes { return }
      case .wouldBlock: return
      case .end: return isFinishing ? close() : end(nil)
      case .failed(let code): return fail(code)
      }
    }
  }

  private func flush() {
    var progressed = false
    while isOpen, let bytes = unsent.first {
      guard let writing = socket?.write(bytes, from: unsent.headOffset) else { return }
      switch writing {
      case .wrote(let count):
        progressed = true
        unsent.wrote(count, of: bytes)
        continue
      case .wouldBlock: break
      case .failed(let code): return fail(code)
      }
      break
    }
    superviseStall(progressed: progressed)
    if isFinishing, queuedBytes == 0 { endWriting() }
    if progressed { onSent(unsent.sentBytes) }
  }

  private func superviseStall(progressed: Bool) {
    if progressed || queuedBytes == 0 { deadlines.endStall() }
    guard queuedBytes > 0, !deadlines.isStalling else { return }
    deadlines.beginStall { [weak self] in
      guard let self else { return }
      end(ReplicationError(.timeout, "\(remote) does not read: it was dropped"))
    }
  }

  private func endWriting() {
    guard !deadlines.isLingering else { return }
    socket?.endWriting()
    deadlines.beginLingering { [weak self] in self?.close() }
  }

  private func watch() {
    guard isOpen, readiness.isWatched else { return }
    var wanted: IOInterest = []
    if !isPaused || isFinishing { wanted.insert(.read) }
    if queuedBytes > 0 { wanted.insert(.write) }
    if wanted != readiness.interest { readiness.change(to: wanted) }
  }

  private func fail(_ code: Int32?) {
    let why = code.map { SystemCall.text(of: $0) } ?? "closed by the other side"
    end(ReplicationError(.network, "the connection to \(remote) broke: \(why): try again"))
  }

  private func end(_ error: ReplicationError?) {
    guard isOpen else { return }
    let tell = onEnd
    let isWanted = !isFinishing
    close()
    if isWanted { tell(error) }
  }
}

extension TCPConnection {
  /// Bytes that the operating system has not taken yet. Confined to the loop's thread.
  private struct UnsentBytes {
    private var pieces = Queue<[UInt8]>()
    /// Bytes of the first piece that were taken.
    private(set) var headOffset = 0
    /// Bytes of all pieces that were not taken.
    private(set) var bytes = 0
    /// Bytes taken so far.
    private(set) var sentBytes: UInt64 = 0

    var first: [UInt8]? { pieces.first }

    mutating func append(_ piece: [UInt8]) {
      pieces.append(piece)
      bytes += piece.count
    }

    /// The operating system has taken `count` more bytes of the first piece.
    mutating func wrote(_ count: Int, of first: [UInt8]) {
      headOffset += count
      bytes -= count
      sentBytes += UInt64(count)
      if headOffset == first.count {
        _ = pieces.popFirst()
        headOffset = 0
      }
    }

    /// Frees the pieces; the counts stay.
    mutating func discard() { pieces = Queue() }
  }

  /// The conditions of the descriptor that the loop watches. Confined to the loop's thread.
  private struct Readiness {
    private let loop: EventLoop
    private let descriptor: Int32
    private var token: UInt64 = 0
    private(set) var interest = IOInterest.read

    init(of descriptor: Int32, loop: EventLoop) { (self.descriptor, self.loop) = (descriptor, loop) }

    var isWatched: Bool { token != 0 }

    /// Begins to watch. False if the operating system has no room for it.
    mutating func begin(_ handler: any EventHandler) -> Bool {
      guard let token = loop.add(descriptor, interest: interest, handler) else { return false }
      self.token = token
      return true
    }

    mutating func change(to interest: IOInterest) {
      self.interest = interest
      loop.change(descriptor, interest: interest, token: token)
    }

    /// Stops watching. Must be called before the descriptor is closed.
    func end() { if isWatched { loop.remove(descriptor, token: token) } }
  }

  /// The times by which the peer must have taken a byte, read all, or closed. Confined to the loop's thread.
  private struct Deadlines {
    private let loop: EventLoop
    private let stallMilliseconds: Int
    private var stall: UInt64?
    private var linger: UInt64?
    private var finish: UInt64?

    init(loop: EventLoop, stallMilliseconds: Int) {
      (self.loop, self.stallMilliseconds) = (loop, stallMilliseconds)
    }

    var isStalling: Bool { stall != nil }
    var isLingering: Bool { linger != nil }

    /// Starts the time for the next byte.
    mutating func beginStall(_ end: @escaping () -> Void) {
      stall = loop.schedule(after: stallMilliseconds, end)
    }

    mutating func endStall() {
      if let timer = stall.take() { loop.cancel(timer) }
    }

    /// Starts the time for reading all that is queued.
    mutating func beginFinishing(_ end: @escaping () -> Void) {
      finish = loop.schedule(after: stallMilliseconds, end)
    }

    /// Starts the time for closing after all was sent.
    mutating func beginLingering(_ end: @escaping () -> Void) {
      linger = loop.schedule(after: TransportLimits.lingerMilliseconds, end)
    }

    func cancel() { for timer in [stall, linger, finish] { if let timer { loop.cancel(timer) } } }
  }
}
