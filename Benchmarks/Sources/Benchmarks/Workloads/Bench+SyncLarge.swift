import Foundation
import Replication
import SyncStore

/// Values of 20 KiB, and one of 1 GiB, that another copy has not, over TLS on this machine, durable on arrival.
extension Bench {
  private static let values = (count: 10_000, bytes: 20 << 10)
  private static let largeBytes = 1 << 30

  func synchronizationOfLargeValues() throws {
    for round in 0..<options.rounds {
      if round.isMultiple(of: 2) { try compareLargeValues() }
      let folders = try ["server", "client"].map { try folder($0, "sync-large") }
      defer { folders.forEach(remove) }
      let server = try SyncServer.Running(folders[0], 1)
      let token = server.token
      let store = try SyncServer.wait {
        try await Node.join(
          token, at: folders[1], name: "client", configuration: Configuration(mode: .shared)
        ).store
      }
      let node = try Node(store: store)
      for (workload, order) in [
        ("sync-values-20k", "values \(Self.values.count) \(Self.values.bytes)"),
        ("sync-value-1g", "value \(Self.largeBytes)"),
      ] {
        try server.tell(order)
        Machine.settle(touching: 2 << 30)
        let begin = Machine.now()
        _ = try SyncServer.wait { try await node.synchronize(with: "server", direction: .pull) }
        report.add(workload, SyncStorePeer.title, Double(Machine.now() - begin) / 1e6, "ms")
      }
      try expect(Int(store.reader(of: "large")?.size ?? 0), Self.largeBytes, "sync-value-1g")
      try SyncServer.wait { await node.stop() }
      try store.close()
      try server.end()
      if !round.isMultiple(of: 2) { try compareLargeValues() }
    }
  }

  private func compareLargeValues() throws {
    let redis = try folder(RedisReplica.title, "sync-large")
    defer { remove(redis) }
    let replica = RedisReplica(folder: redis, keys: Self.values.count, bytes: Self.values.bytes)
    if let time = try replica.fullSynchronization() {
      report.add("sync-values-20k", RedisReplica.title, time, "ms")
    } else {
      note("redis-server is not installed: nothing is compared with it")
    }
    let plain = try folder(PlainTLSStream.title, "sync-large")
    defer { remove(plain) }
    if let time = try PlainTLSStream.transfer(Self.largeBytes, in: plain) {
      report.add("sync-value-1g", PlainTLSStream.title, time, "ms")
    }
  }
}
