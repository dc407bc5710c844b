import Foundation
import SyncStore

/// Costs of a store besides reads and writes: opening, stalls, memory and disk.
extension Bench {
  /// Opens a store of that many keys after a close, and after its process was killed. The first get is
  /// included, so that work cannot be deferred. The files are in the page cache.
  func open(_ count: Int, suffix: String) throws {
    for contestant in contestants {
      note("opening \(contestant.title) with \(count / contestant.type.share) keys")
      let path = try folder(contestant.title, "open")
      defer { remove(path) }
      let (title, keys) = (contestant.title, count / contestant.type.share)
      let isOurs = title == SyncStorePeer.title
      func time(_ workload: String) throws -> Double {
        let start = Machine.now()
        let peer = try contestant.type.init(at: path, PeerSettings(capacity: keys))
        try peer.firstGet(keys / 2)
        let time = Double(Machine.now() - start)
        try peer.close()
        report.add(workload + suffix, title, time / 1000, "us")
        return time
      }
      for round in 0..<max(options.rounds, 3) {
        let child = try Child.Running(title, round == 0 ? .load : .touch, path, keys)
        try child.waitUntilReady()
        child.kill()
        _ = try time("open-after-kill")
        _ = try time("open-after-close")
        guard isOurs else { continue }
        // As after a power loss: the index is not trusted, so it is rebuilt from the journal.
        removeIndex(path)
        let start = Machine.now()
        let peer = try contestant.type.init(at: path, PeerSettings(capacity: keys))
        try peer.firstGet(keys / 2)
        report.add(
          "open-rebuild\(suffix)", title, Double(keys) * 1e9 / Double(Machine.now() - start), "records/s")
        try peer.close()
      }
      guard isOurs else { continue }
      report.add("open-after-kill\(suffix)", "target", 1000, "us")
      report.add("open-after-close\(suffix)", "target", 1000, "us")
      report.add("open-rebuild\(suffix)", "target", 3_000_000, "records/s")
    }
  }

  private func removeIndex(_ path: String) {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
    for name in names where name.hasPrefix(Self.indexName) { remove("\(path)/\(name)") }
  }

  private static let indexName = "index"

  /// Times each put while a store grows to that many keys, and while all of them are then overwritten.
  func putLatency(_ count: Int, suffix: String) throws {
    for contestant in contestants where contestant.type.share == 1 {
      note("single puts of \(contestant.title), \(count) keys")
      let path = try folder(contestant.title, "latency")
      defer { remove(path) }
      Machine.settle()
      let peer = try contestant.type.init(at: path, PeerSettings(capacity: count))
      var histogram = Histogram()
      try peer.load(0..<count, timedBy: &histogram)
      try peer.load(0..<count, timedBy: &histogram)
      try peer.close()
      for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        report.add(
          "put-latency-\(name)\(suffix)", contestant.title, histogram.percentile(share) / 1000, "us")
      }
      report.add("put-latency-max\(suffix)", contestant.title, Double(histogram.maximum) / 1000, "us")
    }
    report.add("put-latency-p99.9\(suffix)", "target", 10, "us")
    report.add("put-latency-max\(suffix)", "target", 10_000, "us")
  }

  /// Anonymous memory of a process that holds no keys itself; disk use beyond keys and values.
  func sizes() throws {
    for contestant in contestants {
      note("memory of \(contestant.title)")
      let path = try folder(contestant.title, "memory")
      defer {
        remove(path)
        remove(path + "-warm")
      }
      let keys = contestant.corpus.count
      let child = try Child.Running(contestant.title, .memory, path, keys)
      let numbers = try child.numbers()
      guard numbers.count == 2 else { throw BenchmarkError("the child process said nothing of its memory") }
      report.add("memory", contestant.title, Double(numbers[0]) / Double(keys), "bytes/key")
      report.add("memory-with-view", contestant.title, Double(numbers[1]) / Double(keys), "bytes/key")
      if contestant.title == SyncStorePeer.title {
        let index = Machine.diskBytes(of: path) { $0.hasPrefix(Self.indexName) }
        if index > 0 {
          report.add("index-size", contestant.title, Double(index) / Double(keys), "bytes/key")
          report.add("index-size", "target", 36, "bytes/key")
        } else {
          note("index-size: this store keeps no index on disk: what it has is counted as memory")
        }
      }
    }
    report.add("memory", "target", 40, "bytes/key")
    report.add("memory-with-view", "target", 40, "bytes/key")
    let overhead = try bytesPerRecord() - Double(Payload.recordBytes)
    report.add("journal-overhead", SyncStorePeer.title, overhead, "bytes")
    report.add("journal-overhead", "target", 48, "bytes")
  }

  /// Journal bytes per record, including key and value: file lengths of a store with small segments, so that
  /// the empty end of the last one matters little.
  func bytesPerRecord() throws -> Double {
    if let known = knownBytesPerRecord { return known }
    let path = try folder(SyncStorePeer.title, "overhead")
    defer { remove(path) }
    let peer = try SyncStorePeer(at: path, PeerSettings(capacity: options.keys, segmentBytes: 1 << 20))
    try peer.load(0..<options.keys, .scattered, each: 1)
    try peer.close()
    let bytes = Machine.diskBytes(of: path, apparent: true) {
      $0.hasPrefix("journal/") && $0.hasSuffix(".segment")
    }
    let result = Double(bytes) / Double(options.keys)
    knownBytesPerRecord = result
    return result
  }
}
