import SyncStore
import Testing

/// The code of `ValuesThatExpire.md`. `GuideTests` checks that both are equal.
@Suite struct ValuesThatExpireSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.openOrCreate(at: here + "store")
    // snippet
    try store.put("session/7", "Ann", expiration: .after(.hours(2)))
    try store.put("lease/door", "host-a", expiration: .after(Lifetime(.milliseconds(1500))))
    // end
    // snippet
    let midnight: UInt64 = 1_893_456_000_000
    try store.put("offer", "two for one", expiration: .at(midnight))
    try store.put("motto", "slow and steady", expiration: .never)
    // end
    #expect(try store.deadline(of: "motto") == nil)
    // snippet
    var configuration = Configuration()
    configuration.defaultLifetime = .week
    let cache = try Store.openOrCreate(at: here + "cache", configuration: configuration)
    try cache.put("page", "<p>…")  // a week
    // end
    #expect(try cache.deadline(of: "page") != nil)
    // snippet
    try store.expire("session/7", .after(.hour))  // an hour from now on
    try store.expire("offer", .at(midnight + 1))
    try store.expire("session/7", .never)  // it stays
    let deadline = try store.deadline(of: "session/7")  // nil: it has none
    // end
    #expect(deadline == nil)
    #expect(try store.deadline(of: "offer") == midnight + 1)
    // snippet
    let isMine =
      try store.put("lease/7", "worker-a", expecting: .absent, expiration: .after(.seconds(10))) != nil
    let isStillMine = try store.expire("lease/7", .after(.seconds(10)))  // renewed
    // end
    #expect(isMine && isStillMine)
    // snippet
    try store.transaction { transaction in
      guard try transaction.get("lease/7", as: String.self) == "worker-a" else { return }
      try transaction.put("result/7", 42)
      try transaction.delete("lease/7")
    }
    // end
    #expect(try store.delete("result/7"))
    // snippet
    let counts = try store.keyCounts()
    print(counts.live, counts.expired, counts.withDeadline, counts.all)
    // end
    #expect(counts.all == 4 && counts.withDeadline == 2)
    try cache.close()
    try store.close()
  }
}
