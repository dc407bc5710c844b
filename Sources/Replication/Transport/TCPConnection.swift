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
  package private(set) var queuedBytes = 0
  /// Whether the connection is neither broken nor closed.
  package private(set) var isOpen = true

  private let loop: EventLoop
  private let stallMilliseconds: Int
  private var socket: Socket?
  private let descriptor: Int32
  private var token: UInt64 = 0
  private var queue = Queue<[UInt8]>()
  private var headOffset = 0
  private var sentBytes: UInt64 = 0
  private var isPaused = false
  private var isFinishing = false
  private var watched = IOInterest.read
  private var stallTimer: UInt64?
  private var lingerTimer: UInt64?
  private var finishTimer: UInt64?
  private var onFirstBytes: (() -> Void)?

  /// Takes over a connected socket. Nothing is read before `start`.
  init(
    _ socket: consuming Socket, remote: SocketAddress, loop: EventLoop,
    stallMilliseconds: Int = TransportLimits.stallMilliseconds
  ) {
    loop.checkCurrent()
    descriptor = socket.descriptor
    local = socket.localAddress
    self.socket = consume socket
    self.remote = remote
    self.loop = loop
    self.stallMilliseconds = stallMilliseconds
  }

  /// Calls `spoke` once the peer has sent something or is gone.
  ///
  /// Nothing is read before `start`. False if the operating system cannot watch another connection.
  func waitForFirstBytes(_ spoke: @escaping () -> Void) -> Bool {
    onFirstBytes = spoke
    return start()
  }

  /// Starts reading. False if the operating system cannot watch another connection.
  func start() -> Bool {
    guard token == 0 else {
      watch()
      return isOpen
    }
    guard let token = loop.add(descriptor, interest: .read, self) else {
      close()
      return false
    }
    self.token = token
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
    queue.append(bytes)
    queuedBytes += bytes.count
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
    finishTimer = loop.schedule(after: stallMilliseconds) { [weak self] in self?.close() }
    if queuedBytes == 0 { endWriting() }
    watch()
  }

  /// Closes at once. Queued bytes are lost.
  package func close() {
    guard isOpen else { return }
    isOpen = false
    if token != 0 { loop.remove(descriptor, token: token) }
    for timer in [stallTimer, lingerTimer, finishTimer] { if let timer { loop.cancel(timer) } }
    socket = nil
    queue = Queue()
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
      watched = []
      loop.change(descriptor, interest: watched, token: token)
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
    while isOpen, let bytes = queue.first {
      guard let writing = socket?.write(bytes, from: headOffset) else { return }
      switch writing {
      case .wrote(let count):
        progressed = true
        headOffset += count
        queuedBytes -= count
        sentBytes += UInt64(count)
        if headOffset == bytes.count {
          _ = queue.popFirst()
          headOffset = 0
        }
        continue
      case .wouldBlock: break
      case .failed(let code): return fail(code)
      }
      break
    }
    superviseStall(progressed: progressed)
    if isFinishing, queuedBytes == 0 { endWriting() }
    if progressed { onSent(sentBytes) }
  }

  private func superviseStall(progressed: Bool) {
    if progressed || queuedBytes == 0, let timer = stallTimer {
      loop.cancel(timer)
      stallTimer = nil
    }
    guard queuedBytes > 0, stallTimer == nil else { return }
    stallTimer = loop.schedule(after: stallMilliseconds) { [weak self] in
      guard let self else { return }
      end(ReplicationError(.timeout, "\(remote) does not read: it was dropped"))
    }
  }

  private func endWriting() {
    guard lingerTimer == nil else { return }
    socket?.endWriting()
    lingerTimer = loop.schedule(after: TransportLimits.lingerMilliseconds) { [weak self] in self?.close() }
  }

  private func watch() {
    guard isOpen, token != 0 else { return }
    var wanted: IOInterest = []
    if !isPaused || isFinishing { wanted.insert(.read) }
    if queuedBytes > 0 { wanted.insert(.write) }
    guard wanted != watched else { return }
    watched = wanted
    loop.change(descriptor, interest: wanted, token: token)
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
