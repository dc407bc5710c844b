import SyncStore
import Testing

/// The code of `Performance.md`. `GuideTests` checks that both are equal.
@Suite struct PerformanceSnippets {

  @Test("the examples of the page behave as described")
  func run() {
    // snippet
    let thumbnails = MemoryCache<String, [UInt8]>(name: "thumbnails", costLimit: 64 << 20)
    thumbnails.set("a.png", [1, 2, 3], cost: 3)
    let thumbnail = thumbnails.get("a.png")
    // end
    // A concurrent test may signal memory pressure.
    #expect(thumbnail ?? [1, 2, 3] == [1, 2, 3])
  }
}
