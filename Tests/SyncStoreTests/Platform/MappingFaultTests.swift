import CLinux
import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

/// Unavailable pages of a mapped file, hit by real loads and stores.
@Suite("A page fault in a mapping")
struct MappingFaultTests {
  static let small = Configuration(durability: .relaxed, segmentBytes: 1 << 20)
  static let first = "/journal/0000000000000001.segment"
  /// Not where the tail is written with `pwrite`, as on overlayfs: a write after the truncation extends the
  /// file again.
  let directory = TemporaryDirectory(
    inMemory: (try? DiskStorage().fileSystem("/tmp").mappedStoresMayFail) ?? false)
  var path: String { directory.path + "/store" }

  /// Changes of a store file by a foreign program.
  func cut(_ name: String, to size: Int) throws(StoreError) {
    try DiskStorage().open(path + name, .readWrite).resize(to: size)
  }

  @Test("F38 a closed segment that is truncated costs its keys a typed error, and no others")
  func closedSegment() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    try RotationTests.fill(store, 100)
    try store.sync()
    #expect(try store.status().segments == 2)
    try cut(Self.first, to: 40_960)
    let error = #expect(throws: StoreError.self) { try store.get("50") }
    #expect(error?.code == .damaged)
    #expect(error?.path == path + Self.first)
    #expect(error?.message.contains("cut short") == true)
    #expect(error?.message.contains("40960 of 1048576 bytes") == true)
    #expect(try store.get("0")?.bytes.count == 15_000)
    #expect(try store.get("99")?.bytes.count == 15_000)
    #expect(code { _ = try store.withValue("51") { $0.byteCount } } == .damaged)
    #expect(code { _ = try store.list() } == .damaged)
    // Lost values can be written again, elsewhere.
    try store.put("50", "again")
    #expect(try store.text("50") == "again")
    // A copy of zeros would get a valid checksum.
    #expect(throws: Never.self) { try store.compact() }
    #expect(code { _ = try store.get("51") } == .damaged)
    try store.close()
    // After reopening it still has every intact record, and reports which are lost.
    let again = try Store.open(at: path, configuration: Self.small)
    #expect(try again.text("50") == "again")
    #expect(code { _ = try again.get("51") } == .damaged)
    try again.close()
  }

  @Test("F38 during a write poisons the store, which is still readable", arguments: [true, false])
  func tail(isSynced: Bool) throws {
    let store = try Store.create(at: path, configuration: Self.small)
    try store.put("k", "1", durability: .full)
    try cut(Self.first, to: isSynced ? 8192 : 4096)
    // Within a remaining page the sync notices; beyond it, the store instruction itself.
    let error = #expect(throws: StoreError.self) {
      if isSynced {
        try store.put("k", "2", durability: .full)
      } else {
        try store.put("l", [UInt8](repeating: 1, count: 9000))
      }
    }
    #expect(error?.code == .poisoned)
    #expect(error?.path == path + Self.first)
    #expect(error?.message.contains("cut short") == true)
    #expect(code { try store.put("m", "3") } == .poisoned)
    #expect(code { try store.delete("k") } == .poisoned)
    if isSynced {
      #expect(try store.text("k") == "2")
    } else {
      #expect(code { _ = try store.get("k") } == .damaged)
      #expect(try store.get("l") == nil)
    }
    #expect(code { try store.sync() } == .poisoned)
    try store.close()
  }

  @Test("F38 a segment truncated and lengthened again is detected by the checksums")
  func lengthenedAgain() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    try RotationTests.fill(store, 100)
    try cut(Self.first, to: 0)
    try cut(Self.first, to: 1 << 20)
    #expect(code { _ = try store.get("0") } == .damaged)
    #expect(try store.get("99") != nil)
  }

  @Test("F38 a truncated control page fails writes, and only its one owner can read")
  func controlPage() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    try store.put("k", "1")
    try cut("/control", to: 0)
    #expect(code { try store.put("k", "2") } == .poisoned)
    #expect(try store.text("k") == "1")
    #expect(code { _ = try store.transaction { try $0.put("k", [1]) } } == .poisoned)
    try store.close()
    let again = try Store.open(
      at: path, configuration: Configuration(mode: .shared, durability: .relaxed))
    #expect(try again.text("k") == "1")
    try again.put("k", "2")
    try cut("/control", to: 0)
    let error = #expect(throws: StoreError.self) { try again.get("k") }
    #expect(error?.code == .inputOutput)
    #expect(error?.path == path + "/control")
    #expect(code { try again.put("k", "3") } == .poisoned)
    try again.close()
    #expect(try Store.open(at: path).text("k") == "2")
  }

  @Test("F38 a control page truncated within a transaction ends it without an acknowledgement")
  func controlPageInTransaction() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    try store.put("k", "1")
    let error = #expect(throws: (any Error).self) {
      try store.transaction { transaction in
        try transaction.put("k", Array("2".utf8))
        try cut("/control", to: 0)
      }
    }
    #expect((error as? StoreError)?.code == .poisoned)
    #expect(try store.text("k") == "1")
    try store.close()
    // The thread has no part of the mutex left in the lost page, and acquires others.
    let other = TemporaryDirectory()
    let second = try Store.create(at: other.path + "/store", configuration: Self.small)
    try second.put("k", "1")
    #expect(try Store.open(at: path).text("k") == "1")
  }

  @Test(
    "F38 a truncated index is no longer shared, and its missing keys are not reported as present"
  )
  func index() throws {
    let store = try Store.create(
      at: path, configuration: Configuration(mode: .shared, durability: .relaxed))
    try store.put("before", "1")
    // The index checkpoint's page with the segment numbers, which has no checksum.
    try cut("/ledger", to: 4096)
    try store.put("behind", "2")
    #expect(!store.core.engine.withLock { $0.index.isShared })
    #expect(try DiskStorage().status(path + "/index") == nil)
    #expect(try store.text("before") == "1" && store.text("behind") == "2")
    try store.close()
    let again = try Store.open(at: path)
    #expect(try again.text("before") == "1" && again.text("behind") == "2" && again.verify().isClean)
  }

  @Test("F38 that hits a waiting writer does not leave it waiting")
  func waitingWriter() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    let waiting = Locked<StoreError.Code?>(nil)
    let thread = Threaded {
      do throws(StoreError) { try store.put("other", "x") } catch { waiting.withLock { $0 = error.code } }
    }
    #expect(throws: (any Error).self) {
      try store.transaction { transaction in
        try transaction.put("k", [1])
        thread.start()
        usleep(50_000)
        try cut("/control", to: 0)
      }
    }
    thread.join()
    #expect(waiting.withLock { $0 } == .poisoned)
  }

  @Test("in hundreds of keys, on several threads, never gives a wrong value (F38)")
  func neverWrong() throws {
    let store = try Store.create(at: path, configuration: Self.small)
    let value = [UInt8](repeating: 7, count: 1500)
    for number in 0..<600 { try store.put(Key("\(number)"), value) }
    try RotationTests.fill(store, from: 10_000, 100)
    let wrong = Locked(0)
    let threads = (0..<3).map { start in
      Threaded {
        for pass in 0..<300 {
          for number in stride(from: start, to: 600, by: 3) {
            // An error is acceptable; another value or none is not.
            do {
              let read = try store.get(Key("\(number)"))
              if read?.bytes != value { wrong.withLock { $0 += 1 } }
            } catch {}
          }
          if start == 0, pass == 20 { try? cut(Self.first, to: 500_000) }
        }
      }
    }
    for thread in threads { thread.start() }
    for thread in threads { thread.join() }
    #expect(wrong.withLock { $0 } == 0)
    #expect(throws: StoreError.self) { for number in 0..<600 { _ = try store.get(Key("\(number)")) } }
  }

  @Test(
    "elsewhere goes to the previous signal handler, and without one ends the process",
    arguments: [true, false])
  func elsewhere(hasHandler: Bool) async {
    await #expect(processExitsWith: hasHandler ? .exitCode(42) : .signal(SIGBUS)) {
      [hasHandler, file = directory.path + "/file" as String] in
      Patience.limitProcess()
      let file = try DiskStorage(handlesSignals: false).open(file, .create)
      try file.resize(to: 4096)
      let mapping = try file.map(4096, writable: true)
      try file.resize(to: 0)
      var action = sigaction()
      unsafe action.__sigaction_handler.sa_handler = hasHandler ? { _ in _exit(42) } : SIG_DFL
      unsafe sigaction(SIGBUS, &action, nil)
      sync_install_fault_handler()
      _exit(mapping.load(0, as: UInt8.self) == 0 ? 1 : 2)
    }
  }

  @Test("is not handled if the embedder handles signals itself")
  func switchedOff() async {
    await #expect(processExitsWith: .signal(SIGBUS)) { [path = path as String] in
      Patience.limitProcess()
      var configuration = Self.small
      configuration.handlesSignals = false
      let store = try Store.create(at: path, configuration: configuration)
      try store.put("k", "1")
      var action = sigaction()
      unsafe action.__sigaction_handler.sa_handler = SIG_DFL
      unsafe sigaction(SIGBUS, &action, nil)
      try DiskStorage().open(path + Self.first, .readWrite).resize(to: 0)
      let segment = store.core.engine.withLock { $0.journal.segments[0] }
      _exit(segment.mapping.load(4096, as: UInt8.self) == 0 ? 1 : 2)
    }
  }
}
