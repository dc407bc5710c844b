internal import Synchronization

/// Work that this process has done on a store since it opened it, for metrics.
///
/// Counters only grow. Reading them takes no lock that a writer or a reader waits for.
public struct StoreCounters: Hashable, Sendable {
  /// Values and deletes that the program itself has written. Writes received from peers do not count.
  public internal(set) var puts: UInt64 = 0, deletes: UInt64 = 0
  /// Keys looked up, by all stores of the process together. Snapshots, lists and streams do not count.
  public internal(set) var lookups: UInt64 = 0
  /// Runs of segments that were compacted.
  public internal(set) var compactions: UInt64 = 0
  /// The syncs of the journal, with how long each took.
  public internal(set) var syncs = DurationHistogram()
  /// Requests for durability that those syncs have served: divided by their number, the size of a group
  /// commit.
  public internal(set) var syncRequests: UInt64 = 0

  init() {}
}

/// How often an operation took how long.
public struct DurationHistogram: Hashable, Sendable {
  /// The upper bounds of the classes, in seconds; the last class has none.
  public static let bounds: [Double] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
  ]

  /// The number of operations in each class: one more than there are bounds.
  public private(set) var counts = [UInt64](repeating: 0, count: bounds.count + 1)
  /// The time of all operations together, in seconds.
  public private(set) var seconds = 0.0

  /// The number of all operations.
  public var count: UInt64 { counts.reduce(0, +) }

  init() {}

  /// Counts an operation.
  mutating func add(seconds: Double) {
    counts[Self.bounds.firstIndex { seconds <= $0 } ?? Self.bounds.count] += 1
    self.seconds += seconds
  }
}

/// A counter with one writer at a time, which any thread may read.
final class EventCounter: Sendable {
  private let value = Atomic<UInt64>(0)

  /// The present value.
  var count: UInt64 { value.load(ordering: .relaxed) }

  /// Adds to it. The caller excludes other writers: an atomic addition would cost each put more.
  @inline(__always)
  func add(_ number: UInt64 = 1) {
    value.store(value.load(ordering: .relaxed) &+ number, ordering: .relaxed)
  }
}

extension Store {
  /// The work of this process on the store since it opened it.
  public var counters: StoreCounters {
    var counters = StoreCounters()
    (counters.puts, counters.deletes) = (writes.puts.count, writes.deletes.count)
    counters.lookups = EpochProtected.lookups
    counters.compactions = compactor.finished.count
    (counters.syncs, counters.syncRequests) = journalSync.measured
    return counters
  }
}
