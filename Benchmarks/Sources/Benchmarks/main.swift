import Foundation
import SyncStore

/// The store beside SQLite on the same machine in the same minute: medians of several rounds, the two taking turns, as a
/// table for people and lines of JSON for programs. Figures of different runs or machines are not comparable; ratios are.
struct Benchmark {
  private static let rounds = 7
  private let folder = NSTemporaryDirectory() + "sync-store-bench-\(UUID().uuidString)"
  private let value = (0..<100).map { UInt8(truncatingIfNeeded: $0 &* 31) }

  func run() throws {
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try measure("put, 100 bytes", operations: 20_000, durable: false, reading: false)
    try measure("get, 100 bytes, random of 20,000", operations: 20_000, durable: false, reading: true)
    try measure("durable put, 100 bytes", operations: 300, durable: true, reading: false)
  }

  private func measure(_ workload: String, operations: Int, durable: Bool, reading: Bool) throws {
    let keys = (0..<operations).map { Array("key/\($0)".utf8) }
    var (ours, theirs): ([Double], [Double]) = ([], [])
    for round in 0..<Self.rounds {
      let path = folder + "/\(ours.count)-\(durable)-\(reading)"
      let order = keys.shuffled()
      let store = try Store.create(
        at: path, configuration: Configuration(durability: durable ? .full : .relaxed))
      let peer = SQLitePeer(path: path + ".sqlite", durable: durable)
      if reading {
        for key in keys {
          try store.put(try Key(bytes: key), value)
          peer.put(key, value)
        }
      }
      let ourWork = {
        for key in order {
          let key = try Key(bytes: key)
          if reading { _ = try store.get(key) } else { try store.put(key, value) }
        }
      }
      let theirWork = { for key in order { if reading { _ = peer.get(key) } else { peer.put(key, value) } } }
      if round.isMultiple(of: 2) {
        ours.append(try microseconds(operations, ourWork))
        theirs.append(try microseconds(operations, theirWork))
      } else {
        theirs.append(try microseconds(operations, theirWork))
        ours.append(try microseconds(operations, ourWork))
      }
      try store.close()
      try? FileManager.default.removeItem(atPath: path)
    }
    report(workload, ours: median(ours), theirs: median(theirs))
  }

  private func microseconds(_ operations: Int, _ work: () throws -> Void) rethrows -> Double {
    let clock = ContinuousClock()
    let elapsed = try clock.measure(work)
    return (Double(elapsed.components.seconds) * 1e6 + Double(elapsed.components.attoseconds) / 1e12)
      / Double(operations)
  }

  private func median(_ values: [Double]) -> Double { values.sorted()[values.count / 2] }

  private func report(_ workload: String, ours: Double, theirs: Double) {
    func rounded(_ value: Double) -> Double { (value * 100).rounded() / 100 }
    FileHandle.standardError.write(
      Data(
        "\(workload): \(rounded(ours)) µs, SQLite \(rounded(theirs)) µs, ratio \(rounded(ours / theirs))\n"
          .utf8))
    print(
      "{\"workload\":\"\(workload)\",\"peer\":\"sqlite\",\"ours\":\(rounded(ours)),\"theirs\":\(rounded(theirs)),"
        + "\"unit\":\"us\",\"ratio\":\(rounded(ours / theirs))}")
  }
}

try Benchmark().run()
