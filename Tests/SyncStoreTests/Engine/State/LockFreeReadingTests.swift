import SyncTestSupport
import Testing

@testable import SyncStore

/// Reads take no lock that a writer or a compaction holds, and see nothing partial.
@Suite("Readers without a lock")
struct LockFreeReadingTests {
  private static let small = Configuration(mode: .shared, durability: .relaxed, segmentBytes: 64 << 10)

  /// The same directory, opened again as another process.
  private static func again(_ path: String, _ number: Int) throws -> Store {
    var environment = Environment.real()
    environment.process = number
    return try Store.open(at: path, configuration: small, environment: environment)
  }

  @Test("see whole transactions, in commit order, during writes, growth and compaction")
  func transactions() async throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let store = try Store.create(at: path, configuration: Self.small)
    let other = try Self.again(path, 1)
    let keys = try (0..<40).map { try Key("key \($0)") }
    try store.transaction { for key in keys { try $0.put(key, Self.bytes(0)) } }
    let isDone = Locked(false)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        defer { isDone.withLock { $0 = true } }
        for round in 1...400 {
          let writer = round % 3 == 0 ? other : store
          try writer.transaction { for key in keys { try $0.put(key, Self.bytes(round)) } }
          try writer.put(Key("grown \(round)"), [UInt8](repeating: 1, count: 700))
          if round % 150 == 0 { try store.compact() }
        }
      }
      for reader in 0..<3 {
        group.addTask {
          let view = reader == 2 ? other : store
          var last = 0
          while !isDone.withLock({ $0 }) {
            for key in reader.isMultiple(of: 2) ? keys : keys.reversed() {
              let found =
                reader == 1
                ? try view.withValue(key) { Self.round($0) } ?? -1
                : try view.get(key)?.bytes.withRawSpan { Self.round($0) } ?? -1
              // What one key shows as done, no later read of another key may contradict.
              #expect(found >= last, "reader \(reader): \(found) behind \(last)")
              last = max(last, found)
            }
            #expect(try view.get("never written") == nil)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try store.get(keys[7])?.bytes == Self.bytes(400))
    #expect(try other.digest() == store.digest())
    #expect(try store.verify().isClean && other.verify().isClean)
  }

  @Test(
    "find large values, too, while the engine is locked: plaintext and encrypted",
    .timeLimit(.minutes(Patience.minutes(1))), arguments: [false, true])
  func largeValues(isEncrypted: Bool) throws {
    let host = SimulatedHost()
    let configuration = EncryptedStoreTests.with(
      isEncrypted ? Passphrase("a passphrase") : nil, Configuration(blobThreshold: 100))
    let store = try Store.create(on: host, configuration: configuration)
    let value = [UInt8](repeating: 7, count: 1000)
    try store.put("large", value, expiration: .at(host.time + 1000))
    try store.put("small", "x")
    try store.core.engine.withLock { _ in
      let answers = Locked<[[UInt8]?]>([])
      try Threaded.run(1) { _ in
        let copied = try store.get("large")?.bytes
        let inPlace = try store.withValue("large") { [UInt8](copying: $0) }
        let mapped = try store.reader(of: "large")?.withUnverifiedBytes { [UInt8](copying: $0) }
        answers.withLock { $0 = [copied, inPlace, mapped] }
      }
      #expect(answers.withLock { $0 } == [value, value, value])
    }
    host.time += 1000
    #expect(try store.get("large") == nil && store.reader(of: "large") == nil)
    #expect(try store.reader(of: "small")?.withUnverifiedBytes { $0.byteCount } == 1)
  }

  /// The number of a round, repeated many times: a mix of two values would be noticed.
  private static func bytes(_ round: Int) -> [UInt8] {
    (0..<100).map { UInt8(truncatingIfNeeded: $0 % 2 == 0 ? round : round >> 8) }
  }

  private static func round(_ bytes: RawSpan) -> Int {
    let all = bytes.byteCount == 100 ? (0..<100).map { bytes.unsafeLoadByte($0) } : []
    guard let first = all.first, all.indices.allSatisfy({ all[$0] == ($0 % 2 == 0 ? first : all[1]) }) else {
      return -2
    }
    return Int(first) | Int(all[1]) << 8
  }

  @Test("four of them, with four writers, compaction and a second process, find all written values")
  func everythingAtOnce() async throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/store"
    let store = try Store.create(at: path, configuration: Self.small)
    let other = try Self.again(path, 1)
    let rounds = 150
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          let mine = writer == 3 ? other : store
          for round in 1...rounds {
            try mine.put(Key("writer \(writer) \(round % 7)"), Self.bytes(round))
            try mine.transaction { transaction in
              let count = try transaction.get("count").map { Int($0.bytes[0]) | Int($0.bytes[1]) << 8 } ?? 0
              try transaction.put("count", Self.bytes(count + 1))
              try transaction.delete(Key("gone \(writer)"))
            }
            try mine.put(Key("gone \(writer)"), [UInt8](repeating: 3, count: 300))
          }
        }
      }
      for reader in 0..<4 {
        group.addTask {
          let mine = reader == 3 ? other : store
          var last = [0, 0, 0, 0, 0]
          for step in 0..<600 {
            let count = try mine.get("count")?.bytes.withRawSpan { Self.round($0) } ?? 0
            #expect(count >= last[4])
            last[4] = count
            let writer = step % 4
            let value = try mine.withValue(Key("writer \(writer) 1")) { Self.round($0) } ?? 0
            #expect(
              value >= last[writer] && (value == 0 || value % 7 == 1), "\(value) behind \(last[writer])")
            last[writer] = value
            if step % 100 == 0 { #expect(try mine.list(prefix: Array("writer".utf8)).count <= 28) }
          }
        }
      }
      group.addTask { for _ in 0..<6 { try store.compact() } }
      try await group.waitForAll()
    }
    for view in [store, other] {
      #expect(try view.get("count")?.bytes == Self.bytes(4 * rounds))
      #expect(try view.status().keys == 4 * 7 + 4 + 1)
      #expect(try view.verify().isClean)
    }
  }

  @Test("keep values read in place, whatever is written and compacted meanwhile")
  func inPlace() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: Self.small)
    try store.put("kept", Self.bytes(77))
    try store.withValue("kept") { bytes in
      for round in 0..<2000 { try store.put(Key("k \(round % 20)"), [UInt8](repeating: 2, count: 900)) }
      try store.put("kept", Self.bytes(78))
      try store.compact()
      #expect(Self.round(bytes) == 77)
      // Within it, others are read, and it is read again.
      #expect(try store.withValue("kept") { Self.round($0) } == 78)
    }
    #expect(try store.get("kept")?.bytes == Self.bytes(78))
  }

  @Test("of a store that was closed, or opened before a fork, get a typed error")
  func closed() throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(at: directory.path + "/store", configuration: Self.small)
    try store.put("a", [1])
    #expect(try store.get("a")?.bytes == [1])
    try store.close()
    #expect(#expect(throws: StoreError.self) { try store.get("a") }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try store.withValue("a") { _ in } }?.code == .closed)
    #expect(#expect(throws: StoreError.self) { try store.contains("a") }?.code == .closed)
  }

  @Test("forward an error of their closure, and do not see expired values")
  func refusal() throws {
    struct Refusal: Error {}
    let host = SimulatedHost()
    let store = try Store.create(on: host)
    try store.put("a", [1], expiration: .at(host.time + 1000))
    #expect(throws: Refusal.self) { try store.withValue("a") { _ in throw Refusal() } }
    #expect(try store.contains("a"))
    host.time += 1000
    #expect(try !store.contains("a"))
    #expect(try store.get("a") == nil)
    #expect(try store.withValue("a") { _ in true } == nil)
  }
}

extension RawSpan {
  fileprivate func unsafeLoadByte(_ offset: Int) -> UInt8 {
    unsafe unsafeLoad(fromByteOffset: offset, as: UInt8.self)
  }
}
