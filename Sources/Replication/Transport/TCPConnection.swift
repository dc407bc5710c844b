internal import SyncStore

/// A connection that is open: bytes in, bytes out, no meaning. Belongs to its loop's thread.
///
/// Invariants:
/// - at most `TransportLimits.queueBytes` are queued for the peer, or the connection ends (F90);
/// - while bytes are queued, the peer takes one at least every `TransportLimits.stallMilliseconds`, or the connection ends;
/// - once it is finishing it is closed within `TransportLimits.stallMilliseconds`, whatever the peer takes meanwhile;
/// - it reads at most `TransportLimits.readBudget` each time it is woken: peers are treated alike;
/// - `onEnd` is called once, unless the owner itself ended the connection.
package final class TCPConnection: EventHandler {
  /// Where the peer is.
  package let remote: SocketAddress
  /// The own address of the connection.
  package let local: SocketAddress
  /// Called with what came, in order.
  package var onBytes: ([UInt8]) -> Void = { _ in }
  /// Called with how many bytes have been handed to the operating system since the beginning.
  package var onSent: (UInt64) -> Void = { _ in }
  /// Called when the peer closed the connection (nil) or it broke.
  package var onEnd: (ReplicationError?) -> Void = { _ in }
  /// Called once, when the descriptor is closed, by whomever.
  package var onClose: () -> Void = {}
  /// Bytes that were given to `send` and not yet to the operating system.
  package private(set) var queuedBytes = 0
  /// Is it neither broken nor closed?
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
  private var watched = (reading: true, writing: false)
  private var stallTimer: UInt64?
  private var lingerTimer: UInt64?
  private var finishTimer: UInt64?
  private var onFirstBytes: (() -> Void)?

  /// Takes over a socket that is connected. Nothing is read before `start`.
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

  /// Calls `spoke` once the peer has sent something, or is gone. Nothing is read before `start`. False if the operating
  /// system cannot watch one more connection.
  func waitForFirstBytes(_ spoke: @escaping () -> Void) -> Bool {
    onFirstBytes = spoke
    return start()
  }

  /// Begins to read. False if the operating system cannot watch one more connection.
  func start() -> Bool {
    guard token == 0 else {
      watch()
      return isOpen
    }
    guard let token = loop.add(descriptor, reading: true, writing: false, self) else {
      close()
      return false
    }
    self.token = token
    return true
  }

  /// Queues bytes, and hands on what there is room for.
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

  /// Reads no more until `resume`.
  package func pause() {
    isPaused = true
    watch()
  }

  /// Reads again.
  package func resume() {
    isPaused = false
    watch()
  }

  /// Sends what is queued, says that nothing follows, and closes once the peer has done so too, or soon after.
  package func finish() {
    guard isOpen, !isFinishing else { return }
    isFinishing = true
    isPaused = false
    // Nobody bounds it any more: a peer that takes a byte now and then would keep all that is queued in memory.
    finishTimer = loop.schedule(after: stallMilliseconds) { [weak self] in self?.close() }
    if queuedBytes == 0 { endWriting() }
    watch()
  }

  /// Closes at once. What is queued is lost.
  package func close() {
    guard isOpen else { return }
    isOpen = false
    if token != 0 { loop.remove(descriptor, token: token) }
    for timer in [stallTimer, lingerTimer, finishTimer] { if let timer { loop.cancel(timer) } }
    socket = nil
    queue = Queue()
    // They hold whoever uses the connection, who holds the connection.
    (onBytes, onSent, onEnd) = ({ _ in }, { _ in }, { _ in })
    onFirstBytes = nil
    let tell = onClose
    onClose = {}
    tell()
  }

  func handle(_ event: Epoll.Event) {
    if let spoke = onFirstBytes {
      onFirstBytes = nil
      // What came waits in the kernel, at the peer's cost.
      watched = (false, false)
      loop.change(descriptor, reading: false, writing: false, token: token)
      return spoke()
    }
    if event.isWritable {
      flush()
      watch()
    }
    guard isOpen, event.isReadable || event.isBroken else { return }
    // A broken connection is reported until it is closed, whether one reads or not.
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
        // Nobody is interested any more, but unread bytes would turn the close into a reset.
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
    let wanted = (reading: !isPaused || isFinishing, writing: queuedBytes > 0)
    guard wanted != watched else { return }
    watched = wanted
    loop.change(descriptor, reading: wanted.reading, writing: wanted.writing, token: token)
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
