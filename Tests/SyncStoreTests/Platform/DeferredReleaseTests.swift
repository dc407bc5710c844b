import Dispatch
import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Files removed while they may still be read: no thread waits for their blocks to be freed.
@Suite(.serialized, .timeLimit(.minutes(Patience.minutes(1)))) struct DeferredReleaseTests {
  private let directory = TemporaryDirectory()

  /// Number of this process's mappings of unlinked files here.
  private var nameless: Int {
    get throws {
      // Read to its end: the kernel generates it as it is read, and it has no size.
      let maps = try #require(try FileHandle(forReadingFrom: URL(filePath: "/proc/self/maps")).readToEnd())
      return String(decoding: maps, as: UTF8.self).split(separator: "\n")
        .count { $0.contains(directory.path) && $0.hasSuffix("(deleted)") }
    }
  }

  /// A store that is compacted on request only.
  private func store() throws -> Store {
    var environment = Environment.real()
    environment.compactionMode = .onRequest
    return try Store.create(
      at: directory.path + "/store", name: nil, id: nil, configuration: CompactionTests.small,
      environment: environment)
  }

  /// Removes a mapped file, and releases it after `body` had it.
  private func removeMapped(_ body: (any StorageFile) -> Void) throws {
    let path = directory.path + "/file"
    let storage = DiskStorage()
    let file = try storage.open(path, .create)
    try file.allocate(to: 8192)
    let mapping = try file.map(0..<8192, writable: true)
    mapping.store([1], at: 0)
    _ = try storage.remove(path)
    body(file)
    withExtendedLifetime(mapping) {}
  }

  /// Runs `body` while nothing is freed.
  private func whileNothingIsReleased(_ body: () throws -> Void) rethrows {
    let gate = DispatchSemaphore(value: 0)
    Background.release { gate.wait() }
    defer { gate.signal() }
    try body()
  }

  @Test(
    "Releasing the last reference to a removed file does not wait until its blocks are freed; they are freed")
  func file() async throws {
    try whileNothingIsReleased {
      try removeMapped { $0.deferRelease() }
      #expect(try nameless == 1)
    }
    try await ChangesTests.until { try nameless == 0 }
  }

  @Test("Mapped pages of a file that is not removed are released at once")
  func kept() throws {
    try whileNothingIsReleased {
      try removeMapped { _ in }
      #expect(try nameless == 0)
    }
  }

  @Test(
    "Segments replaced by a compaction are freed while other threads read and write")
  func segments() async throws {
    try whileNothingIsReleased {
      let store = try store()
      try CompactionTests.churn(store)
      #expect(try store.compact() > 0)
      // Former snapshots of readers are released when another one is published.
      try CompactionTests.churn(store)
      #expect(try nameless > 0)
      try store.close()
    }
    try await ChangesTests.until { try nameless == 0 }
  }

  @Test("Segments replaced by a compaction are freed without another write")
  func quiet() async throws {
    let store = try store()
    try CompactionTests.churn(store)
    #expect(try store.compact() > 0)
    try await ChangesTests.until { try nameless == 0 }
    try store.close()
  }

  @Test(
    "Segments replaced during a read that uses them are freed after it, without another write")
  func replacedDuringRead() async throws {
    let store = try store()
    try CompactionTests.churn(store)
    try store.put("read", "x")
    let (began, ends, ended) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    Thread {
      _ = try? store.withValue("read") { _ in
        began.signal()
        ends.wait()
      }
      ended.signal()
    }.start()
    #expect(began.wait(timeout: .now() + 30) == .success)
    #expect(try store.compact() > 0)
    let before = try nameless
    ends.signal()
    #expect(before > 0)
    #expect(ended.wait(timeout: .now() + 30) == .success)
    try await ChangesTests.until { try nameless == 0 }
    try store.close()
  }
}
