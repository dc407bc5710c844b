import SyncStore
import Testing

/// The code of `GettingStarted.md`. `GuideTests` checks that both are equal.
@Suite struct GettingStartedSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let store = try Store.openOrCreate(at: here + "shop")
    // end
    // snippet
    let handle = StoreHandle.at(here + "orders")
    try handle.withStore { store in
      try store.put("greeting", "hello")
    }
    // end
    // snippet
    try store.put("order/1", Array("3 apples".utf8))  // bytes
    try store.put("retries", 5)  // a number, stored as such
    let bytes: [UInt8]? = try store.get("order/1")?.bytes
    let retries = try store.get("retries", default: 3)  // 5
    let name = try store.get("name", as: String.self)  // nil: there is none
    let wasThere = try store.delete("order/1")  // true
    // end
    #expect(bytes?.count == 8)
    #expect(retries == 5)
    #expect(name == nil)
    #expect(wasThere)
    // snippet
    for number in 1...3 {
      try store.put(Key("order/\(number)"), Array("\(number) apples".utf8))
    }
    // end
    // snippet
    for entry in try store.list(prefix: Array("order/".utf8)) {
      print(entry.key, entry.size)  // order/1 8 …
    }
    // end
    #expect(try store.list(prefix: Array("order/".utf8)).map(\.size) == [8, 8, 8])
    // snippet
    try store.put("session/7", "Ann", expiration: .after(.hour))
    // end
    #expect(try store.get("session/7", as: String.self) == "Ann")
    // snippet
    try store.close()
    // end
    try handle.close()
  }
}
