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

  /// Tells every cache of the process, with those that encrypted stores have of what they opened: for a program that knows
  /// by itself. Returns once all have been told.
  public static func announce(_ level: Level) {
    for listener in listeners.withLock({ Array($0.values) }) { listener(level) }
  }

  /// Where the kernel is asked: a file of triggers; nil if this machine offers none, or nobody listens yet.
  public static var source: String? { watch.withLock { $0?.path } }

  // MARK: Listeners

  private static let listeners = Locked<[UInt64: @Sendable (Level) -> Void]>([:])
  private static let last = Atomic<UInt64>(0)
  private static let watch = Locked<PressureWatch?>(nil)
  private static let beginning = Locked(false)

  /// Has `body` told from now on; until `forget` with the number that is returned.
  package static func listen(_ body: @escaping @Sendable (Level) -> Void) -> UInt64 {
    let number = last.add(1, ordering: .relaxed).newValue
    listeners.withLock { $0[number] = body }
    // Whoever comes while it begins waits: then `source` is known.
    beginning.withLock { hasBegun in
      if !hasBegun {
        let begun = PressureWatch.begin { level in announce(level) }
        watch.withLock { $0 = begun }
        hasBegun = true
      }
    }
    return number
  }

  /// Has the listener of that number told no more.
  package static func forget(_ number: UInt64) { listeners.withLock { _ = $0.removeValue(forKey: number) } }
}
