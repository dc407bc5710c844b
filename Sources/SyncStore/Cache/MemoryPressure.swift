private import Synchronization

/// A machine, or a container, that is short of memory, and who gives some back then.
///
/// On Linux the kernel tells: a trigger on `memory.pressure` of the process's cgroup (version 2), else on
/// `/proc/pressure/memory`. Where neither can be had (no PSI, no right to it), only `announce` tells. The watch begins with
/// the first listener and is one thread for the process, which sleeps in the kernel.
public enum MemoryPressure {
  /// How short of memory the machine is.
  public enum Level: Int, Hashable, Sendable, Comparable {
    /// Some threads wait for memory.
    case some
    /// All of them do, or the program says that everything is to go.
    case critical

    /// By urgency.
    public static func < (left: Level, right: Level) -> Bool { left.rawValue < right.rawValue }
  }

  /// Tells every listener of the process: the program's own, its caches, and what encrypted stores keep of what they opened.
  /// For a program that knows by itself. Returns once all have been told, on this thread. Not to be called by a listener.
  public static func announce(_ level: Level) {
    for body in bodies.withLock({ Array($0.values) }) { body(level) }
  }

  /// Where the kernel is asked: a file of triggers; nil if this machine offers none, or nobody listens yet.
  public static var source: String? { watch.withLock { $0?.path } }

  // MARK: Listeners

  /// One that is told when memory is short, from `listen` until it is cancelled or nobody holds it any more. What it calls
  /// must not hold it, or it has no end but `cancel`. Thread-safe.
  public final class Listener: Sendable {
    private let number: UInt64

    fileprivate init(_ number: UInt64) { self.number = number }

    /// Has it told no more. A call that another thread has begun meanwhile still comes to its end. May be called by the
    /// listener itself, and again.
    public func cancel() { bodies.withLock { _ = $0.removeValue(forKey: number) } }

    deinit { cancel() }
  }

  private static let bodies = LockedField<[UInt64: @Sendable (Level) -> Void]>([:])
  private static let last = Atomic<UInt64>(0)
  private static let watch = LockedField<PressureWatch?>(nil)
  private static let beginning = LockedField(false)

  /// Has `body` told when memory is short, as long as the listener that is returned is held and not cancelled.
  ///
  /// The kernel's word comes on a thread of its own, which tells all listeners one after the other, in no order: what takes long
  /// in one keeps the others waiting. It comes at most once for each level in two seconds, and again as long as the shortage
  /// lasts; nothing tells of its end. Who calls `announce` tells them on its own thread: so `body` may be called by several
  /// threads at once.
  public static func listen(_ body: @escaping @Sendable (Level) -> Void) -> Listener {
    let number = last.add(1, ordering: .relaxed).newValue
    bodies.withLock { $0[number] = body }
    // Whoever comes while it begins waits: then `source` is known.
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
