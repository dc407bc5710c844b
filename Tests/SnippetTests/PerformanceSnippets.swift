import SyncStore
import Testing

/// The code of `Performance.md`. `DocumentTests` sees to it that the two are the same.
@Suite struct PerformanceSnippets {

  @Test("what the page says happens")
  func run() {
    // snippet
    let thumbnails = MemoryCache<String, [UInt8]>(name: "thumbnails", costLimit: 64 << 20)
    thumbnails.set("a.png", [1, 2, 3], cost: 3)
    let thumbnail = thumbnails.get("a.png")
    // end
    // Another test may say that memory is short meanwhile.
    #expect(thumbnail ?? [1, 2, 3] == [1, 2, 3])
  }
}
