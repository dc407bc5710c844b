internal import Dispatch
internal import SyncStore

/// Threads for what blocks: the store, and handshakes with strangers.
///
/// Work is given to queues, each of which does one piece after the other, in order. A thread takes one piece of a queue, and the queue
/// goes behind all others that have work: whoever has much to do keeps nobody waiting for more than one piece of each other queue.
/// What is *prompt*, a few records that somebody waits for, goes before what is not, and threads are kept free for it.
///
/// Invariants: no more than `width` pieces are under way; of ordinary ones no more than `width - 2`, of prompt ones no more than
/// `width - 1`, so that neither kind waits for the other to have nothing more to do.
package final class WorkerPool: Sendable {
  /// The pool of this process.
  package static let shared = WorkerPool(width: 8)
  /// For handshakes, invitations and rights, two at once: what members have `shared` do, however long it takes, keeps nobody from being let
  /// in, or shown out.
  package static let handshakes = WorkerPool(width: 4)
  /// For reading large values through at the wish of others, two at once; the rest wait.
  package static let scans = WorkerPool(width: 4)

  /// How soon a piece of work is to be done.
  package enum Turn: Sendable {
    /// It takes long, or nobody waits for it.
    case ordinary
    /// It is short, and somebody waits.
    case prompt
  }

  /// What has happened, in numbers of pieces.
  package struct Figures: Sendable {
    /// Pieces that were begun.
    package var begun = (prompt: 0, ordinary: 0)
    /// The most ordinary pieces that were begun while a prompt one waited.
    package var longestPromptWait = 0
    /// The most pieces of other queues that were begun while an ordinary one waited.
    package var longestOrdinaryWait = 0
  }

  private struct Waiting {
    var queue: WorkerQueue
    /// Ordinary pieces, and all, that had been begun when it came.
    var since: (ordinary: Int, all: Int)
  }

  private struct State {
    var prompt: [Waiting] = []
    var ordinary: [Waiting] = []
    var idle: [Int]
    var busy = (prompt: 0, ordinary: 0)
    var figures = Figures()
  }

  /// Serial queues, each of which stands for a thread: the system makes one for each that has work, whatever the number of cores.
  private let threads: [DispatchQueue]
  private let state: LockedField<State>
  private let most: (prompt: Int, ordinary: Int)

  /// A pool of `width` threads. One exists only while there is work for it.
  package init(width: Int) {
    threads = (0..<width).map { DispatchQueue(label: "syncstore.worker.\($0)", qos: .userInitiated) }
    state = LockedField(State(idle: Array((0..<width).reversed())))
    most = (max(1, width - 1), max(1, width - 2))
  }

  /// A new queue.
  package func queue() -> WorkerQueue { WorkerQueue(self) }

  /// Runs blocking work, some time soon.
  package func later(_ turn: Turn = .ordinary, _ work: @escaping @Sendable () -> Void) {
    queue().async(turn, work)
  }

  /// Runs blocking work off the caller's thread, and waits for it without blocking.
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

  /// What has happened so far.
  package var figures: Figures { state.withLock { $0.figures } }

  /// The queue has a next piece.
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

  /// A thread that may begin something, if there is one and there is anything that may be begun.
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
        // What this thread has left undone another one may do.
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

/// Work that is done in order, one piece at a time, on whatever thread of its pool.
package final class WorkerQueue: Sendable {
  private struct Piece {
    var turn: WorkerPool.Turn
    var work: @Sendable () -> Void
  }

  private let pool: WorkerPool
  /// What is to be done, the piece under way, or waiting for a thread, first.
  private let pieces = LockedField<[Piece]>([])

  fileprivate init(_ pool: WorkerPool) { self.pool = pool }

  /// Does `work` behind what was given before.
  package func async(_ turn: WorkerPool.Turn = .ordinary, _ work: @escaping @Sendable () -> Void) {
    let isFirst = pieces.withLock { pieces in
      pieces.append(Piece(turn: turn, work: work))
      return pieces.count == 1
    }
    if isFirst { pool.add(self, turn: turn) }
  }

  /// The queue's turn has come.
  fileprivate func doNext() {
    pieces.withLock { $0.first }?.work()
    let next = pieces.withLock { pieces in
      pieces.removeFirst()
      return pieces.first?.turn
    }
    if let next { pool.add(self, turn: next) }
  }
}
