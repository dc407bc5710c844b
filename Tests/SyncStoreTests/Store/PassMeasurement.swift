import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// The longest wait of a put during each pass over all keys:
/// `MEASURE_PASSES=1 swift test -c release --filter PassMeasurement`.
@Suite("Waits of writers during passes", .enabled(if: unsafe getenv("MEASURE_PASSES") != nil))
struct PassMeasurement {
  @Test("in a store of 1,000,000 keys are printed", arguments: [.exclusive, .shared] as [Configuration.Mode])
  func longest(mode: Configuration.Mode) async throws {
    let home = TemporaryDirectory()
    let store = try Store.create(
      at: home.path + "/store", configuration: Configuration(mode: mode, durability: .relaxed))
    for start in stride(from: 0, to: 1_000_000, by: 5000) {
      try store.transaction { transaction in
        for number in start..<start + 5000 {
          try transaction.put(Key("key \(number)"), [UInt8](repeating: 1, count: 100))
        }
      }
    }
    try Self.beat(store, other: home.path + "/other")
    let passes: [(String, @Sendable () throws -> Void)] = [
      ("nothing", { usleep(2_000_000) }), ("status", { _ = try store.status() }),
      ("verify", { _ = try store.verify() }), ("conflicts", { _ = try store.conflicts() }),
      ("explain", { _ = try store.explain("key 0") }),
    ]
    for (name, pass) in passes {
      let isOver = Locked(false)
      let writer = Task.detached {
        var (longest, count) = (Duration.zero, 0)
        while !isOver.withLock({ $0 }) {
          let begin = ContinuousClock.now
          try store.put(Key("key \(count * 7919 % 1_000_000)"), [UInt8](repeating: 2, count: 100))
          (longest, count) = (max(longest, ContinuousClock.now - begin), count + 1)
          usleep(100)
        }
        return (longest, count)
      }
      let begin = ContinuousClock.now
      // Short passes, repeated: a single one may meet no put.
      var passes = 0
      while passes == 0 || ContinuousClock.now - begin < .seconds(3) {
        try pass()
        passes += 1
      }
      let taken = (ContinuousClock.now - begin) / passes
      isOver.withLock { $0 = true }
      let (longest, count) = try await writer.value
      print("\(mode), during \(passes) times \(name) of \(taken): \(count) puts, the longest took \(longest)")
    }
    try store.close()
  }

  /// Makes writes of an unaware copy beat 20,000 values: those that `conflicts` and `explain` search.
  private static func beat(_ store: Store, other path: String) throws {
    let other = try Store.create(
      at: path, id: store.id, configuration: Configuration(durability: .relaxed))
    for start in stride(from: 0, to: 20_000, by: 5000) {
      try other.transaction { transaction in
        for number in start..<start + 5000 { try transaction.put(Key("key \(number * 50)"), [3]) }
      }
    }
    try store.receive(from: other)
    let beaten = try store.explain("key 0")?.beaten ?? []
    try #require(!beaten.isEmpty)
    try other.close()
  }
}
