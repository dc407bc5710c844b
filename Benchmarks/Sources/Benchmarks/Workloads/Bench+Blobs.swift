import Foundation
import SyncStore

/// Large values: put once, put again, read in place; and a cache that is trimmed. All relaxed, in one
/// process.
extension Bench {
  func blobs() throws {
    for (suffix, size, count) in [("20k", 20 << 10, 10_000), ("1m", 1 << 20, 1_000)] {
      note("\(count) values of \(size) bytes")
      for round in 0..<options.rounds { try blobs(suffix, size, count, round) }
    }
  }

  private func blobs(_ suffix: String, _ size: Int, _ count: Int, _ round: Int) throws {
    var value = [UInt8](repeating: 7, count: size)
    let peers = contestants.dropFirst().filter { ["lmdb", "sqlite"].contains($0.title) }
    // Start with a different one each round: the first pays for memory that was not used lately.
    let turns = peers.count + 3
    for turn in 0..<turns {
      switch (turn + round) % turns {
      case 0: try hash(suffix, &value, count)
      case 1: try ours(suffix, &value, count)
      case 2: try plainFiles(suffix, &value, count)
      case let other: try put(suffix, &value, count, into: peers[other - 3])
      }
    }
  }

  private func hash(_ suffix: String, _ value: inout [UInt8], _ count: Int) throws {
    let hasher = PlainHash()
    let time = try Machine.nanoseconds(each: count) {
      for index in 0..<count {
        value.number(index)
        Machine.keep(Int(try hasher.hash(value)[0]))
      }
    }
    for workload in ["blob-put", "blob-put-again"] {
      report.add("\(workload)-\(suffix)", "sha256", time / 1000, "us")
    }
  }

  private func put(_ suffix: String, _ value: inout [UInt8], _ count: Int, into peer: Contestant) throws {
    let path = try folder(peer.title, "blobs")
    defer { remove(path) }
    try Machine.settle(touching: 2 * count * value.count, in: options.data)
    let store = try peer.type.init(at: path, PeerSettings(capacity: 4 << 20))
    let time = try Machine.nanoseconds(each: count) {
      for index in 0..<count {
        value.number(index)
        try store.put(blob: index, value)
      }
    }
    report.add("blob-put-\(suffix)", peer.title, time / 1000, "us")
    try store.close()
  }

  private func ours(_ suffix: String, _ value: inout [UInt8], _ count: Int) throws {
    let path = try folder(SyncStorePeer.title, "blobs")
    defer { remove(path) }
    try Machine.settle(touching: 2 * count * value.count, in: options.data)
    let store = try Store.create(at: path, configuration: Configuration(durability: .relaxed))
    let (keys, others) = try (
      (0..<count).map { try Key("blob \($0)") }, (0..<count).map { try Key("other \($0)") }
    )
    for (workload, names) in [("blob-put", keys), ("blob-put-again", others)] {
      let time = try Machine.nanoseconds(each: count) {
        for index in 0..<count {
          value.number(index)
          try store.put(names[index], value)
        }
      }
      report.add("\(workload)-\(suffix)", SyncStorePeer.title, time / 1000, "us")
    }
    var sum = 0
    let mapped = try Machine.nanoseconds(each: count) {
      for key in keys {
        sum &+= try store.reader(of: key)?.withUnverifiedBytes { $0.pageSum } ?? 0
      }
    }
    Machine.keep(sum)
    report.add("blob-get-\(suffix)", SyncStorePeer.title, mapped / 1000, "us")
    sum = 0
    let verified = try Machine.nanoseconds(each: count) {
      for key in keys { sum &+= try store.withValue(key) { $0.byteCount } ?? 0 }
    }
    try expect(sum, count * value.count, "blob-get")
    report.add("blob-get-verified-\(suffix)", SyncStorePeer.title, verified / 1000, "us")
    try store.close()
  }

  private func plainFiles(_ suffix: String, _ value: inout [UInt8], _ count: Int) throws {
    let path = try folder("file", "blobs")
    defer { remove(path) }
    try Machine.settle(touching: 2 * count * value.count, in: options.data)
    let files = try PlainFiles(at: path)
    var paths: [String] = []
    let putting = try Machine.nanoseconds(each: count) {
      for index in 0..<count {
        value.number(index)
        paths.append(try files.put(value))
      }
    }
    report.add("blob-put-\(suffix)", "file", putting / 1000, "us")
    let getting = try Machine.nanoseconds(each: count) {
      for path in paths { try PlainFiles.read(path, &value) }
    }
    for workload in ["blob-get", "blob-get-verified"] {
      report.add("\(workload)-\(suffix)", "file", getting / 1000, "us")
    }
  }

  /// A cache of 100,000 values evicts half of them while a thread reads.
  func trimCache() throws {
    note("a cache of 100,000 values is trimmed to half")
    for _ in 0..<options.rounds {
      let path = try folder(SyncStorePeer.title, "cache")
      defer { remove(path) }
      let cache = try DiskCache.open(at: path)
      let value = [UInt8](repeating: 7, count: 4096)
      for index in 0..<100_000 { try cache.set("\(index)", value) }
      let longest = try BlockedTime.longest {
        let start = Machine.now()
        let removed = try cache.trim(toCount: 50_000)
        let seconds = Double(Machine.now() - start) / 1e9
        try expect(removed, 50_000, "trim")
        report.add("cache-trim", SyncStorePeer.title, Double(removed) / seconds, "values/s")
      } of: { turn in
        // The recently used ones stay.
        _ = try? cache.withValue("\(99_999 - turn % 10_000)") { $0.byteCount }
      }
      report.add("cache-trim-stall", SyncStorePeer.title, longest, "us")
      cache.close()
    }
    report.add("cache-trim", "target", 50_000, "values/s")
    report.add("cache-trim-stall", "target", 5000, "us")
  }
}

extension KeyValuePeer {
  /// Puts one large value.
  func put(blob index: Int, _ value: [UInt8]) throws {
    try put(try Self.name(KeyPattern.scattered.key(index)), value)
  }
}
