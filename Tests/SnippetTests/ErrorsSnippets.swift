import SyncStore
import Testing

/// The code of `Errors.md`. `GuideTests` checks that both are equal.
@Suite struct ErrorsSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.create(at: here + "store")
    try write(store)
    #expect(try store.contains("order/1"))
    // snippet
    let status = try store.status()
    print(status.keys, status.liveBytes, status.journalBytes, status.damagedPlaces)
    if let warning = store.clockWarning { print(warning) }
    let report = try store.verify()
    print(report.isClean, report.damage)
    // end
    #expect(report.isClean)
    #expect(status.keys == 1)
    try store.close()
    #expect(throws: StoreError.self) { try write(store) }
  }

  private func write(_ store: Store) throws {
    // snippet
    do {
      try store.put("order/1", "3 apples")
    } catch {
      switch error.code {
      case .diskFull: print("make room: \(error)")
      case .poisoned, .inputOutput: print("open the store again: \(error)")
      default: throw error
      }
    }
    // end
  }

  /// Compiled, not run: the log belongs to the whole process, and other tests read it.
  private func listen() {
    // snippet
    StoreLog.redirect(from: .warning) { entry in
      print(entry.level, entry.path, entry.message)
    }
    // end
  }
}
