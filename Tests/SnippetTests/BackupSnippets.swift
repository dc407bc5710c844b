import SyncStore
import Testing

/// The code of `BackupAndRestore.md`. `GuideTests` checks that both are equal.
@Suite struct BackupSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.create(at: here + "shop")
    try store.put("order/1", "3 apples")
    // snippet
    let first = try store.backUp(to: here + "shop.backup")  // all of it
    try store.put("order/2", "5 pears")
    let second = try store.backUp(to: here + "shop.backup")  // what came since
    print(first.isFull, second.isFull, second.records)  // true false …
    // end
    #expect(first.isFull)
    #expect(!second.isFull)
    #expect(second.records > 0)
    // snippet
    let summary = try Store.backupSummary(of: here + "shop.backup")
    for state in summary.states { print(state.time, state.position, state.bytes) }
    try Store.verifyBackup(here + "shop.backup")  // reads all of it
    // end
    #expect(summary.states.count == 2)
    // snippet
    let report = try Store.restore(from: here + "shop.backup", to: here + "restored", state: 1)
    print(report.name, report.position)
    let restored = try Store.open(at: here + "restored")
    // end
    #expect(try restored.contains("order/1"))
    #expect(try !restored.contains("order/2"))
    try restored.close()
    try takeBack(store)
    // snippet
    try Store.move(from: here + "restored", to: here + "moved")
    // end
    #expect(try Store.exists(at: here + "moved") && !Store.exists(at: here + "restored"))
    try store.close()
  }

  private func takeBack(_ store: Store) throws {
    // snippet
    try store.put("order/1", "a typing error")
    let report = try store.withRestoration(ofKeys: Array("order/".utf8), from: here + "shop.backup") { past in
      for change in past.changes { print(change.kind, change.key) }  // differs order/1
      return try past.restoreValues()
    }
    print(report.restored)  // 1
    // end
    #expect(report.restored == 1)
    #expect(try store.get("order/1")?.bytes == Array("3 apples".utf8))
  }

  @Test("many stores")
  func roots() throws {
    // snippet
    let root = StoreRoot(here + "stores")
    try root.store("shop").withStore { try $0.put("open", true) }
    try root.store("staff").withStore { try $0.put("Ann", 1) }
    let reports = try root.backUpAll(to: here + "backups")
    print(try root.names(), reports.count)  // ["shop", "staff"] 2
    // end
    #expect(try root.names() == ["shop", "staff"])
    #expect(reports.count == 2)
    for name in try root.names() { try root.store(name).close() }
  }
}
