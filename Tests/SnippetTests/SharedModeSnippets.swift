import SyncStore
import Testing

/// The code of `SharedMode.md`. `DocumentTests` sees to it that the two are the same.
@Suite struct SharedModeSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("what the page says happens")
  func run() throws {
    // snippet
    let shared = Configuration(mode: .shared)
    let store =
      try Store.exists(at: here + "settings")
      ? try Store.open(at: here + "settings", configuration: shared)
      : try Store.create(at: here + "settings", configuration: shared)
    try store.put("limit", 10)
    // end
    // snippet
    var position = try store.status().position  // looks at all keys: once, at the start

    func changedKeys() throws -> Set<Key> {
      var keys: Set<Key> = []
      while case let records = try store.log(from: position + 1, limit: 1000), let last = records.last {
        keys.formUnion(records.compactMap(\.key))
        position = last.position
      }
      return keys
    }

    if try changedKeys().contains("limit") {
      print(try store.get("limit", default: 10))
    }
    // end
    #expect(try changedKeys().isEmpty)
    try store.put("other", 1)
    try store.put("limit", 12)
    #expect(try changedKeys() == ["limit", "other"])
    #expect(try changedKeys().isEmpty)
    try store.close()
  }
}
