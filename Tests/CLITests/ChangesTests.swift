import SyncStore
import SyncTestSupport
import Testing

/// Changes made by other processes, as a program that embeds the store sees them.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct ChangesTests {
  @Test("writes of other processes are reported once and in order during concurrent compaction")
  func processes() async throws {
    let tool = try Scratch().store()
    let store = try Store.open(
      at: tool.store, configuration: Configuration(mode: .shared, durability: .relaxed))
    let changes = try store.changes(prefix: "line/")
    let count = 400
    let writers = try ["a", "b"].map { name in
      let lines = (0..<count).map { "{\"key\":\"line/\(name)/\($0)\",\"value\":\"\($0)\"}\n" }
      return try tool.start(["load", "-"], input: Array(lines.joined().utf8))
    }
    var next = ["a": 0, "b": 0]
    var seen = 0
    for try await change in changes {
      let parts = change.key.description.split(separator: "/")
      let name = String(parts[1])
      #expect(String(parts[2]) == next[name].map { "\($0)" })
      next[name, default: 0] += 1
      seen += 1
      if seen % 100 == 0 { try store.compact() }
      if seen == 2 * count { break }
    }
    for writer in writers { #expect(writer.finish().code == 0) }
    #expect(next == ["a": count, "b": count])
    var rest = try store.changes().makeAsyncIterator()
    try tool.succeed("put", "after", "x")
    #expect(try await rest.next()?.key == "after")
    try store.close()
  }
}
