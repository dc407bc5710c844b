private import Glibc

/// Lets any number of threads use something, or one keep all others out. A thread that is in may enter again.
final class Gate: @unchecked Sendable {
  private let monitor = Monitor()
  // Under its lock.
  private var inside: [UInt: Int] = [:]
  /// Who has shut it, while it is shut.
  private var owner: UInt?

  private static var thread: UInt { UInt(pthread_self()) }

  /// Is it shut, or being shut?
  var isShut: Bool { monitor.withLock { owner != nil } }

  /// Waits while it is shut. False, at once, for the thread that has shut it: it would wait for itself.
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

  /// Lets nobody in any more and waits until all have left. False, at once, for a thread that is in, or has shut it.
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

  /// Lets them in again. By any thread; does nothing if it is open.
  func open() {
    monitor.withLock {
      owner = nil
      monitor.notifyAll()
    }
  }
}
