private import Glibc

/// A reentrant shared/exclusive gate: any number of threads inside, or one that keeps all others out.
final class Gate: @unchecked Sendable {
  private let monitor = Monitor()
  // Guarded by the monitor.
  private var inside: [UInt: Int] = [:]
  /// The thread that has shut it.
  private var owner: UInt?

  private static var thread: UInt { UInt(pthread_self()) }

  /// Whether it is shut or being shut.
  var isShut: Bool { monitor.withLock { owner != nil } }

  /// Waits while it is shut. Returns false at once for the thread that has shut it, which would deadlock.
  func enter() -> Bool {
    let thread = Self.thread
    return monitor.withLock {
      while owner != nil, inside[thread] == nil {
        if owner == thread { return false }
        monitor.wait()
      }
      inside[thread, default: 0] += 1
      return true
    }
  }

  /// Once for each `enter`, by the same thread.
  func leave() {
    let thread = Self.thread
    monitor.withLock {
      let count = (inside[thread] ?? 0) - 1
      inside[thread] = count > 0 ? count : nil
      if inside.isEmpty { monitor.notifyAll() }
    }
  }

  /// Stops further entries and waits until all threads have left. Returns false at once for a thread that is
  /// inside or has shut it.
  func shut() -> Bool {
    let thread = Self.thread
    return monitor.withLock {
      if inside[thread] != nil || owner == thread { return false }
      while owner != nil { monitor.wait() }
      owner = thread
      while !inside.isEmpty { monitor.wait() }
      return true
    }
  }

  /// Reopens it, from any thread. No effect if it is open.
  func open() {
    monitor.withLock {
      owner = nil
      monitor.notifyAll()
    }
  }
}
