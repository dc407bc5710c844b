import Glibc
import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Asynchronous forms", .timeLimit(.minutes(Patience.minutes(1))))
struct AsyncFormsTests {
  let directory = TemporaryDirectory()

  @Test("of typed values and conditional writes do the same as the blocking ones")
  func values() async throws {
    let store = try await AsyncStore.create(at: directory.path + "/a")
    let large = (0..<10_000).map { "number \($0)" }
    try await store.put("large", large)
    #expect(try await store.get("large", as: [String].self) == large)
    #expect(try await store.get("none", as: Int.self) == nil)
    #expect(try await store.get("none", default: 3) == 3)
    #expect(try await store.putIfChanged("k", 1))
    #expect(try await !store.putIfChanged("k", 1))
    #expect(try await store.update("k", default: 0) { $0 += 1 } == 2)
    #expect(try await store.delete(contentsOf: ["k", "none"]) == 1)
    try await store.backUp(to: directory.path + "/backup")
    #expect(try await AsyncStore.backupSummary(of: directory.path + "/backup").states.count == 1)
    try await AsyncStore.verifyBackup(directory.path + "/backup")
    try await store.close()
    try await AsyncStore.move(from: directory.path + "/a", to: directory.path + "/b")
    #expect(try await AsyncStore.remove(at: directory.path + "/b"))
    #expect(try !Store.exists(at: directory.path + "/b"))
  }

  @Test("of a handle wait for the users of the store without blocking pool threads")
  func handles() async throws {
    let handle = AsyncStoreHandle(.at(directory.path + "/a"))
    #expect(await handle.canOpen)
    // More tasks than the pool has threads: all wait for the one that works.
    let began = AsyncStream<Void>.makeStream()
    let goesOn = Locked(false)
    async let worked: Void = handle.withStore { _ in
      began.continuation.yield()
      while !goesOn.withLock({ $0 }) { usleep(1000) }
    }
    for await _ in began.stream { break }
    async let closed: Void = withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<20 { group.addTask { try await handle.close() } }
      try await group.waitForAll()
    }
    try await Task.sleep(for: .milliseconds(20))
    goesOn.withLock { $0 = true }
    try await worked
    try await closed
    #expect(!handle.handle.isOpened)
    try await handle.withStore { try $0.put("a", 1) }
    let path = directory.path
    #expect(try await handle.close { try Store.exists(at: path + "/a") })
    try await handle.backUp(to: path + "/backup")
    try await handle.withStore { try $0.put("a", 2) }
    try await handle.restore(from: path + "/backup")
    #expect(try await handle.withStore { try $0.get("a", as: Int.self) } == 1)
    let moved = try await handle.move(to: path + "/b")
    #expect(try await moved.remove())
  }

  @Test("of a disk cache do the same as the blocking ones")
  func diskCache() async throws {
    let cache = try await AsyncDiskCache.open(at: directory.path + "/cache")
    try await cache.set("a", pattern(3000))
    try await cache.set("b", [1])
    #expect(try await cache.get(["a", "none"]) == ["a": pattern(3000)])
    #expect(try await cache.information("a")?.valueBytes == 3000)
    #expect(try await cache.withValue("a") { $0.byteCount } == 3000)
    #expect(try await cache.withValue("none") { $0.byteCount } == nil)
    let seen = Locked<[String]>([])
    try await cache.forEach { known in
      seen.withLock { $0.append(known.key) }
      return true
    }
    #expect(seen.withLock { $0.sorted() } == ["a", "b"])
    #expect(try await cache.trim(toFreeDiskBytes: 0) == 0)
    #expect(try await cache.removeOlder(than: 0) == 0)
    #expect(try await cache.removeLarger(than: 1000) == 1)
    #expect(try await cache.remove(["a", "b"]) == 1)
    await cache.close()
    await #expect(throws: StoreError.self) { try await cache.get("a") }
  }
}
