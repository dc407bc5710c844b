import Foundation
import SyncStore
import Synchronization

/// Workloads on a store of all keys: filled once per round, then read, then overwritten.
extension Bench {
  private static let onFilled = [
    "put", "get", "get-in-place", "miss", "get-2-threads", "scan", "overwrite",
  ]

  /// The workloads of one round that need a filled store.
  func fillAndRead(_ order: [Contestant]) throws {
    guard Self.onFilled.contains(where: options.wants) else { return }
    var open: [(contestant: Contestant, peer: any KeyValuePeer, folder: String)] = []
    for contestant in order {
      let path = try folder(contestant.title, "fill")
      Machine.settle()
      let peer = try contestant.type.init(at: path, PeerSettings(capacity: options.keys))
      let time = try peer.fill(contestant.corpus)
      if options.wants("put") { report.add("put", contestant.title, time, "ns") }
      open.append((contestant, peer, path))
    }
    for (_, peer, _) in open { try peer.sync() }
    Machine.settle()
    func each(_ workload: String, _ work: (Contestant, any KeyValuePeer) throws -> Double?) throws {
      guard options.wants(workload) else { return }
      for (contestant, peer, _) in open {
        if let time = try work(contestant, peer) { report.add(workload, contestant.title, time, "ns") }
      }
    }
    try each("get") { try $1.copyAll($0.corpus) }
    try each("get-in-place") { try $1.touchAll($0.corpus) }
    try each("miss") { try $1.missAll($0.corpus) }
    try each("scan") { contestant, peer in
      // The first scan warms caches, and builds the store's sorted key index.
      let first = try peer.scanAll(contestant.corpus.count)
      let second = try peer.scanAll(contestant.corpus.count)
      if peer is SyncStorePeer { addBuilding("scan-build", first: first, second: second) }
      return second
    }
    if options.wants("get-2-threads") {
      for (contestant, peer, _) in open { try getOnThreads(contestant, peer) }
    }
    if options.wants("overwrite") {
      for (contestant, peer, path) in open { try overwrite(contestant, peer, path) }
    }
    for (_, peer, path) in open {
      try peer.close()
      remove(path)
    }
  }

  private func getOnThreads(_ contestant: Contestant, _ peer: any KeyValuePeer) throws {
    let (workload, rate) = ("get-2-threads", 10_000)
    let corpus = contestant.corpus
    func gets(threads: Int, putsPerSecond: Int) throws -> Double {
      try peer.copyAll(corpus, threads: threads, putsPerSecond: putsPerSecond)
    }
    report.add(workload, contestant.title, try gets(threads: 2, putsPerSecond: 0), "gets/s")
    guard peer is SyncStorePeer else { return }
    let single = try gets(threads: 1, putsPerSecond: 0)
    report.add(workload, "self", single, "gets/s")
    report.add("\(workload)-writer", contestant.title, try gets(threads: 2, putsPerSecond: rate), "gets/s")
    report.add("\(workload)-writer", "self", single, "gets/s")
  }

  /// Overwrites all keys twice while recording peak disk use.
  private func overwrite(_ contestant: Contestant, _ peer: any KeyValuePeer, _ path: String) throws {
    Machine.settle()
    let watch = DiskWatch(path)
    let time = try peer.overwrite(contestant.corpus)
    let most = watch.end()
    let count = contestant.corpus.count
    report.add("overwrite", contestant.title, time, "ns")
    report.add(
      "overwrite-disk", contestant.title, Double(most) / Double(count * Payload.recordBytes), "disk/live")
    guard peer is SyncStorePeer else { return }
    let segment = Double(Configuration().segmentBytes)
    let bound = 2 * Double(count) * (try bytesPerRecord()) + 3 * segment
    report.add("overwrite-disk-bound", contestant.title, Double(most) / 1e6, "MB")
    report.add("overwrite-disk-bound", "target", bound / 1e6, "MB")
  }

  /// Records the cost of building the sorted key index: how much longer the first scan takes than the second.
  private func addBuilding(_ workload: String, first: Double, second: Double) {
    report.add(workload, SyncStorePeer.title, max(first - second, 0), "ns/key")
    report.add(workload, "target", 200, "ns/key")
  }

  /// The sorted key index with keys that differ only in their last bytes.
  func buildViewOfSharedPrefixes() throws {
    for _ in 0..<options.rounds {
      let path = try folder(SyncStorePeer.title, "view")
      defer { remove(path) }
      let peer = try SyncStorePeer(at: path, PeerSettings(capacity: options.keys))
      try peer.load(0..<options.keys, .sharedPrefix, each: 1000)
      let first = try peer.scanAll(options.keys)
      addBuilding("scan-build-shared-prefix", first: first, second: try peer.scanAll(options.keys))
      try peer.close()
    }
  }

  /// Fills an empty store in transactions of 1000 puts; the time is per record.
  func transactions(_ order: [Contestant]) throws {
    for contestant in order {
      let path = try folder(contestant.title, "transaction")
      defer { remove(path) }
      Machine.settle()
      let peer = try contestant.type.init(at: path, PeerSettings(capacity: options.keys))
      report.add(
        "transaction", contestant.title, try peer.transactions(contestant.corpus, each: 1000), "ns/record")
      try peer.close()
    }
  }
}

/// Samples the disk use of a folder, on a thread that mostly sleeps.
private final class DiskWatch: Sendable {
  private let folder: String
  private let most = Mutex(0)
  private let isOver = Atomic(false)
  private let ended = DispatchSemaphore(value: 0)

  init(_ folder: String) {
    self.folder = folder
    Thread { [self] in
      while !isOver.load(ordering: .acquiring) {
        look()
        usleep(50_000)
      }
      ended.signal()
    }.start()
  }

  /// The maximum seen, including now.
  func end() -> Int {
    isOver.store(true, ordering: .releasing)
    ended.wait()
    look()
    return most.withLock { $0 }
  }

  private func look() {
    let bytes = Machine.diskBytes(of: folder)
    most.withLock { $0 = max($0, bytes) }
  }
}
