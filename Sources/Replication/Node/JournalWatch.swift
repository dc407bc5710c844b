internal import SyncStore

/// Notifies the live sessions of a node when the journal has grown, with one subscription to the store for
/// all of them. Confined to its loop's thread.
final class JournalWatch {
  private struct Waiting {
    var position: UInt64
    var body: () -> Void
  }

  private let context: NodeContext
  private var waiting: [UInt64: Waiting] = [:]
  private var isArmed = false
  /// How often the store's notification was armed.
  private var armings: UInt64 = 0
  private var isCheckScheduled = false
  private var growthTimer: UInt64?
  /// Called soon after the journal has grown, at most once a second.
  var onGrowth: () -> Void = {}
  private static let reviewMilliseconds = 1000
  private static let retryMilliseconds = 500

  init(_ context: NodeContext) { self.context = context }

  /// Calls `body` once, on the loop, when the journal has records after `position`. Replaces an earlier call
  /// with the same number.
  func notify(_ number: UInt64, after position: UInt64, _ body: @escaping () -> Void) {
    waiting[number] = Waiting(position: position, body: body)
    // Deferred, because the caller is in the middle of handling an event; one check serves all calls until
    // then.
    guard !isCheckScheduled else { return }
    isCheckScheduled = true
    context.loop.execute { [this = LoopBound(self, to: context.loop)] in this.value.checkGrowth() }
  }

  /// Removes the subscription with this number.
  func cancel(_ number: UInt64) { waiting[number] = nil }

  private func checkGrowth() {
    isCheckScheduled = false
    let position = context.store.journalPosition
    let due = waiting.filter { $0.value.position < position }
    for number in due.keys.sorted() { waiting[number] = nil }
    for number in due.keys.sorted() { due[number]?.body() }
    // It had grown before the subscription was made.
    if !due.isEmpty { scheduleGrowthCallback() }
    guard !waiting.isEmpty, !isArmed else { return }
    isArmed = true
    armings += 1
    let number = armings
    let (store, loop) = (context.store, context.loop)
    let this = LoopBound(self, to: loop)
    let wake = { @Sendable in loop.execute { this.value.journalGrew() } }
    // If a writer is at work in the store, a worker waits for it: the loop must not block.
    if store.notifyWhenGrownIfFree(after: position, wake) { return }
    context.workers.later(.prompt) {
      if store.notifyWhenGrown(after: position, wake) { return }
      loop.execute { this.value.scheduleRetry(number) }
    }
  }

  /// The store could not arm the notification, so no session would be woken: retries, since descriptors or
  /// memory may be available by then. Does nothing if the watch has since been woken and armed again.
  private func scheduleRetry(_ number: UInt64) {
    _ = context.loop.schedule(after: Self.retryMilliseconds) { [weak self] in
      guard let self, number == armings else { return }
      isArmed = false
      checkGrowth()
    }
  }

  private func journalGrew() {
    isArmed = false
    scheduleGrowthCallback()
    checkGrowth()
  }

  private func scheduleGrowthCallback() {
    guard growthTimer == nil else { return }
    growthTimer = context.loop.schedule(after: Self.reviewMilliseconds) { [weak self] in
      self?.growthTimer = nil
      self?.onGrowth()
    }
  }
}
