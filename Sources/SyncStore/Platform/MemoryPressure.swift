private import Synchronization

/// Notifies listeners when the machine or the container is short of memory.
///
/// On Linux the kernel reports it: a trigger on `memory.pressure` of the process's cgroup (version 2), else
/// on `/proc/pressure/memory`. If neither is available (no PSI, or no permission), only `announce` notifies.
/// The watch begins with the first listener and is one thread per process, which sleeps in the kernel.
public enum MemoryPressure {
  /// How short of memory the machine is.
  public enum Level: Int, Hashable, Sendable, Comparable {
    /// Some threads wait for memory.
    case some
    /// All of them do, or the program asks to free everything.
    case critical

    /// By urgency.
    public static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
  }

  /// Notifies every listener of the process: the program's own, its caches, and the decrypted record caches
  /// of encrypted stores.
  ///
  /// For programs that detect the shortage themselves. Returns once all have been notified, on this thread.
  /// Must not be called by a listener.
  public static func announce(_ level: Level) {
    for body in bodies.withLock({ Array($0.values) }) { body(level) }
  }

  /// The file of kernel triggers in use; nil if this machine offers none, or nothing listens yet.
  public static var source: String? { watch.withLock { $0?.path } }

  // MARK: Listeners

  /// A registration, from `listen` until it is cancelled or released. Thread-safe.
  ///
  /// **Its closure must not retain it**, otherwise only `cancel` ends it.
  public final class Listener: Sendable {
    private let number: UInt64

    fileprivate init(_ number: UInt64) { self.number = number }

    /// Ends the registration. A call already begun by another thread still completes. May be called by the
    /// listener itself, and repeatedly.
    public func cancel() { bodies.withLock { _ = $0.removeValue(forKey: number) } }

    deinit { cancel() }
  }

  private static let bodies = LockedField<[UInt64: @Sendable (Level) -> Void]>([:])
  private static let last = Atomic<UInt64>(0)
  private static let watch = LockedField<PressureWatch?>(nil)
  private static let beginning = LockedField(false, rank: .pages)

  /// Calls `body` when memory is short, as long as the returned listener is held and not cancelled.
  ///
  /// The kernel's notifications come on a thread of their own, which calls all listeners in turn, in no
  /// particular order: a slow one delays the others. There is at most one for each level in two seconds,
  /// repeated as long as the shortage lasts; its end is not reported. `announce` calls listeners on the
  /// caller's thread: so `body` may be called by several threads at once.
  public static func listen(_ body: @escaping @Sendable (Level) -> Void) -> Listener {
    let number = last.add(1, ordering: .relaxed).newValue
    bodies.withLock { $0[number] = body }
    // Concurrent first calls wait: afterwards `source` is known.
    beginning.withLock { hasBegun in
      if !hasBegun {
        let begun = PressureWatch.begin { level in announce(level) }
        watch.withLock { $0 = begun }
        hasBegun = true
      }
    }
    return Listener(number)
  }
}
