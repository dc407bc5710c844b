import SyncTestSupport
import Testing

@testable import SyncStore

/// Segment files that lost their end, or are too long: their intact records are served.
@Suite("A segment whose length differs from its header")
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
    "is served, listed and backed up if only zeros are missing, and repaired by a writer (G)",
    arguments: [false, true])
  func onlyZeros(writes: Bool) throws {
    for path in segments {
      let bytes = try #require(files[path])
      let used = (bytes.lastIndex { $0 != 0 } ?? 0) + 1
      // The zeros after the last segment's records show that none was lost.
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

  @Test("serves intact records, wherever a file is truncated, and reports no lost value as absent (G)")
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
            try? store.close()
          } catch {
            // A restored one is a copy whose correct end nothing tells.
            #expect(error.code == .damaged && error.message.contains("copied or restored"), "cut to \(size)")
            #expect(path == segments.last && mode == .exclusive, "\(path) cut to \(size): \(error)")
          }
          try restore()
        }
      }
    }
  }

  /// The last segment's file after its first `count` records.
  private func end(of count: Int) throws -> Int {
    let path = try #require(segments.last)
    let bytes = try #require(files[path])
    let file = try host.storage.open(path, .readOnly)
    guard case .whole(let header, _) = SegmentHeader.read(bytes) else { throw CancellationError() }
    let mapping = try file.map(bytes.count, writable: false)
    var reader = RecordIterator(mapping, salt: header.salt, limit: bytes.count)
    for _ in 0..<count where reader.next() == nil { break }
    return reader.offset
  }

  @Test(
    "is the last one, truncated within its records: intact ones are served, each lost value is an error (G)",
    arguments: [0, 1, 17], [false, true])
  func cutAtTheEnd(past: Int, isIndexed: Bool) throws {
    // The last but one of 38 records is that of a key, and the last one is mostly zeros.
    let sizes = [SegmentHeader.length] + (try [3, 8, 36].map { try end(of: $0) + past })
    for size in sizes {
      for mode in [.readOnly, .exclusive] as [Configuration.Mode] {
        // A separate store: a restored one counts as a copy, and its index is not trusted.
        let test = try Self()
        let path = try #require(test.segments.last)
        try test.host.storage.open(path, .readWrite).resize(to: size)
        if !isIndexed { try JournalIndexFiles.remove(test.host) }
        test.host.killProcesses()
        // Without the definitions at the segment's beginning the index does not help.
        try test.expectWhole(
          mode, "cut to \(size), \(mode)", isIndexed: isIndexed && size > SegmentHeader.length)
      }
    }
  }

  /// Opens the store twice after its last segment was cut: each value is unchanged or `.damaged`, with the
  /// index the latter only for lost records, and a writer continues as a new actor.
  private func expectWhole(_ mode: Configuration.Mode, _ what: String, isIndexed: Bool) throws {
    var configuration = Self.configuration
    configuration.mode = mode
    for round in 0..<2 {
      let store = try Store.open(on: host, configuration: configuration)
      let found = values.keys.filter { (try? store.get($0)?.bytes) == values[$0] }.count
      for (key, value) in values {
        do throws(StoreError) { #expect(try store.get(key)?.bytes == value, "\(what): \(key)") } catch {
          #expect(error.code == .damaged, "\(what): \(key): \(error)")
        }
      }
      // After `verify` has read the journal without the index, any older key may have lost its value.
      if isIndexed, round == 0 {
        #expect((1...60).contains(values.count - found), "\(what): \(found) are whole")
        #expect(try store.get("absent") == nil, "\(what)")
      }
      let report = try store.verify()
      #expect(!report.damage.isEmpty, "\(what)")
      if mode == .exclusive, round == 0 { #expect(report.mended.count == 1, "\(what): \(report)") }
      if mode == .exclusive {
        #expect(try store.replicaSummary().health == .recovering, "\(what)")
        if round == 0 { try store.put("new", [UInt8](repeating: 9, count: 30_000), durability: .full) }
        #expect(try store.get("new")?.bytes.count == 30_000, "\(what)")
      }
      try store.close()
      host.killProcesses()
    }
  }

  @Test(
    "is the last one, truncated, and the opening fails at any call: the next one finds the loss (G)",
    arguments: [false, true])
  func cutAndKilled(isIndexed: Bool) throws {
    var call = 0
    var isOver = false
    while !isOver {
      call = EachCall.after(call)
      let test = try Self()
      let file = try test.host.storage.open(try #require(test.segments.last), .readWrite)
      try file.resize(to: try end(of: 8) + 9)
      try file.sync()
      if !isIndexed { try JournalIndexFiles.remove(test.host) }
      test.host.storage.syncDirectories()
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      _ = try? Store.open(on: test.host, configuration: Self.configuration, failing: plan)
      isOver = plan.calls < call
      if call.isMultiple(of: 2) { test.host.losePower(seed: UInt64(call)) } else { test.host.killProcesses() }
      let again = try Store.open(on: test.host, configuration: Self.configuration)
      #expect(try again.replicaSummary().health == .recovering, "call \(call)")
      for (key, value) in test.values {
        do throws(StoreError) { #expect(try again.get(key)?.bytes == value, "call \(call): \(key)") } catch {
          #expect(error.code == .damaged, "call \(call): \(key): \(error)")
        }
      }
      try again.put("new", "x", durability: .full)
      test.host.losePower(seed: UInt64(call))
      let last = try Store.open(on: test.host, configuration: Self.configuration)
      #expect(try last.text("new") == "x", "call \(call)")
    }
    #expect(call > 20)
  }

  @Test("is the last one, and its index proves that no record was lost: it is extended and continued (G)")
  func provenIntact() throws {
    let path = try #require(segments.last)
    try host.storage.open(path, .readWrite).resize(to: try end(of: .max))
    let store = try Store.open(on: host, configuration: Self.configuration)
    try expectAll(of: store, "cut after the last record")
    #expect(try store.replicaSummary().health == .healthy && store.verify().isClean)
    try store.put("more", "x")
    try store.close()
    #expect(try Store.open(on: host, configuration: Self.configuration).text("more") == "x")
  }

  @Test("is the last one, truncated: a member that has the lost records sends them (G)")
  func cutAndRepaired() throws {
    for isIndexed in [true, false] {
      let test = try Self()
      var store = try Store.open(on: test.host, configuration: Self.configuration)
      let member = try Store.create(
        on: SimulatedHost(seed: 2, time: test.host.time, machine: "member"), id: store.id)
      try member.receive(from: store)
      try store.close()
      if !isIndexed { try JournalIndexFiles.remove(test.host) }
      try test.host.storage.open(try #require(test.segments.last), .readWrite).resize(to: try end(of: 2) + 9)
      store = try Store.open(on: test.host, configuration: Self.configuration)
      try store.receive(from: member)
      try test.expectAll(of: store, "after a session")
      #expect(try store.digest() == member.digest(), "indexed: \(isIndexed)")
      let report = try store.verify()
      #expect(report.isClean, "indexed: \(isIndexed), \(report)")
      try store.close()
    }
  }

  @Test("is served if its file is longer (G)", arguments: [1, 100, 4096, 70_000])
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
