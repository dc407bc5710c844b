import SyncStore
import Synchronization
import Testing

/// The code of `Caches.md`. `GuideTests` checks that both are equal.
@Suite struct CachesSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  private func render(_ name: String) throws -> [UInt8] { Array(name.utf8) }

  @Test("a custom cache")
  func cache() throws {
    // snippet
    let thumbnails = MemoryCache<String, [UInt8]>(
      name: "thumbnails", costLimit: 64 << 20, ageLimit: 600)
    func thumbnail(_ name: String) throws -> [UInt8] {
      if let known = thumbnails.get(name) { return known }
      let made = try render(name)
      thumbnails.set(name, made, cost: made.count)
      return made
    }
    // end
    #expect(try thumbnail("a") == thumbnail("a"))
    // snippet
    MemoryPressure.announce(.critical)
    print(thumbnails.count)  // 0
    // end
    #expect(thumbnails.count == 0)
  }

  @Test("a custom listener")
  func listener() {
    // snippet
    let parsed = Mutex<[String: [Double]]>([:])
    let listener = MemoryPressure.listen { level in
      parsed.withLock { if level == .critical { $0 = [:] } }
    }
    // end
    parsed.withLock { $0["a"] = [1, 2] }
    MemoryPressure.announce(.critical)
    #expect(parsed.withLock { $0.isEmpty })
    listener.cancel()
  }

  @Test("a cache of two levels")
  func disk() throws {
    // snippet
    var limits = DiskCache.Limits()
    limits.bytes = 1 << 30
    let previews = try Cache<[UInt8]>(
      at: here + "previews", memory: MemoryCache(name: "previews", costLimit: 64 << 20), limits: limits)
    try previews.set("a.png", [1, 2, 3])
    let preview = try previews.get("a.png")  // from memory, or from the disk
    // end
    #expect(preview == [1, 2, 3])
    previews.memory.removeAll()
    #expect(try previews.get("a.png") == [1, 2, 3])
    previews.disk.close()
    let tile = [UInt8](repeating: 7, count: 2 << 20)
    // snippet
    let tiles = try DiskCache.open(at: here + "tiles", limits: limits)
    try tiles.set("7/66/45", tile, extendedData: Array("etag-1".utf8))
    let item = try tiles.item("7/66/45")  // value, extended data and type in one read
    let known = try tiles.information("7/66/45")  // sizes and times; does not count as used
    let left = try tiles.removeLarger(than: 1 << 20)  // how many have left
    // end
    #expect(item?.extendedData == Array("etag-1".utf8) && item?.value == tile)
    #expect(known?.valueBytes == 2 << 20 && left == 1)
    tiles.close()
  }

  @Test("an entry derived from a stored value is invalidated with it")
  func forget() async throws {
    let store = try Store.openOrCreate(at: here + "store")
    let thumbnails = MemoryCache<String, [UInt8]>(name: "thumbnails", yieldsToPressure: false)
    thumbnails.set("image/a", [1])
    let following = Task {
      // snippet
      for try await change in try store.changes(prefix: "image/") {
        thumbnails.remove(change.key.description)
      }
      // end
    }
    while thumbnails.count > 0 {
      try store.put("image/a", [2])
      await Task.yield()
    }
    following.cancel()
    try await following.value
    try store.close()
  }

  @Test("the decrypted records that an encrypted store keeps")
  func opened() throws {
    // snippet
    var configuration = Configuration(passphrase: Passphrase("correct horse battery staple"))
    configuration.openedRecordBytes = 32 << 20
    let secrets = try Store.openOrCreate(at: here + "secrets", configuration: configuration)
    // end
    try secrets.put("a", 1)
    #expect(try secrets.get("a", default: 0) == 1)
    try secrets.close()
  }
}
