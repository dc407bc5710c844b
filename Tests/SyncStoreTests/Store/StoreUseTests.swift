import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Threads, processes and failures during the lifetime of an open store.
@Suite("The use of a store")
struct StoreUseTests {
  let host = SimulatedHost()

  @Test("one directory opened by concurrent threads is one instance (F96)")
  func openedAtOnce() async throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    try Store.create(at: path).close()
    for _ in 0..<10 {
      let stores = try await withThrowingTaskGroup(of: Store.self) { group in
        for _ in 0..<4 { group.addTask { try Store.open(at: path) } }
        return try await group.reduce(into: [Store]()) { $0.append($1) }
      }
      #expect(stores.allSatisfy { $0 === stores[0] })
      try stores[0].close()
    }
  }

  @Test("a directory whose name begins with a combining character keeps the kernel's path")
  func combiningCharacter() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/\u{301}store"
    #expect(DiskStorage.directory(of: path) == directory.path)
    let store = try Store.create(at: path + "/./")
    try store.put("large", [UInt8](repeating: 7, count: 100_000))
    #expect(Array(store.path.utf8) == Array(path.utf8))
    try store.close()
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: directory.path).contains { $0.hasSuffix("store") })
    #expect(try Store.open(at: path).get("large")?.bytes.count == 100_000)
  }

  @Test("closing within a transaction is refused, and the transaction continues")
  func closedWithin() throws {
    let store = try Store.create(on: host)
    try store.put("k", "1")
    try store.transaction { transaction in
      try transaction.put("k", Array("2".utf8))
      #expect(#expect(throws: StoreError.self) { try store.close() }?.code == .busy)
    }
    #expect(try store.text("k") == "2")
    try store.close()
  }

  @Test(
    "calls that wait for a compaction are refused within a transaction, for which the compaction may wait",
    arguments: [
      { _ = try $0.compact() }, { _ = try $0.trim() }, { _ = try $0.finishRekeying() },
      { _ = try $0.encrypt(with: Passphrase("another")) },
      { try $0.changePassphrase(to: Passphrase("another")) },
    ] as [@Sendable (Store) throws -> Void])
  func compactedWithin(call: @escaping @Sendable (Store) throws -> Void) throws {
    let host = SimulatedHost(compacting: .onRequest)
    try Store.create(on: host, configuration: CompactionTests.small).close()
    let opened = Locked<Store?>(nil)
    let outcomes = Locked<[StoreError.Code?]>([])
    let writer = Threaded {
      guard let store = opened.withLock({ $0 }) else { return }
      try? store.transaction { transaction in
        try transaction.put("k", [1])
        let outcome = Result { try call(store) }
        outcomes.withLock { outcomes in
          if case .failure(let error) = outcome { outcomes.append((error as? StoreError)?.code) }
        }
      }
    }
    let isBegun = Locked(false)
    var environment = host.environment
    environment.onInstallYield = {
      guard isBegun.withLock({ exchange(&$0, with: true) }) == false else { return }
      writer.start()
      Self.wait(milliseconds: 500) { outcomes.withLock { !$0.isEmpty } }
    }
    let store = try Store.open(
      at: "/store", configuration: host.configured(CompactionTests.small), environment: environment)
    opened.withLock { $0 = store }
    try CompactionTests.churnUnpurged(store, keys: 200, writes: 1000, bytes: 500)
    let isCompacted = Locked(false)
    let compaction = Threaded {
      _ = try? store.compact()
      isCompacted.withLock { $0 = true }
    }
    compaction.start()
    Self.wait(milliseconds: 5000) { isCompacted.withLock { $0 } }
    #expect(isCompacted.withLock { $0 } && outcomes.withLock { $0 } == [.busy])
    guard isCompacted.withLock({ $0 }) else { return }
    compaction.join()
    writer.join()
    opened.withLock { $0 = nil }
    #expect(try store.get("k")?.bytes == [1])
    try store.close()
  }

  /// Waits a while for the condition.
  private static func wait(milliseconds: Int, until isSo: () -> Bool) {
    for _ in 0..<milliseconds where !isSo() { usleep(1000) }
  }

  @Test("nothing is written after closing, by threads that were about to")
  func closedConcurrently() throws {
    for round in 0..<10 {
      let store = try Store.create("/store\(round)", on: host, configuration: RotationTests.relaxed)
      let threads = (0..<3).map { number in
        Thread {
          while (try? store.put(Key(unchecked: [65 + UInt8(number)]), [1])) != nil {}
        }
      }
      for thread in threads { thread.start() }
      usleep(3000)
      try store.close()
      let tail = store.control.tail
      while !threads.allSatisfy(\.isFinished) { usleep(1000) }
      #expect(store.control.tail == tail)
    }
  }

  @Test(
    "a forked process gets errors from the store and snapshots, and closing leaves it to the parent (F97)"
  )
  func closedAfterFork() async {
    // In a process without other threads: a runtime lock held by one at the fork would never be released in
    // the child.
    await #expect(processExitsWith: .success) {
      Patience.limitProcess()
      let directory = TemporaryDirectory()
      let path = directory.path + "/store"
      let store = try Store.create(at: path)
      try store.put("k", "1")
      let snapshot = try store.snapshot()
      // Swift does not import fork, because it is unsafe in multithreaded programs.
      guard let symbol = unsafe dlsym(nil, "fork") else { throw StoreError(.inputOutput, "no fork") }
      typealias Fork = @convention(c) () -> Int32
      let child = unsafe unsafeBitCast(symbol, to: Fork.self)()
      if child == 0 {
        let calls: [() throws -> Void] = [
          { _ = try store.get("k") }, { try store.put("k", "2") }, { try store.delete("k") },
          { try store.sync() }, { _ = try store.snapshot() }, { _ = try store.list() },
          { try store.transaction { _ in } }, { _ = try snapshot.get("k") }, { _ = try snapshot.count },
        ]
        for (number, call) in calls.enumerated() {
          // The exit code says which call was not refused as required.
          do { try call() } catch let error as StoreError where error.code == .forked { continue } catch {}
          _exit(Int32(number) + 1)
        }
        try? store.close()
        _exit(0)
      }
      var status: Int32 = -1
      unsafe waitpid(child, &status, 0)
      #expect(status == 0, "call \(status >> 8) of the child's")
      #expect(try snapshot.get("k")?.bytes == Array("1".utf8))
      var other = Environment.real()
      other.process = 1
      let environment = other
      #expect(
        #expect(throws: StoreError.self) {
          try Store.open(at: path, configuration: Configuration(), environment: environment)
        }?.code == .busy)
      try store.put("k", "3")
      #expect(try store.text("k") == "3")
      try store.close()
    }
  }

  @Test("a transaction that reads a lost blob gets that error, not that it is busy (F44)")
  func lostBlobInTransaction() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store")
    let value = [UInt8](repeating: 3, count: 50_000)
    try store.put("blob", value)
    try store.close()
    let objects = directory.path + "/store/blobs"
    for case let file as String in try #require(FileManager.default.enumerator(atPath: objects))
    where file.hasSuffix(".pack") || file.hasPrefix("catalogue") {
      try FileManager.default.removeItem(atPath: objects + "/" + file)
    }
    let again = try Store.open(at: directory.path + "/store")
    let error = #expect(throws: StoreError.self) {
      try again.transaction { transaction in _ = try transaction.get("blob") }
    }
    #expect(error?.code == .blobUnavailable || error?.code == .damaged)
  }

  @Test(
    "a failed export leaves the previous file, and nothing else",
    arguments: [StorageCall.write, .sync, .rename])
  func failedExport(call: StorageCall) throws {
    let plan = FaultPlan()
    try Store.create(on: host).close()
    let store = try Store.open(on: host, failing: plan)
    try store.put("k", "1")
    #expect(try store.export("k", toFileAt: "/file"))
    try store.put("k", "2")
    plan.fail(call, on: "/file")
    #expect(throws: StoreError.self) { try store.export("k", toFileAt: "/file") }
    #expect(try host.storage.contents(of: "/file", limit: 10) == Array("1".utf8))
    #expect(try host.storage.list("/").sorted() == ["file", "store"])
  }

  @Test("an export follows a link, and replaces nothing but a file", arguments: [10, 100_000])
  func exportTarget(bytes: Int) throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store")
    let value = [UInt8](repeating: 7, count: bytes)
    try store.put("k", value)
    for target in ["file", "file.syncstore-part"] {
      try DiskStorage().replace(directory.path + "/" + target, with: [1])
    }
    try #require(unsafe symlink("file", directory.path + "/link") == 0)
    try #require(unsafe symlink("nowhere/at/all", directory.path + "/lost") == 0)
    try #require(unsafe mkfifo(directory.path + "/pipe", 0o600) == 0)
    for name in ["pipe", "store", "lost"] {
      let error = #expect(throws: StoreError.self) {
        try store.export("k", toFileAt: directory.path + "/" + name)
      }
      #expect(error?.code == .foreignFile, "\(name)")
    }
    #expect(try store.export("k", toFileAt: directory.path + "/link"))
    #expect(try DiskStorage().status(directory.path + "/link")?.kind == .link)
    #expect(try DiskStorage().status(directory.path + "/pipe")?.kind == .other)
    #expect(try DiskStorage().contents(of: directory.path + "/file", limit: 1 << 20) == value)
    #expect(try DiskStorage().contents(of: directory.path + "/file.syncstore-part", limit: 9) == [1])
    #expect(
      try DiskStorage().list(directory.path).sorted() == [
        "file", "file.syncstore-part", "link", "lost", "pipe", "store",
      ])
  }
}
