import Foundation
import Replication
import SyncStore

/// Large values are evicted from one of two copies while a thread reads, and fetched again. Both copies are
/// in this process, over TLS.
extension Bench {
  private static let tierValues = 100_000

  func trimTier() throws {
    note("\(Self.tierValues) replicated values of 1 KiB are trimmed to half, then read again")
    for _ in 0..<options.rounds { try trimTierOnce() }
    report.add("tier-trim", "target", 50_000, "values/s")
    report.add("tier-trim-stall", "target", 5000, "us")
  }

  private func trimTierOnce() throws {
    let folders = try ["holder", "trimmer"].map { try folder($0, "tier") }
    defer { folders.forEach(remove) }
    Machine.settle()
    let configuration = Configuration(durability: .relaxed, blobThreshold: 512)
    let holder = try Store.create(at: folders[0], configuration: configuration)
    try Node.prepare(holder, name: "holder")
    let server = try Node(store: holder)
    _ = try SyncServer.wait { try await server.start(listen: Endpoint(host: "127.0.0.1", port: 0)) }
    let token = try Node.invite(to: holder)
    let store = try SyncServer.wait {
      try await Node.join(token, at: folders[1], name: "trimmer", configuration: configuration).store
    }
    let node = try Node(store: store)
    var value = [UInt8](repeating: 7, count: 1024)
    for number in 0..<Self.tierValues {
      value.number(number)
      try store.put(Key("\(number)"), value)
    }
    var start = Machine.now()
    _ = try SyncServer.wait { try await node.synchronize(with: "holder", direction: .both) }
    note("  the first copy: \(rate(Self.tierValues, since: start)) values/s")
    // The values it reads are the most recently used, and stay.
    let last = try (Self.tierValues - 5_000..<Self.tierValues).map { try Key("\($0)") }
    for key in last { _ = try store.get(key) }
    var limits = BlobLimits()
    limits.count = UInt64(Self.tierValues / 2)
    let wanted = limits
    let longest = try BlockedTime.longest {
      start = Machine.now()
      let trimmed = try SyncServer.wait { try await node.trimBlobs(to: wanted) }
      let seconds = Double(Machine.now() - start) / 1e9
      try expect(trimmed.evicted, Self.tierValues / 2, "trim")
      report.add("tier-trim", SyncStorePeer.title, Double(trimmed.evicted) / seconds, "values/s")
    } of: { turn in
      _ = try? store.withValue(last[turn % last.count]) { $0.byteCount }
    }
    report.add("tier-trim-stall", SyncStorePeer.title, longest, "us")
    let fetched = 1000
    start = Machine.now()
    for number in 0..<fetched { _ = try store.get(Key("\(number)")) }
    note("  fetched when read, one after the other: \(rate(fetched, since: start)) values/s")
    try SyncServer.wait {
      await node.stop()
      await server.stop()
    }
    try store.close()
    try holder.close()
  }
  private func rate(_ count: Int, since start: UInt64) -> Int {
    Int(Double(count) / (Double(Machine.now() - start) / 1e9))
  }
}
