import Foundation
import SyncStore

/// Values by size, stored in their journal record or in the blob tier: the basis for the default of
/// `Configuration.blobThreshold`.
extension Bench {
  private static let sizes = [2, 4, 8, 16, 20, 32, 64, 128].map { $0 << 10 }
  /// Total bytes of the values of one size.
  private static let bytes = 64 << 20
  private static let durablePuts = 200
  private static let operations = ["put", "again", "overwrite", "get", "durable-put"]

  func threshold() throws {
    for round in 0..<options.rounds {
      for size in Self.sizes {
        let sides = [("journal", Limits.inlineValueBytes), ("tier", 0)]
        for side in round.isMultiple(of: 2) ? sides : sides.reversed() {
          let times = try times(side.0, size, threshold: side.1)
          for (operation, time) in zip(Self.operations, times) {
            let title = side.0 == "journal" ? SyncStorePeer.title : side.0
            report.add("journal-\(operation)-\(size >> 10)k", title, time / 1000, "us")
          }
        }
      }
    }
  }

  /// Nanoseconds per operation of each kind.
  private func times(_ side: String, _ size: Int, threshold: Int) throws -> [Double] {
    let path = try folder(side, "threshold")
    defer { remove(path) }
    let count = Self.bytes / size
    let keys = try (0..<count).map { try Key("value \($0)") }
    let others = try (0..<count).map { try Key("other \($0)") }
    var value = [UInt8](repeating: 7, count: size)
    try Machine.settle(touching: 4 * Self.bytes, in: options.data)
    let store = try Store.create(
      at: path, configuration: Configuration(durability: .relaxed, blobThreshold: threshold))
    func puts(_ keys: [Key], from first: Int, durability: Durability? = nil) throws -> Double {
      try Machine.nanoseconds(each: keys.count) {
        for (index, key) in keys.enumerated() {
          value.number(first + index)
          try store.put(key, value, durability: durability)
        }
      }
    }
    let put = try puts(keys, from: 0)
    let again = try puts(others, from: 0)
    let overwrite = try puts(keys, from: count)
    var sum = 0
    let get = try Machine.nanoseconds(each: count) {
      for key in keys {
        sum &+= try store.withValue(key) { $0.pageSum } ?? 0
      }
    }
    Machine.keep(sum)
    let durable = try puts(Array(keys.prefix(Self.durablePuts)), from: 2 * count, durability: .full)
    try store.close()
    return [put, again, overwrite, get, durable]
  }
}
