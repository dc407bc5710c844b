import SyncStore

@testable import Replication

/// Runs `body` on the loop and returns its result.
func on<Answer: Sendable>(_ loop: EventLoop, _ body: @escaping @Sendable () throws -> Answer) async throws
  -> Answer
{
  try await withCheckedThrowingContinuation { continuation in
    loop.execute { continuation.resume(with: Result { try body() }) }
  }
}

/// A slot that one thread fills and a test waits for, until its timeout.
final class Awaited<Answer: Sendable>: Sendable {
  private struct State {
    var answers: [Answer] = []
    var waiters: [CheckedContinuation<Answer, any Error>] = []
    var isCancelled = false
  }

  private let state = Locked(State())

  func put(_ answer: Answer) {
    let waiter = state.withLock { state -> CheckedContinuation<Answer, any Error>? in
      guard state.waiters.isEmpty else { return state.waiters.removeFirst() }
      state.answers.append(answer)
      return nil
    }
    waiter?.resume(returning: answer)
  }

  /// Throws `CancellationError` if the waiting test is cancelled, as happens when it exceeds its suite's time
  /// limit.
  func take() async throws -> Answer {
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Answer, any Error>? in
          guard state.answers.isEmpty else { return .success(state.answers.removeFirst()) }
          guard !state.isCancelled else { return .failure(CancellationError()) }
          state.waiters.append(continuation)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      let waiters = state.withLock { state in
        state.isCancelled = true
        defer { state.waiters = [] }
        return state.waiters
      }
      for waiter in waiters { waiter.resume(throwing: CancellationError()) }
    }
  }

  /// All values that were put in and not taken.
  var pending: [Answer] { state.withLock { $0.answers } }
}

/// Counts calls.
final class Counter: Sendable {
  private let state = Locked(0)
  var count: Int { state.withLock { $0 } }
  func next() -> Int {
    state.withLock {
      $0 += 1
      return $0
    }
  }
}

/// A loop that is stopped when the test is done with it.
final class TestLoop: Sendable {
  let loop: EventLoop
  init() throws { loop = try EventLoop() }
  deinit { loop.stop() }
}

/// A listener at a free loopback port.
final class TestListener: Sendable {
  let address: Endpoint
  let connections = Awaited<LoopBound<TCPConnection>>()
  private let listener: LoopBound<TCPListener>
  private let loop: EventLoop

  init(
    _ loop: EventLoop, accept: @escaping @Sendable (borrowing Socket) -> Socket.Accepting = { $0.accept() }
  )
    async throws
  {
    self.loop = loop
    let connections = connections
    listener = try await on(loop) {
      let address = try SocketAddress.resolve(Endpoint(host: "127.0.0.1", port: 0), listening: true)[0]
      let listener = try TCPListener(at: address, loop: loop, log: { _, _ in }, accept: accept) {
        socket, remote in
        connections.put(LoopBound(TCPConnection(socket, remote: remote, loop: loop), to: loop))
      }
      return LoopBound(listener, to: loop)
    }
    let listener = listener
    address = try await on(loop) { Endpoint(host: "127.0.0.1", port: listener.value.address.port) }
  }

  func close() async throws { try await on(loop) { [listener] in listener.value.close() } }
}

/// An unstarted connection to `endpoint`; `prepare` runs on the loop as soon as it exists.
func connect(
  _ loop: EventLoop, to endpoint: Endpoint,
  atOnce begin: @escaping @Sendable (TCPConnection) -> Void = { _ in }
) async throws -> LoopBound<TCPConnection> {
  let answer = Awaited<Result<LoopBound<TCPConnection>, ReplicationError>>()
  loop.execute {
    TCPConnector.connect(to: endpoint, loop: loop) { result in
      answer.put(
        result.map { connection in
          begin(connection)
          return LoopBound(connection, to: loop)
        })
    }
  }
  return try await answer.take().get()
}
