import Foundation
import SyncStore

/// Cost and benefit of the caches: `MemoryCache` compared with a dictionary without limits and order, and
/// gets of an encrypted store with and without its cache of decrypted records.
extension Bench {
  func caches() throws {
    let count = min(options.keys, 200_000)
    // Not in insertion order.
    let numbers = (0..<count).map { ($0 &* 7919) % count }
    memoryCache(numbers, "int")
    memoryCache(numbers.map { "image \($0)" }, "text")
    try openedRecords(try (0..<min(count, 20_000)).map { try Corpus.key(KeyPattern.scattered.key($0)) })
  }

  private func memoryCache<Key: Hashable & Sendable>(_ keys: [Key], _ kind: String) {
    let cache = MemoryCache<Key, Int>(name: "bench")
    var dictionary: [Key: Int] = [:]
    var sum = 0
    note("cache-\(kind)-set", keys.count) {
      for (number, key) in keys.enumerated() { cache.set(key, number) }
    } other: {
      for (number, key) in keys.enumerated() { dictionary[key] = number }
    }
    note("cache-\(kind)-get", keys.count) {
      for key in keys { sum &+= cache.get(key) ?? 0 }
    } other: {
      for key in keys { sum &+= dictionary[key] ?? 0 }
    }
    Machine.keep(sum)
  }

  private func note(_ workload: String, _ count: Int, ours: () -> Void, other: () -> Void) {
    report.add(workload, SyncStorePeer.title, Machine.nanoseconds(each: count, ours), "ns")
    report.add(workload, "dictionary", Machine.nanoseconds(each: count, other), "ns")
  }

  private func openedRecords(_ keys: [Key]) throws {
    for (title, bytes) in [(SyncStorePeer.title, 64 << 20), ("not kept", 0)] {
      let path = try folder(title.replacing(" ", with: "-"), "opened")
      defer { remove(path) }
      var configuration = Configuration(durability: .relaxed, passphrase: Passphrase("of the benchmark"))
      configuration.openedRecordBytes = bytes
      let store = try Store.create(at: path, configuration: configuration)
      for key in keys { try store.put(key, Payload.first) }
      func readAll() throws -> Int {
        var sum = 0
        for key in keys { sum &+= try store.get(key)?.bytes.count ?? 0 }
        return sum
      }
      _ = try readAll()
      var sum = 0
      report.add(
        "encrypted-hot-get", title, try Machine.nanoseconds(each: keys.count) { sum = try readAll() }, "ns")
      Machine.keep(sum)
      try store.close()
    }
  }
}
