import SyncStore
import Testing

/// The code of `SharedMode.md`. `GuideTests` checks that both are equal.
@Suite struct SharedModeSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() async throws {
    // snippet
    let shared = Configuration(mode: .shared)
    let store = try Store.openOrCreate(at: here + "settings", configuration: shared)
    try store.put("limit", 10)
    // end
    let start = try store.changePosition()
    let following = Task { try await Self.follow(store) }
    // snippet
    let limit = try store.update("limit", default: 10) { $0 += 1 }
    // end
    #expect(limit == 11)
    for try await change in try store.changes(prefix: "limit", from: start) {
      #expect(change.key == "limit")
      break
    }
    following.cancel()
    try await following.value
    try store.close()
  }

  private static func follow(_ store: Store) async throws {
    // snippet
    for try await change in try store.changes(prefix: "limit") {
      do {
        print(change.key, try store.get(change.key, default: 10))
      } catch {
        print(change.key, "stays as it was:", error)
      }
    }
    // end
  }
}
