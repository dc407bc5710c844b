import SyncStore

/// A running `watch`: prints lines and runs the command until it is stopped.
///
/// Invariant: all changes up to `reached` were printed, and their commands have ended.
struct Watch {
  private let store: Store
  private let invocation: Invocation
  private let output: WatchOutput
  private let range: KeyRange
  private let stop: StopRequest
  private let reached: ReachedPosition

  /// Thrown to leave a scan.
  private struct Stopped: Error {}

  init(
    _ store: Store, invocation: Invocation, output: Output, reached: ReachedPosition, stop: StopRequest
  ) {
    (self.store, self.invocation, self.reached, self.stop) = (store, invocation, reached, stop)
    self.output = WatchOutput(invocation, store: store, output: output, stop: stop)
    range = KeyRange(prefix: invocation.prefix(invocation.operands.first))
  }

  /// Runs until a signal, the loss of the reader of standard output or, with `--once`, a change.
  static func run(
    _ store: Store, from start: ChangePosition?, invocation: Invocation, output: Output
  ) throws {
    let reached = ReachedPosition(try start ?? store.changePosition(), isQuiet: invocation.isQuiet)
    let giveUp: @Sendable () -> Never = {
      reached.tell()
      System.exit(.done)
    }
    try StopRequest.following(giveUp: giveUp) { stop in
      try Watch(store, invocation: invocation, output: output, reached: reached, stop: stop).run(from: start)
    }
  }

  private func run(from start: ChangePosition?) throws {
    do {
      // With a position, keys are listed only if it is not valid any more.
      try invocation.has("initial") && start == nil ? list() : follow()
    } catch is Stopped {
    } catch let failure as Failure where failure.isBrokenPipe {
      // The reader has what it wanted.
    }
    reached.tell()
  }

  /// Prints the present keys, then follows from the same moment.
  private func list() throws {
    // There is no position after some of the keys: an interrupted listing begins again.
    reached.position = .beginning
    let next = try {
      let (snapshot, next) = try store.snapshotAndPosition()
      defer { snapshot.close() }
      var failures = ItemFailures(command: "watch")
      let losses = try snapshot.scanReadable(range) { entry in
        try show(WatchEvent(entry, in: snapshot))
      }.doubts
      try failures.record(losses)
      return next
    }()
    try show(WatchEvent(.ready, at: next))
    try follow()
  }

  private func follow() throws {
    while true {
      let feed = ChangeFeed(try store.changes(in: range, from: reached.position))
      do {
        while let change = try blocking(until: stop, feed.next) {
          try show(WatchEvent(change))
          if invocation.has("once") { return }
        }
        return
      } catch let error as StoreError where [.changesLost, .rolledBack].contains(error.code) {
        try tellGap(error)
        if invocation.has("once") { return }
        if invocation.has("initial") { return try list() }
      }
    }
  }

  private func tellGap(_ error: StoreError) throws {
    let reason =
      error.code == .changesLost
      ? "deletes after the position are no longer kept"
      : "the position is one of another copy, or of writes that this one has lost"
    let advice =
      invocation.has("initial")
      ? "all keys are shown again" : "show all keys with --initial, and forget those that it lacks"
    Diagnostics.report("watch: changes were missed: \(reason): \(advice)")
    // What a listing prints follows this line: an interrupted one begins again.
    let next = try invocation.has("initial") ? .beginning : store.changePosition()
    try show(WatchEvent(.gap, at: next))
  }

  private func show(_ event: WatchEvent) throws {
    guard !stop.isMade, try output.show(event) else { throw Stopped() }
    reached.position = event.position
  }
}

/// The position that a watch has reached, also read by the thread that waits for signals.
final class ReachedPosition: Sendable {
  private let value: LockedField<ChangePosition>
  private let isQuiet: Bool

  init(_ start: ChangePosition, isQuiet: Bool) {
    value = LockedField(start)
    self.isQuiet = isQuiet
  }

  var position: ChangePosition {
    get { value.withLock { $0 } }
    set { value.withLock { $0 = newValue } }
  }

  /// Prints where to go on, on standard error.
  func tell() {
    if !isQuiet { Diagnostics.report("watch: ended: go on with --from \(position)") }
  }
}

/// Iterates over changes for a thread that blocks on each.
private actor ChangeFeed {
  private var iterator: Changes.AsyncIterator

  init(_ changes: Changes) { iterator = changes.makeAsyncIterator() }

  /// The next change; nil once the task is cancelled.
  @Sendable func next() async throws -> Change? {
    var copy = iterator
    defer { iterator = copy }
    return try await copy.next(isolation: self)
  }
}
