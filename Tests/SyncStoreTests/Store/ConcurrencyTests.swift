import SyncStore
import SyncTestSupport
import Testing

@Suite("Threads on one store")
struct ConcurrencyTests {
  @Test("write and read concurrently without losing or mixing anything")
  func writersAndReaders() async throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/store", configuration: Configuration(durability: .relaxed, segmentBytes: 1 << 20)
    )
    let perWriter = 400
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          for number in 0..<perWriter {
            let value = [UInt8](repeating: UInt8(writer), count: 500 + number)
            try store.put(Key("own \(writer) \(number)"), value)
            try store.transaction { transaction in
              let count =
                try transaction.get("count").flatMap { Int(String(decoding: $0.bytes, as: UTF8.self)) } ?? 0
              try transaction.put("count", Array("\(count + 1)".utf8))
              try transaction.put("twin", Array("\(count + 1)".utf8))
            }
            if number % 100 == 0 { try store.sync() }
          }
        }
      }
      for reader in 0..<2 {
        group.addTask {
          for number in 0..<perWriter {
            if let value = try store.get(Key("own \(reader) \(number)"))?.bytes {
              #expect(value.count == 500 + number && value.allSatisfy { $0 == UInt8(reader) })
            }
            _ = try store.digest()
            _ = try store.list(prefix: Array("own 0 1".utf8), limit: 3)
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try store.text("count") == "\(4 * perWriter)")
    #expect(try store.text("twin") == "\(4 * perWriter)")
    let digest = try store.digest()
    try store.close()
    let again = try Store.open(at: directory.path + "/store")
    #expect(try again.digest() == digest)
    #expect(try again.status().keys == 4 * perWriter + 2)
    #expect(try again.verify().isClean)
  }

  @Test("share a sync: each durable write returns only once it is durable")
  func groupCommit() async throws {
    let directory = TemporaryDirectory()
    let store = try Store.create(
      at: directory.path + "/store", configuration: Configuration(durability: .full))
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<8 {
        group.addTask {
          for number in 0..<20 { try store.put(Key("\(writer) \(number)"), "x") }
        }
      }
      try await group.waitForAll()
    }
    #expect(try store.status().keys == 160)
    #expect(store.syncCount <= 160)
  }

  @Test("keep a round complete during concurrent writes")
  func roundDuringWrites() async throws {
    let directory = TemporaryDirectory()
    let configuration = Configuration(durability: .relaxed)
    let sender = try Store.create(at: directory.path + "/a", configuration: configuration)
    let receiver = try Store.create(at: directory.path + "/b", id: sender.id, configuration: configuration)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for number in 0..<600 { try sender.put(Key("\(number % 50)"), "\(number)") }
      }
      group.addTask {
        for _ in 0..<10 { try receiver.receive(from: sender, maximumBytes: 500) }
      }
      try await group.waitForAll()
    }
    try receiver.receive(from: sender)
    #expect(try receiver.digest() == sender.digest())
  }
}
