import Foundation

/// Puts that are on disk when they return.
extension Bench {
  private static let puts = 400
  private static let writers = 16

  /// One writer, then 16 concurrently. The raw mapped file runs right before or right after the store.
  func durablePuts(_ order: [Contestant], oursFirst: Bool) throws {
    for contestant in order {
      let isOurs = contestant.title == SyncStorePeer.title
      if isOurs, !oursFirst { try durablePutsRaw() }
      let path = try folder(contestant.title, "durable")
      defer { remove(path) }
      let peer = try contestant.type.init(at: path, PeerSettings(isDurable: true, capacity: options.keys))
      Machine.settle()
      let single = try peer.putAll(contestant.corpus, threads: 1, each: Self.puts)
      report.add("durable-put", contestant.title, 1e9 / single, "ns")
      if contestant.type.takesManyWriters {
        let many = try peer.putAll(contestant.corpus, threads: Self.writers, each: Self.puts / 4)
        report.add("durable-put-16", contestant.title, many, "puts/s")
        if isOurs { report.add("durable-put-16", "self", single, "puts/s") }
      }
      try peer.close()
      if isOurs, oursFirst { try durablePutsRaw() }
    }
  }

  private func durablePutsRaw() throws {
    let path = try folder(RawMappedFile.title, "durable")
    defer { remove(path) }
    let file = try RawMappedFile(at: path, records: Self.puts)
    Machine.settle()
    let key = KeyPattern.scattered.key(0)
    let time = try Machine.nanoseconds(each: Self.puts) {
      for _ in 0..<Self.puts { try file.append(key, Payload.first) }
    }
    report.add("durable-put", RawMappedFile.title, time, "ns")
  }
}
