import Foundation
import Replication
import SyncStore

/// Values of 20 KiB, and one of 1 GiB, sent to a copy without them, over TLS on this machine, durable on
/// arrival; then the large one again, with a few changes.
extension Bench {
  private static let values = (count: 10_000, bytes: 20 << 10)
  private static let largeBytes = 1 << 30
  private static let edited = "sync-value-1g-edited"

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
        ("sync-value-1g", "value \(Self.largeBytes)"), (Self.edited, "edit \(Self.largeBytes)"),
      ] {
        try server.tell(order)
        try Machine.settle(touching: 2 << 30, in: options.data)
        let begin = Machine.now()
        let done = try SyncServer.wait { try await node.synchronize(with: "server", direction: .pull) }
        report.add(workload, SyncStorePeer.title, Double(Machine.now() - begin) / 1e6, "ms")
        guard workload == Self.edited else { continue }
        report.add(
          Self.edited + "-bytes", SyncStorePeer.title, Double(done.sentBytes + done.receivedBytes) / 1e6, "MB"
        )
        report.add(Self.edited + "-bytes", "target", 2.5 * Double(1 << 20) / 1e6, "MB")
      }
      try expect(Int(store.reader(of: "large")?.size ?? 0), Self.largeBytes + (1 << 10), Self.edited)
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
    try Machine.settle(touching: 2 << 30, in: options.data)
    if let time = try PlainTLSStream.transfer(Self.largeBytes, in: plain) {
      report.add("sync-value-1g", PlainTLSStream.title, time, "ms")
    }
    let files = try folder(Rsync.title, "sync-large")
    defer { remove(files) }
    try Machine.settle(touching: 2 << 30, in: options.data)
    if let done = try Rsync.update(Self.largeBytes, in: files) {
      report.add(Self.edited, Rsync.title, done.milliseconds, "ms")
      report.add(Self.edited + "-bytes", Rsync.title, Double(done.bytes) / 1e6, "MB")
    } else {
      note("rsync is not installed: nothing is compared with it")
    }
  }
}
