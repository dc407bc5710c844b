import SyncStore
import Testing

/// The code of `StoresAsThings.md`. `GuideTests` checks that both are equal.
@Suite struct StoresAsThingsSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  private func copyFiles(of path: String) throws -> Bool {
    // The store is held exclusively: opening it again fails, as it does for another process.
    #expect(#expect(throws: StoreError.self) { try Store.open(at: path) }?.code == .busy)
    return true
  }

  @Test("the examples of the page behave as described")
  func run() throws {
    // snippet
    let shop = StoreHandle.at(here + "shop")  // nothing is touched yet
    shop.tag = 7
    print(shop.isOpened)  // false
    try shop.withStore { store in  // opened, or made, at the first use
      try store.put("order/1", "3 apples")
    }
    let same = StoreHandle.at(here + "shop")
    print(same === shop, same.tag ?? 0, same.isOpened)  // true 7 true
    // end
    #expect(same === shop && same.tag == 7 && same.isOpened)
    // snippet
    let copied = try shop.close {  // no thread gets in, and no other process
      try copyFiles(of: shop.path)
    }
    try shop.blockade()  // the other threads wait; the store stays open
    print(shop.isBlockaded)  // true
    shop.unblockade()
    try shop.withStore { store in print(try store.get("order/1", default: "")) }  // opened again
    // end
    #expect(copied && shop.isOpened && !shop.isBlockaded)
    // snippet
    print(try shop.sizeOfFiles, try shop.files.count)  // bytes, paths
    let wasThere = try shop.remove()  // closed first; false if there was none
    print(shop.canOpen)  // true: an empty store was made
    // end
    #expect(wasThere)
    #expect(try shop.withStore { try $0.keyCounts().all } == 0)
    try shop.close()
  }
}
