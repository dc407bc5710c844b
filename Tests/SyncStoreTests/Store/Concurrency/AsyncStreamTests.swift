import SyncTestSupport
import Testing

@testable import SyncStore

@Suite("Streams of an asynchronous store")
struct AsyncStreamTests {
  private struct Interrupted: Error {}

  private func pieces(_ bytes: [UInt8], failing: Bool = false) -> AsyncThrowingStream<[UInt8], any Error> {
    AsyncThrowingStream { stream in
      for start in stride(from: 0, to: bytes.count, by: 300_000) {
        stream.yield(Array(bytes[start...].prefix(300_000)))
      }
      stream.finish(throwing: failing ? Interrupted() : nil)
    }
  }

  @Test(
    "put a value piece by piece, and read it in pieces and in ranges",
    arguments: [0, 10, 2_500_000, 5_000_000])
  func roundTrip(count: Int) async throws {
    let host = SimulatedHost()
    let store = AsyncStore(try Store.create(on: host))
    let bytes = pattern(count)
    try await store.put("film", type: .string, from: pieces(bytes))
    let reader = try #require(try await store.run { try $0.reader(of: "film") })
    #expect(reader.size == UInt64(count) && reader.type == .string)
    try await store.put("film", [1])
    var read: [UInt8] = []
    for try await piece in reader {
      #expect(piece.count <= ValueReader.pieceBytes)
      read += piece
    }
    #expect(read == bytes)
    let part = try await reader.run { try $0.read(100, at: UInt64(count / 2)) }
    #expect(part == Array(bytes[(count / 2)...].prefix(100)))
  }

  @Test("write nothing, and leave nothing behind, if the source of the pieces fails")
  func failing() async throws {
    let host = SimulatedHost()
    let store = AsyncStore(try Store.create(on: host))
    await #expect(throws: Interrupted.self) {
      try await store.put("film", from: pieces(pattern(5_000_000), failing: true))
    }
    #expect(try store.store.get("film") == nil)
    #expect(try host.storage.list("/store/blobs/partial") == [])
  }
}
