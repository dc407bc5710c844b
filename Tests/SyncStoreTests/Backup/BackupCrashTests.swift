import SyncTestSupport
import Testing

@testable import SyncStore

/// A backup or restore that is killed, loses power, meets a failing disk or damaged bytes leaves the old
/// state or the new one.
@Suite("A backup that is interrupted")
struct BackupCrashTests {
  static let file = BackupTests.file

  /// Keys of a store after opening; nil if it does not exist.
  static func keys(_ host: SimulatedHost, _ path: String) throws -> Int? {
    do throws(StoreError) {
      let store = try Store.open(path, on: host)
      let report = try store.verify()
      #expect(report.isClean, "\(report.damage)")
      let keys = try store.status().keys
      try store.close()
      return keys
    } catch {
      #expect(error.code == .notAStore, "\(error)")
      return nil
    }
  }

  /// A machine with a store of 10 keys, backed up once, and 5 more keys since.
  static func filled(seed: UInt64, sealed: Bool, backedUp: Bool) throws -> SimulatedHost {
    let host = SimulatedHost(seed: seed, encrypted: sealed)
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 2000))
    for number in 0..<10 {
      try store.put(Key("\(number)"), [UInt8](repeating: UInt8(number), count: 400 * number))
    }
    if backedUp { _ = try store.backUp(to: file) }
    for number in 10..<15 {
      try store.put(Key("\(number)"), [UInt8](repeating: 1, count: 600 * (number - 9)))
    }
    try store.close()
    return host
  }

  @Test(
    "a backup with a failing call, then a loss of power, leave the old file or the new one (F5)",
    arguments: [false, true])
  func failing(backedUp: Bool) throws {
    var call = 1
    var outcomes: Set<Int> = []
    while true {
      let host = try Self.filled(seed: UInt64(call), sealed: call % 2 == 1, backedUp: backedUp)
      let plan = FaultPlan()
      let store = try Store.open(
        at: "/store", configuration: host.configured(Configuration(blobThreshold: 2000)),
        environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
      let before = plan.calls
      plan.fail(number: call, forever: true)
      let report = try? store.backUp(to: Self.file)
      let isDone = plan.calls - before < call
      host.losePower(seed: UInt64(call))
      if try host.storage.status(Self.file) != nil {
        let summary = try Store.backupSummary(of: Self.file, host.storage)
        if report != nil { #expect(!summary.isUnfinished) }
        _ = try Store.restore(
          from: Self.file, to: "/restored", state: summary.states.count, replacing: false,
          environment: host.environment)
        let keys = try #require(try Self.keys(host, "/restored"))
        #expect(keys == 15 || backedUp && keys == 10 && report == nil, "call \(call): \(keys)")
        outcomes.insert(keys)
      } else {
        #expect(!backedUp && report == nil, "call \(call)")
        outcomes.insert(0)
      }
      // Whatever it left, the next one succeeds, and loses nothing that was there.
      let again = try Store.open("/store", on: host, configuration: Configuration(blobThreshold: 2000))
      try again.put("more", "x")
      #expect(try again.backUp(to: Self.file).position == again.status().position, "call \(call)")
      _ = try Store.restore(
        from: Self.file, to: "/second", state: nil, replacing: false, environment: host.environment)
      #expect(try Self.keys(host, "/second") == 16, "call \(call)")
      try again.close()
      if isDone { break }
      call = EachCall.after(call)
    }
    #expect(call > 20)
    #expect(outcomes == (backedUp ? [10, 15] : [0, 15]))
  }

  @Test(
    "a restore with a failing call, then a loss of power, leave the old state or the restored store (F5)",
    arguments: [false, true])
  func restoring(replacing: Bool) throws {
    var call = 1
    var outcomes: Set<Int?> = []
    while true {
      let host = try Self.filled(seed: UInt64(call), sealed: call % 2 == 1, backedUp: true)
      let path = replacing ? "/store" : "/restored"
      let plan = FaultPlan()
      plan.fail(number: call, forever: true)
      let report = try? Store.restore(
        from: Self.file, to: path, state: nil, replacing: replacing,
        environment: host.environment(over: FaultingStorage(host.storage, plan: plan)))
      let isDone = plan.calls < call
      host.losePower(seed: UInt64(call))
      let keys = try Self.keys(host, path)
      #expect(keys == 10 || report == nil && keys == (replacing ? 15 : nil), "call \(call): \(keys as Any)")
      outcomes.insert(keys)
      // Its leftovers neither block anything, nor can they be opened.
      if keys != 10 {
        _ = try Store.restore(
          from: Self.file, to: path, state: nil, replacing: replacing, environment: host.environment)
        #expect(try Self.keys(host, path) == 10, "call \(call)")
        #expect(try host.storage.status(path + ".restoring") == nil)
      }
      if isDone { break }
      call = EachCall.after(call)
    }
    #expect(call > 20)
    #expect(outcomes == [10, replacing ? 15 : nil])
  }

  @Test("a backup changed in any byte is refused, and nothing is created from it (F17, F37)")
  func damaged() throws {
    let host = try Self.filled(seed: 3, sealed: false, backedUp: true)
    let store = try Store.open("/store", on: host, configuration: Configuration(blobThreshold: 2000))
    _ = try store.backUp(to: Self.file)
    try store.close()
    let file = try host.storage.open(Self.file, .readOnly)
    let size = try file.status().size
    let whole = try file.read(size, at: 0)
    let backup = try BackupFile(Self.file, storage: host.storage)
    var padding: [Range<Int>] = []
    for section in backup.sections {
      for entry in section.entries { padding.append((entry.offset + entry.header.length)..<entry.end) }
      let content = section.closing.encoded().count
      padding.append(
        (section.range.upperBound - BackupFormat.aligned(content) + content)..<section.range.upperBound)
    }
    var random = SplitMix64(seed: 5)
    var places = (0..<300).map { _ in Int(random.next() % UInt64(size)) }
    places += backup.sections.flatMap { [$0.range.lowerBound + 3, $0.range.upperBound - 20] }
    places += (0..<64).map { $0 }
    for place in places where !padding.contains(where: { $0.contains(place) }) {
      // Reserved header bytes are covered by the checksums, too.
      try host.storage.flipBit(of: Self.file, at: place, bit: Int(random.next() % 8))
      let error = #expect(throws: StoreError.self, "byte \(place)") {
        try Store.restore(
          from: Self.file, to: "/restored", state: nil, replacing: false, environment: host.environment)
      }
      #expect([.damaged, .foreignFile].contains(error?.code), "byte \(place)")
      #expect(throws: StoreError.self, "byte \(place)") { try Store.verifyBackup(Self.file, host.storage) }
      #expect(try host.storage.status("/restored") == nil)
      let target = try host.storage.open(Self.file, .readWrite)
      try target.write(whole, at: 0)
    }
    try Store.verifyBackup(Self.file, host.storage)
  }

  @Test("a truncated backup shows the states before the cut, and is continued from there")
  func cutShort() throws {
    let host = try Self.filled(seed: 4, sealed: false, backedUp: true)
    let store = try Store.open("/store", on: host, configuration: Configuration(blobThreshold: 2000))
    let first = try BackupFile(Self.file, storage: host.storage).end
    _ = try store.backUp(to: Self.file)
    let end = try BackupFile(Self.file, storage: host.storage).end
    let file = try host.storage.open(Self.file, .readWrite)
    for size in stride(from: end - 1, to: first, by: -997) {
      try file.resize(to: size)
      #expect(try Store.backupSummary(of: Self.file, host.storage).states.count == 1)
    }
    #expect(try Store.backupSummary(of: Self.file, host.storage).isUnfinished)
    let error = #expect(throws: StoreError.self) { try BackupTests.restore(host) }
    #expect(error?.code == .damaged && error?.message.contains("name state 1") == true)
    _ = try BackupTests.restore(host, to: "/first", state: 1)
    #expect(try Self.keys(host, "/first") == 10)
    let report = try store.backUp(to: Self.file)
    #expect(report.section == 2 && report.records == 5)
    _ = try BackupTests.restore(host)
    #expect(try Self.keys(host, "/restored") == 15)
  }

  @Test("a damaged store is not backed up as if it were intact (F37)")
  func damagedStore() throws {
    let host = SimulatedHost(compacting: .onRequest, encrypted: false)
    let store = try Store.create(on: host)
    for number in 0..<50 { try store.put(Key("\(number)"), "value \(number)") }
    let segment = "/store/journal/0000000000000001.segment"
    let bytes = try host.storage.open(segment, .readOnly).read(1 << 20, at: 0)
    let value = Array("value 25".utf8)
    let place = try #require(bytes.indices.first { bytes[$0...].starts(with: value) })
    try host.storage.flipBit(of: segment, at: place, bit: 2)
    let error = #expect(throws: StoreError.self) { try store.backUp(to: Self.file) }
    #expect(error?.code == .damaged)
    #expect(try host.storage.status(Self.file) == nil && host.storage.status(Self.file + ".new") == nil)
    try store.close()
    let again = try Store.open(on: host)
    #expect(#expect(throws: StoreError.self) { try again.backUp(to: Self.file) }?.code == .damaged)
  }
}
