import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// A compaction writes into the part of the space reserve meant for it: with a separate file, disk use would
/// exceed twice the live data plus three segments (rule R5) by the size of the largest segment.
@Suite("The compaction reserve")
struct CompactionReserveTests {
  @Test(
    "becomes the copy, also while a writer begins segments, and is restored afterwards",
    arguments: [false, true])
  func taken(writes: Bool) throws {
    let directory = TemporaryDirectory()
    let journal = directory.path + "/store/journal/"
    let seen = Locked<(store: Store?, isWriting: Bool, copies: Int, present: [Bool])>((nil, false, 0, []))
    let exists: @Sendable () -> Bool = {
      FileManager.default.fileExists(atPath: journal + "reserve.compacted")
    }
    let environment = KilledWork.environment(
      FaultPlan { call, path in
        if call == .rename, path.hasSuffix("/next.compacted") { seen.withLock { $0.copies += 1 } }
        guard call == .remove, path.hasSuffix(".segment") else { return }
        let store = seen.withLock { seen -> Store? in
          defer { seen.isWriting = true }
          return writes && !seen.isWriting ? seen.store : nil
        }
        if let store { try? Self.fill(store, "late", seed: 9) }
        seen.withLock { $0.present.append(exists()) }
      })
    var configuration = KilledWork.configuration(sealed: false)
    (configuration.blobThreshold, configuration.segmentBytes) = (1 << 20, 256 << 10)
    let store = try Store.create(
      at: directory.path + "/store", name: "s", id: nil, configuration: configuration,
      environment: environment)
    for round in 0..<3 { try Self.fill(store, "key", seed: UInt64(round)) }
    #expect(exists())
    seen.withLock { $0.store = store }
    try store.compact()
    let (copies, present) = seen.withLock { ($0.copies, $0.present) }
    #expect(copies > 0 && !present.isEmpty && !present.contains(true), "\(present)")
    #expect(exists())
    for number in 0..<20 {
      #expect(try store.get(Key("key \(number)"))?.bytes == Self.noise(20_000, seed: 2))
    }
    if writes { #expect(try store.get("late 19") != nil) }
    seen.withLock { $0.store = nil }
    try store.close()
  }

  /// Writes 400 kB to keys.
  private static func fill(_ store: Store, _ name: String, seed: UInt64) throws {
    for number in 0..<20 { try store.put(Key("\(name) \(number)"), noise(20_000, seed: seed)) }
  }

  /// Incompressible bytes.
  private static func noise(_ count: Int, seed: UInt64) -> [UInt8] {
    var random = SplitMix64(seed: seed)
    return random.bytes(count)
  }
}
