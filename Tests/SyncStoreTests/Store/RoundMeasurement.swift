import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// How long writers wait while a round for a first copy is opened. Run by `make rounds`; not part of the
/// suite.
@Suite(.enabled(if: ProcessInfo.processInfo.environment["MEASURE_ROUNDS"] != nil), .serialized)
struct RoundMeasurement {
  private let keys = ProcessInfo.processInfo.environment["MEASURE_ROUNDS"].flatMap { Int($0) } ?? 1_000_000

  private static func now() -> UInt64 { DispatchTime.now().uptimeNanoseconds }

  @Test(arguments: [false, true])
  func `the longest put during a round for a first copy`(isOverwritten: Bool) throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", name: "one")
    let value = [UInt8](repeating: 7, count: 100)
    for _ in 0..<(isOverwritten ? 2 : 1) {
      for start in stride(from: 0, to: keys, by: 1000) {
        try store.transaction(durability: .relaxed) { transaction in
          for number in start..<min(start + 1000, keys) {
            try transaction.put(Self.key(number), value)
          }
        }
      }
    }
    try store.sync()
    try open(store)
    let isDone = Locked(false)
    let waits = Locked<[Double]>([])
    let writer = Threaded {
      var number = 0
      var mine: [Double] = []
      while !isDone.withLock({ $0 }) {
        let begin = Self.now()
        try? store.put(Self.key(number &* 7919 % keys), value, durability: .relaxed)
        mine.append(Double(Self.now() - begin) / 1e6)
        number += 1
        usleep(Self.pause)
      }
      waits.withLock { [mine] in $0 = mine }
    }
    writer.start()
    usleep(50_000)
    for _ in 0..<5 {
      try open(store)
      usleep(20_000)
    }
    isDone.withLock { $0 = true }
    writer.join()
    let sorted = waits.withLock { $0.sorted() }
    print(
      "\(sorted.count) puts: middle \(sorted[sorted.count / 2]) ms, 99.9 % \(sorted[sorted.count * 999 / 1000]) ms,",
      "longest \(sorted.suffix(8)) ms")
    try store.close()
  }

  private func open(_ store: Store) throws {
    let begin = Self.now()
    let round = try store.openRound(since: nil, covered: VersionVector())
    print("a round of \(round.count) records, opened in", Double(Self.now() - begin) / 1e6, "ms")
  }

  /// Pause between two puts, in microseconds: a writer without pauses is limited by the disk.
  private static let pause: UInt32 = 20

  private static func key(_ number: Int) throws -> Key {
    let text = String(number)
    return try Key("key-" + String(repeating: "0", count: 12 - text.count) + text)
  }
}
