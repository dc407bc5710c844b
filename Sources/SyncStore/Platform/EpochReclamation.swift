private import CLinux
internal import Synchronization

/// Publishes the view that threads read without a lock and without reference counting; replaced views are
/// freed once no reader can still use them.
///
/// Epoch-based reclamation (K. Fraser, Practical Lock-Freedom, 2004, 5.2.3): a reading thread stores the
/// epoch in a word of its own; each publication ends an epoch; a replaced view is kept while any thread has
/// been reading since its epoch or an earlier one, and is released by a later publication or a timer. Readers
/// need no memory fence; the publisher has the kernel run one on all processors (membarrier).
///
/// This is one of the few files that use `unsafe`: the published object is held by a bare pointer, and each
/// thread's word is C's.
@safe final class EpochProtected: @unchecked Sendable {
  private let current = Atomic<UInt>(0)
  /// Replaced views that may still be read.
  private let retired = LockedField(Retired())

  private struct Retired {
    /// Ordered by epoch.
    var views: [(epoch: UInt64, view: LockFreeView)] = []
    var reclaimsLater = false
  }

  init() {}

  deinit { if let view = unsafe Self.view(of: current.load(ordering: .relaxed)) { unsafe view.release() } }

  /// Publishes another view, or none. Only one thread at a time.
  func publish(_ view: LockFreeView?) {
    let bits = view.map { unsafe UInt(bitPattern: Unmanaged.passRetained($0).toOpaque()) } ?? 0
    let before = current.exchange(bits, ordering: .sequentiallyConsistent)
    let epoch = Epochs.current.wrappingAdd(1, ordering: .sequentiallyConsistent).oldValue
    if let old = unsafe Self.view(of: before) {
      let old = unsafe old.takeRetainedValue()
      retired.withLock { $0.views.append((epoch, old)) }
    }
    if !reclaim() { reclaimLater() }
  }

  /// Releases the replaced views that no thread can be reading. False if some remain.
  @discardableResult
  func reclaim() -> Bool {
    // Released without the lock: a view may be the last owner of mapped files.
    let (released, isAll) = retired.withLock { retired in
      guard !retired.views.isEmpty else { return (retired.views, true) }
      let oldest = Epochs.oldest
      let released = Array(retired.views.prefix { $0.epoch < oldest })
      retired.views.removeFirst(released.count)
      return (released, retired.views.isEmpty)
    }
    withExtendedLifetime(released) {}
    return isAll
  }

  /// Reclaims on a timer: the next publication may be hours away, and removed files keep their disk space as
  /// long as a replaced view maps them.
  private func reclaimLater() {
    let begins = retired.withLock { retired in
      defer { retired.reclaimsLater = true }
      return !retired.reclaimsLater
    }
    guard begins else { return }
    Background.run(after: Self.millisecondsBetweenReclaims) { [weak self] in
      guard let self else { return }
      retired.withLock { $0.reclaimsLater = false }
      if !reclaim() { reclaimLater() }
    }
  }

  private static let millisecondsBetweenReclaims = 20

  /// Calls `body` with the published view; nil if there is none or this thread has no reader word. The view
  /// stays valid during the call, whatever is published. A lookup is counted, unless `counts` is false.
  @inline(__always)
  func read<Result>(counts: Bool = true, _ body: (LockFreeView) -> Result?) -> Result? {
    guard let word = unsafe sync_reader_word() else { return nil }
    let since = unsafe UnsafeMutableRawPointer(word).assumingMemoryBound(to: Atomic<UInt64>.self)
    // On the same cache line, which this thread writes anyway.
    if counts {
      let lookups = unsafe since + 1
      let count = unsafe lookups.pointee.load(ordering: .relaxed)
      unsafe lookups.pointee.store(count &+ 1, ordering: .relaxed)
    }
    // A nested read keeps the epoch of the outer one.
    let before = unsafe since.pointee.load(ordering: .relaxed)
    if before == 0 {
      // A later publisher sees this word; the effect of an earlier one is seen here.
      unsafe sync_begin_reading(word, Epochs.current.load(ordering: .acquiring))
    }
    defer { unsafe since.pointee.store(before, ordering: .releasing) }
    guard let view = unsafe Self.view(of: current.load(ordering: .sequentiallyConsistent)) else {
      return nil
    }
    return unsafe view._withUnsafeGuaranteedRef(body)
  }

  /// The lookups of all threads of the process, those that have ended included. Threads without a reader word
  /// are not counted.
  static var lookups: UInt64 {
    var lookups: UInt64 = 0
    for index in 0..<Int(sync_claimed_reader_words()) {
      guard let word = unsafe sync_reader_word_at(Int32(index)) else { continue }
      let count = unsafe UnsafeMutableRawPointer(word + 1).assumingMemoryBound(to: Atomic<UInt64>.self)
      lookups &+= unsafe count.pointee.load(ordering: .relaxed)
    }
    return lookups
  }

  @inline(__always)
  private static func view(of bits: UInt) -> Unmanaged<LockFreeView>? {
    guard let pointer = unsafe UnsafeRawPointer(bitPattern: bits) else { return nil }
    return unsafe Unmanaged.fromOpaque(pointer)
  }
}

/// The epochs of all published views of the process.
private enum Epochs {
  /// Starts at 1: a word of 0 means that the thread is not reading.
  static let current = Atomic<UInt64>(1)

  /// The oldest epoch in which a thread may be reading.
  static var oldest: UInt64 {
    sync_await_readers()
    var oldest = UInt64.max
    for index in 0..<Int(sync_claimed_reader_words()) {
      guard let word = unsafe sync_reader_word_at(Int32(index)) else { continue }
      let since = unsafe UnsafeMutableRawPointer(word).assumingMemoryBound(to: Atomic<UInt64>.self).pointee
        .load(
          ordering: .sequentiallyConsistent)
      if since != 0 { oldest = min(oldest, since) }
    }
    return oldest
  }
}
