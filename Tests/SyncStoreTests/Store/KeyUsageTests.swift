import SyncTestSupport
import Testing

@testable import SyncStore

/// `usage(ofKeys:)`: what prefixes take.
@Suite("The usage of keys")
struct KeyUsageTests {
  @Test("is that of a prefix and of the paths below it, the most bytes first, in a store and in a snapshot")
  func tree() throws {
    let host = SimulatedHost()
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 4096))
    try store.put("a/x/1", [UInt8](repeating: 1, count: 10))
    try store.put("a/x/2", [UInt8](repeating: 1, count: 20))
    try store.put("a/y", [UInt8](repeating: 2, count: 5))
    try store.put("b/z/1", [UInt8](repeating: 3, count: 9000))
    try store.put("plain", [])
    try store.put("gone", [1])
    _ = try store.delete("gone")
    let snapshot = try store.snapshot()
    try store.put("later", [1])
    func lines(_ usage: [KeyUsage]) -> [String] {
      usage.map {
        "\(String(decoding: $0.path, as: UTF8.self)) \($0.keys) \($0.keyBytes)+\($0.valueBytes) \($0.blobs) \($0.blobBytes)"
      }
    }
    #expect(
      lines(try snapshot.usage(depth: 2)) == [
        " 5 23+9035 1 9000", "b/ 1 5+9000 1 9000", "b/z/ 1 5+9000 1 9000", "a/ 3 13+35 0 0",
        "a/x/ 2 10+30 0 0",
      ])
    #expect(lines(try store.usage()) == [" 6 28+9036 1 9000"])
    #expect(
      lines(try store.usage(ofKeys: Array("a/".utf8), depth: 1)) == ["a/ 3 13+35 0 0", "a/x/ 2 10+30 0 0"])
    #expect(lines(try store.usage(ofKeys: Array("none".utf8), depth: 1)) == ["none 0 0+0 0 0"])
    #expect(try store.usage(depth: 1, separator: Array("/x".utf8)).map(\.keys) == [6, 2])
    #expect(#expect(throws: StoreError.self) { try store.usage(separator: []) }?.code == .outOfBounds)
  }
}
