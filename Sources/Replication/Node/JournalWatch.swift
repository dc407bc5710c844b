internal import SyncStore

/// Tells the live sessions of a node when the journal has grown: the store is asked once for all of them. Belongs to its
/// loop's thread.
final class JournalWatch {
  private struct Waiting {
    var position: UInt64
    var body: () -> Void
  }

  private let context: NodeContext
  private var waiting: [UInt64: Waiting] = [:]
  private var isArmed = false
  /// How often it was armed.
  private var armings: UInt64 = 0
  private var isCheckScheduled = false
  private var growthTimer: UInt64?
  /// Called soon after the journal has grown, once a second at most.
  var onGrowth: () -> Void = {}
  private static let reviewMilliseconds = 1000
  private static let retryMilliseconds = 500

  init(_ context: NodeContext) { self.context = context }

  /// Calls `body` once, on the loop, when the journal has something behind `position`. Replaces an earlier call with the
  /// same number.
  func notify(_ number: UInt64, after position: UInt64, _ body: @escaping () -> Void) {
    waiting[number] = Waiting(position: position, body: body)
    // Not from within: whoever asks is in the middle of something. And once for all who ask meanwhile: they are many.
    guard !isCheckScheduled else { return }
    isCheckScheduled = true
    context.loop.execute { [this = LoopBound(self, to: context.loop)] in this.value.checkGrowth() }
  }

  /// It is not wanted any more.
  func cancel(_ number: UInt64) { waiting[number] = nil }

  private func checkGrowth() {
    isCheckScheduled = false
    let position = context.store.journalPosition
    let due = waiting.filter { $0.value.position < position }
    for number in due.keys.sorted() { waiting[number] = nil }
    for number in due.keys.sorted() { due[number]?.body() }
    // It had grown before anybody waited.
    if !due.isEmpty { scheduleGrowthCallback() }
    guard !waiting.isEmpty, !isArmed else { return }
    isArmed = true
    armings += 1
    let number = armings
    let (store, loop) = (context.store, context.loop)
    let this = LoopBound(self, to: loop)
    let wake = { @Sendable in loop.execute { this.value.journalGrew() } }
    // A worker waits for whoever is at work in the store: the loop does not.
    if store.notifyWhenGrownIfFree(behind: position, wake) { return }
    context.workers.later(.prompt) {
      if store.notifyWhenGrown(behind: position, wake) { return }
      loop.execute { this.value.scheduleRetry(number) }
    }
  }

  /// The store could not be looked at. Nobody would wake those who wait, so it is tried again: what was wanting, descriptors or
  /// memory, may be there by then. Not where it was woken all the same, and armed anew.
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
