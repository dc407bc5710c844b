internal import Dispatch
internal import SyncStore

/// Threads for blocking work: the store, and handshakes with strangers.
///
/// Work goes to serial queues. A thread takes one piece of a queue, then the queue goes to the end of the
/// line, so that a busy queue delays another by at most one piece per turn. *Prompt* work, a few records with
/// a waiter, precedes ordinary work, and threads are reserved for it.
///
/// Invariants: at most `width` pieces run at once, at most `width - 2` ordinary and at most `width - 1`
/// prompt ones, so that neither kind can starve the other.
package final class WorkerPool: Sendable {
  /// The pool of this process.
  package static let shared = WorkerPool(width: 8)
  /// For handshakes, invitations and rights, two at once: long work of members in `shared` must not delay
  /// admitting or removing anyone.
  package static let handshakes = WorkerPool(width: 4)
  /// For reading large values through on behalf of others, two at once; the rest wait.
  package static let scans = WorkerPool(width: 4)

  /// Priority of a piece of work.
  package enum Turn: Sendable {
    /// Long, or without a waiter.
    case ordinary
    /// Short, with a waiter.
    case prompt
  }

  /// Counters of the pool, in pieces.
  package struct Figures: Sendable {
    /// Pieces started.
    package var begun = (prompt: 0, ordinary: 0)
    /// The most ordinary pieces started while one prompt piece waited.
    package var longestPromptWait = 0
    /// The most pieces of other queues started while one ordinary piece waited.
    package var longestOrdinaryWait = 0
  }

  private struct Waiting {
    var queue: WorkerQueue
    /// Ordinary and total pieces started when the queue was added.
    var since: (ordinary: Int, all: Int)
  }

  private struct State {
    var prompt: [Waiting] = []
    var ordinary: [Waiting] = []
    var idle: [Int]
    var busy = (prompt: 0, ordinary: 0)
    var figures = Figures()
  }

  /// Serial queues, one per thread: the system creates a thread for each that has work, whatever the number
  /// of cores.
  private let threads: [DispatchQueue]
  private let state: LockedField<State>
  private let most: (prompt: Int, ordinary: Int)

  /// A pool of `width` threads. A thread exists only while there is work for it.
  package init(width: Int) {
    threads = (0..<width).map { DispatchQueue(label: "syncstore.worker.\($0)", qos: .userInitiated) }
    state = LockedField(State(idle: Array((0..<width).reversed())))
    most = (max(1, width - 1), max(1, width - 2))
  }

  /// A new queue.
  package func queue() -> WorkerQueue { WorkerQueue(self) }

  /// Schedules blocking work.
  package func later(_ turn: Turn = .ordinary, _ work: @escaping @Sendable () -> Void) {
    queue().async(turn, work)
  }

  /// Runs blocking work off the caller's thread, suspending until it is done.
  package func run<Answer: Sendable>(
    _ work: @escaping @Sendable () throws(ReplicationError) -> Answer
  ) async throws(ReplicationError) -> Answer {
    let queue = queue()
    let result = await withCheckedContinuation { continuation in
      queue.async {
        continuation.resume(returning: Result { () throws(ReplicationError) in try work() })
      }
    }
    return try result.get()
  }

  /// The counters so far.
  package var figures: Figures { state.withLock { $0.figures } }

  /// Adds a queue whose next piece is ready.
  fileprivate func add(_ queue: WorkerQueue, turn: Turn) {
    let thread = state.withLock { state -> Int? in
      let begun = state.figures.begun
      let waiting = Waiting(queue: queue, since: (begun.ordinary, begun.ordinary + begun.prompt))
      switch turn {
      case .prompt: state.prompt.append(waiting)
      case .ordinary: state.ordinary.append(waiting)
      }
      return takeThread(&state)
    }
    if let thread { start(thread) }
  }

  private func start(_ thread: Int) { threads[thread].async { self.work(on: thread) } }

  /// An idle thread, if there is one and a piece may start.
  private func takeThread(_ state: inout State) -> Int? {
    guard mayBegin(state, turn: .prompt) || mayBegin(state, turn: .ordinary) else { return nil }
    return state.idle.popLast()
  }

  private func mayBegin(_ state: State, turn: Turn) -> Bool {
    switch turn {
    case .prompt: !state.prompt.isEmpty && state.busy.prompt < most.prompt
    case .ordinary: !state.ordinary.isEmpty && state.busy.ordinary < most.ordinary
    }
  }

  private func work(on thread: Int) {
    var done: Turn?
    while true {
      let (next, more) = state.withLock { state -> ((WorkerQueue, Turn)?, Int?) in
        switch done {
        case .prompt?: state.busy.prompt -= 1
        case .ordinary?: state.busy.ordinary -= 1
        case nil: break
        }
        guard let next = begin(&state) else {
          state.idle.append(thread)
          return (nil, nil)
        }
        // Another thread may take the remaining work.
        return (next, takeThread(&state))
      }
      if let more { start(more) }
      guard let (queue, turn) = next else { return }
      queue.doNext()
      done = turn
    }
  }

  private func begin(_ state: inout State) -> (WorkerQueue, Turn)? {
    let begun = state.figures.begun
    if mayBegin(state, turn: .prompt) {
      let next = state.prompt.removeFirst()
      state.busy.prompt += 1
      state.figures.begun.prompt += 1
      state.figures.longestPromptWait = max(
        state.figures.longestPromptWait, begun.ordinary - next.since.ordinary)
      return (next.queue, .prompt)
    }
    guard mayBegin(state, turn: .ordinary) else { return nil }
    let next = state.ordinary.removeFirst()
    state.busy.ordinary += 1
    state.figures.begun.ordinary += 1
    state.figures.longestOrdinaryWait = max(
      state.figures.longestOrdinaryWait, begun.ordinary + begun.prompt - next.since.all)
    return (next.queue, .ordinary)
  }
}

/// A serial queue of work, run on any thread of its pool.
package final class WorkerQueue: Sendable {
  private struct Piece {
    var turn: WorkerPool.Turn
    var work: @Sendable () -> Void
  }

  private let pool: WorkerPool
  /// The pending pieces; the first one is running, or waits for a thread.
  private let pieces = LockedField<[Piece]>([], rank: .workerPool)

  fileprivate init(_ pool: WorkerPool) { self.pool = pool }

  /// Runs `work` after everything queued before.
  package func async(_ turn: WorkerPool.Turn = .ordinary, _ work: @escaping @Sendable () -> Void) {
    let isFirst = pieces.withLock { pieces in
      pieces.append(Piece(turn: turn, work: work))
      return pieces.count == 1
    }
    if isFirst { pool.add(self, turn: turn) }
  }

  /// Runs the first piece, then queues the next one.
  fileprivate func doNext() {
    pieces.withLock { $0.first }?.work()
    let next = pieces.withLock { pieces in
      pieces.removeFirst()
      return pieces.first?.turn
    }
    if let next { pool.add(self, turn: next) }
  }
}
