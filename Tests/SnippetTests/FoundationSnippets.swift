import FoundationEssentials
import SyncStore
import SyncStoreFoundation
import Testing

/// The code of `SyncStoreFoundation.md`. `GuideTests` checks that both are equal.
@Suite struct FoundationSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let store = try Store.create(at: here + "visits")
    try store.put("first", Date(timeIntervalSince1970: 1_700_000_000))
    print(try store.get("first", as: Date.self)?.timeIntervalSince1970 ?? 0)
    // end
    #expect(try store.entry("first")?.type == .date)
    try store.close()
  }
}
