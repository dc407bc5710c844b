internal import SyncStore

/// The growth of the journal that a session was told of. Confined to the loop's thread.
///
/// While a small last batch of a live round is being applied, growth is deferred: it is most likely that
/// batch, and the other side waits for its answer.
struct JournalFollowing {
  /// Records of the other side that a session may skip before it scans the journal nevertheless.
  private static let mostUnseen: UInt64 = 256

  /// The journal position at which the session last asked to follow, and the position after which growth is
  /// reported.
  private var followed: (from: UInt64, after: UInt64)?
  private var isDeferring = false
  private var hasDeferredGrowth = false

  mutating func follow(from start: UInt64, after position: UInt64) { followed = (start, position) }

  mutating func beginDeferring() { isDeferring = true }

  /// The journal has grown. False if that is deferred.
  mutating func grew() -> Bool {
    if isDeferring { hasDeferredGrowth = true }
    return !isDeferring
  }

  /// Ends the deferral. Whether the journal has grown during it.
  mutating func endDeferring() -> Bool {
    isDeferring = false
    defer { hasDeferredGrowth = false }
    return hasDeferredGrowth
  }

  /// The position to follow from after `echo`, which only records of the other side fill: it need not be told
  /// of them. Nil if the journal must be scanned.
  func start(skipping echo: (after: UInt64, upTo: UInt64)?) -> UInt64? {
    guard let echo, let followed, followed.after == echo.after,
      echo.upTo - followed.from <= Self.mostUnseen
    else { return nil }
    return followed.from
  }
}

/// The events that a session has not handled yet. Confined to the loop's thread.
///
/// Invariant: one event is handled at a time, in the order in which they occurred.
struct SessionEventQueue {
  private var events: [SessionEvent] = []
  private var next = 0
  private var isProcessing = false

  mutating func append(_ event: SessionEvent) { events.append(event) }

  /// Begins to handle events. False while they are being handled.
  mutating func begin() -> Bool {
    guard !isProcessing else { return false }
    isProcessing = true
    return true
  }

  mutating func popFirst() -> SessionEvent? {
    guard next < events.count else { return nil }
    defer { next += 1 }
    return events[next]
  }

  mutating func end() {
    events.removeAll(keepingCapacity: next < 16)
    next = 0
    isProcessing = false
  }
}

/// The timers of a session. Confined to the loop's thread.
///
/// Invariant: each timer runs at most once at a time; setting it again restarts it.
struct SessionTimers {
  let loop: EventLoop
  private var numbers: [SessionTimer: UInt64] = [:]

  init(_ loop: EventLoop) { self.loop = loop }

  /// Calls `fire` after `seconds`. It must call `fired` first.
  mutating func set(_ timer: SessionTimer, seconds: Int, fire: @escaping () -> Void) {
    cancel(timer)
    numbers[timer] = loop.schedule(after: seconds * 1000, fire)
  }

  mutating func fired(_ timer: SessionTimer) { numbers[timer] = nil }

  mutating func cancel(_ timer: SessionTimer) {
    if let number = numbers.removeValue(forKey: timer) { loop.cancel(number) }
  }

  mutating func cancelAll() { for timer in SessionTimer.allCases { cancel(timer) } }
}

/// The end of a session. Confined to the loop's thread.
///
/// Invariant: the outcome is taken once, after a requested new actor is durable.
struct SessionEnding {
  let completion: (SessionDriver.End) -> Void
  private(set) var outcome: SessionOutcome?
  private(set) var hasEnded = false
  private var isRenewing = false

  init(_ completion: @escaping (SessionDriver.End) -> Void) { self.completion = completion }

  /// Decides the outcome. False if it is decided already.
  mutating func close(_ outcome: SessionOutcome) -> Bool {
    guard self.outcome == nil else { return false }
    self.outcome = outcome
    return true
  }

  mutating func beginRenewal() { isRenewing = true }

  mutating func endRenewal() { isRenewing = false }

  /// The outcome, once the session may end. Returned once.
  mutating func takeOutcome() -> SessionOutcome? {
    guard let outcome, !isRenewing, !hasEnded else { return nil }
    hasEnded = true
    return outcome
  }
}

/// When the other side last gave a sign of life, by the loop's clock, in milliseconds.
struct PeerActivity {
  /// When it last sent anything.
  private(set) var lastHeard = MonotonicClock.milliseconds()
  /// When it last sent or accepted anything: a peer that is receiving a large value sends nothing during that
  /// time.
  private(set) var lastMoved = MonotonicClock.milliseconds()

  mutating func heard() {
    lastHeard = MonotonicClock.milliseconds()
    lastMoved = lastHeard
  }

  mutating func accepted() { lastMoved = MonotonicClock.milliseconds() }
}

/// The times of the two hellos, and the offset of the clocks that follows from them.
struct HelloTimes {
  /// By the loop's clock.
  private var sentAt: UInt64?
  /// When the other side's hello came, by the wall clock, in milliseconds since 1970.
  private(set) var receivedAt: UInt64?
  /// Milliseconds by which the other side's clock is ahead of the own one.
  private(set) var clockOffset: Int64?

  /// Whether neither hello was sent or received.
  var isOpen: Bool { sentAt == nil && receivedAt == nil }

  mutating func sent() { sentAt = MonotonicClock.milliseconds() }

  /// Estimates the other side's clock offset from its hello. If this side sent its hello first, the other
  /// clock was read half a round trip ago; otherwise a moment ago.
  mutating func received(_ hello: Hello, at now: UInt64) {
    receivedAt = now
    let begun = sentAt.map { MonotonicClock.milliseconds() - $0 } ?? 0
    clockOffset = Int64(hello.wallMilliseconds) - Int64(now - min(now, begun / 2))
  }
}

/// The progress of a session that was passed on: to its store, to its delegate, to the contacts.
struct ReportedProgress {
  var acknowledgedBatches = 0
  /// Repaired keys, and how many of them were named.
  var repaired = (count: 0, named: 0)
  var wasLive = false
  var wasOpen = false
  /// The acknowledged position at the last save of the contact.
  var savedAcknowledged: UInt64 = 0
}
