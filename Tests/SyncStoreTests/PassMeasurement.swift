import Glibc
import SyncTestSupport
import Synchronization
import Testing

@testable import SyncStore

/// The longest wait of a put during each pass over all keys: `MEASURE_PASSES=1 swift test -c release --filter PassMeasurement`.
@Suite("Waits of writers during passes", .enabled(if: unsafe getenv("MEASURE_PASSES") != nil))
struct PassMeasurement {
  @Test("of a store of 1,000,000 keys are told", arguments: [.exclusive, .shared] as [Configuration.Mode])
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
    let passes: [(String, @Sendable () throws -> Void)] = [
      ("nothing", { usleep(2_000_000) }), ("status", { _ = try store.status() }),
      ("verify", { _ = try store.verify() }), ("conflicts", { _ = try store.conflicts() }),
      ("explain", { _ = try store.explain("key 1") }),
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
      try pass()
      let taken = ContinuousClock.now - begin
      isOver.withLock { $0 = true }
      let (longest, count) = try await writer.value
      print("\(mode), beside \(name): \(taken), \(count) puts, the longest took \(longest)")
    }
    try store.close()
  }
}
