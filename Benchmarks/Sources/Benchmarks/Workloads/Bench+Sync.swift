import Foundation
import Replication
import SyncStore

/// Two copies in separate processes, over TLS on this machine, durable on arrival.
extension Bench {
  private static let liveWrites = 500

  func synchronization() throws {
    for _ in 0..<options.rounds {
      try synchronizationOnce()
      let folder = try folder(RedisReplica.title, "sync")
      defer { remove(folder) }
      if let time = try RedisReplica(folder: folder, keys: options.keys).fullSynchronization() {
        report.add("sync-first-copy", RedisReplica.title, time, "ms")
      } else {
        note("redis-server is not installed: nothing is compared with it")
      }
    }
    let targets: KeyValuePairs<String, Double> = [
      "sync-nothing-changed": 5.0, "sync-nothing-changed-bytes": 2048, "sync-nothing-changed-round-trips": 2,
      "sync-1000-changed": 30, "sync-1000-changed-bytes": 90 * 1024, "sync-live-durable-median": 0.8,
      "sync-live-durable-p99": 2,
    ]
    for (workload, target) in targets { report.add(workload, "target", target, "") }
  }

  private func synchronizationOnce() throws {
    let folders = try ["server", "client"].map { try folder($0, "sync") }
    defer { folders.forEach(remove) }
    let server = try SyncServer.Running(folders[0], options.keys)
    let token = server.token
    let store = try SyncServer.wait {
      try await Node.join(token, at: folders[1], name: "client", configuration: Configuration(mode: .shared))
        .store
    }
    let node = try Node(store: store)
    try Machine.settle(touching: RedisReplica.memory, in: folders[1])
    func sync(_ direction: SyncDirection) throws -> (SessionReport, Double) {
      let begin = Machine.now()
      let report = try SyncServer.wait { try await node.synchronize(with: "server", direction: direction) }
      return (report, Double(Machine.now() - begin) / 1e6)
    }
    let (first, firstTime) = try sync(.pull)
    try expect(first.receivedRecords >= options.keys ? 1 : 0, 1, "first copy")
    report.add("sync-first-copy", SyncStorePeer.title, firstTime, "ms")
    report.add("sync-first-copy-bytes", SyncStorePeer.title, Double(first.receivedBytes), "bytes")
    _ = try sync(.both)
    for _ in 0..<5 {
      let (same, time) = try sync(.both)
      report.add("sync-nothing-changed", SyncStorePeer.title, time, "ms")
      report.add(
        "sync-nothing-changed-bytes", SyncStorePeer.title, Double(same.sentBytes + same.receivedBytes),
        "bytes")
      report.add("sync-nothing-changed-round-trips", SyncStorePeer.title, Double(same.roundTrips), "")
    }
    for _ in 0..<5 {
      try server.tell("change 1000")
      let (changed, time) = try sync(.pull)
      report.add("sync-1000-changed", SyncStorePeer.title, time, "ms")
      report.add(
        "sync-1000-changed-bytes", SyncStorePeer.title, Double(changed.sentBytes + changed.receivedBytes),
        "bytes")
    }
    try live(node, store, folders[0])
    try SyncServer.wait { await node.stop() }
    try store.close()
    try server.end()
  }

  /// One write at a time: latency until another process can read it from the peer's copy, and until the
  /// peer's acknowledgement of durability arrives here.
  private func live(_ node: Node, _ store: Store, _ folder: String) throws {
    node.keepInStep()
    try SyncServer.wait { for await state in node.states(of: "server") where state.phase == .live { break } }
    let there = try Store.open(at: folder, configuration: Configuration(mode: .shared))
    var readable: [Double] = []
    for number in 0..<Self.liveWrites {
      let (key, value) = (try SyncServer.key(number * 7), SyncServer.value(number, 77))
      let begin = Machine.now()
      try store.put(key, value, durability: .full)
      while try there.get(key)?.bytes != value { usleep(10) }
      readable.append(Double(Machine.now() - begin) / 1e6)
      usleep(500)
    }
    try there.close()
    note(readable, "sync-live-readable")
    var durable: [Double] = []
    for number in 0..<Self.liveWrites {
      let value = SyncServer.value(number, 78)
      let key = try SyncServer.key(number * 7)
      let before = node.state["server"]?.received ?? 0
      let begin = Machine.now()
      try store.put(key, value, durability: .full)
      while node.state["server"]?.received ?? 0 <= before { usleep(10) }
      durable.append(Double(Machine.now() - begin) / 1e6)
      usleep(500)
    }
    note(durable, "sync-live-durable")
  }

  private func note(_ times: [Double], _ workload: String) {
    let sorted = times.sorted()
    report.add(workload + "-median", SyncStorePeer.title, sorted[sorted.count / 2], "ms")
    report.add(workload + "-p99", SyncStorePeer.title, sorted[sorted.count * 99 / 100], "ms")
  }
}
