import SyncTestSupport
import Testing

@testable import SyncStore

/// Files of segments that lost their end, or have more than they should: what is whole in them is served.
@Suite("A segment of another length than its header says")
struct ShortSegmentTests {
  private static let configuration = Configuration(durability: .relaxed, segmentBytes: 64 << 10)
  private let host: SimulatedHost
  private let values: [Key: [UInt8]]
  private let files: [String: [UInt8]]

  /// Three segments or more, closed cleanly or killed.
  init() throws {
    host = SimulatedHost(compacting: .onRequest)
    let store = try Store.create(on: host, configuration: Self.configuration)
    var values: [Key: [UInt8]] = [:]
    for number in 0..<150 {
      let key = try Key("key \(number)")
      values[key] = [UInt8](repeating: UInt8(number), count: 1000)
      try store.put(key, values[key] ?? [])
    }
    try store.put("end", "x", durability: .full)
    values["end"] = Array("x".utf8)
    try store.close()
    host.killProcesses()
    (self.values, files) = (values, try host.storage.files(below: "/store"))
  }

  private var segments: [String] { files.keys.filter { $0.hasSuffix(".segment") }.sorted() }

  private func restore() throws {
    host.killProcesses()
    for path in try host.storage.files(below: "/store").keys where files[path] == nil {
      _ = try host.storage.remove(path)
    }
    try host.storage.restore(files)
    host.storage.syncDirectories()
  }

  private func expectAll(of store: Store, _ what: String) throws {
    for (key, value) in values { #expect(try store.get(key)?.bytes == value, "\(what): \(key)") }
    var count = 0
    _ = try store.scanEntries { (_: Entry) -> ScanStep in
      count += 1
      return .next
    }
    #expect(count == values.count, "\(what)")
  }

  @Test(
    "is served, listed and backed up if only zeros are missing, and mended by who writes (G)",
    arguments: [false, true])
  func onlyZeros(writes: Bool) throws {
    for path in segments {
      let bytes = try #require(files[path])
      let used = (bytes.lastIndex { $0 != 0 } ?? 0) + 1
      // Of the last segment the zeros after its records are what shows that none was lost.
      let least = path == segments.last ? used + 64 : used
      for size in Set([bytes.count - 1, bytes.count - 7, bytes.count - 4096, (used + bytes.count) / 2, least])
      where size >= least && size < bytes.count {
        try host.storage.open(path, .readWrite).resize(to: size)
        host.killProcesses()
        var configuration = Self.configuration
        configuration.mode = writes ? .exclusive : .readOnly
        let store = try Store.open(on: host, configuration: configuration)
        let what = "\(path) cut to \(size)"
        try expectAll(of: store, what)
        let report = try store.verify()
        if writes {
          #expect(report.isClean && report.mended.count == 1, "\(what): \(report)")
          #expect(try host.storage.status(path)?.size == bytes.count, "\(what)")
          _ = try store.backUp(to: "/backup")
          try store.put("more", [UInt8](repeating: 1, count: 15_000))
          try store.compact()
          #expect(try store.get("more")?.bytes.count == 15_000 && store.verify().isClean)
        } else {
          #expect(report.damage.count == 1 && report.damage[0].contains("shorter"), "\(what): \(report)")
          #expect(try host.storage.status(path)?.size == size, "\(what)")
        }
        _ = try host.storage.remove("/backup")
        try restore()
      }
    }
  }

  @Test("serves what is whole, wherever a file is cut, and gives no lost value as absent (G)")
  func anyLength() throws {
    for path in segments {
      var random = SplitMix64(seed: UInt64(path.utf8.count))
      let sizes =
        [128, 129, 2048, 4095, 4096, 4097] + (0..<6).map { _ in 4096 + Int(random.next() % 60_000) }
      for size in sizes {
        for mode in [.readOnly, .exclusive] as [Configuration.Mode] {
          try host.storage.open(path, .readWrite).resize(to: size)
          host.killProcesses()
          var configuration = Self.configuration
          configuration.mode = mode
          do throws(StoreError) {
            let store = try Store.open(on: host, configuration: configuration)
            for (key, value) in values {
              do throws(StoreError) {
                let found = try store.get(key)?.bytes
                #expect(found == value, "\(path) cut to \(size): \(key)")
              } catch { #expect(error.code == .damaged, "\(path) cut to \(size): \(key): \(error)") }
            }
          } catch {
            // Nothing tells where the last segment's records end: a cut within them is refused.
            #expect(error.code == .damaged && path == segments.last, "\(path) cut to \(size): \(error)")
          }
          try restore()
        }
      }
    }
  }

  @Test("is served if its file is longer than that (G)", arguments: [1, 100, 4096, 70_000])
  func longer(by bytes: Int) throws {
    for path in segments {
      let size = try #require(files[path]).count
      try host.storage.open(path, .readWrite).write([UInt8](repeating: 0xA5, count: bytes), at: size)
      host.killProcesses()
      let store = try Store.open(on: host, configuration: Self.configuration)
      try expectAll(of: store, path)
      #expect(try store.verify().isClean)
      try restore()
    }
  }
}
