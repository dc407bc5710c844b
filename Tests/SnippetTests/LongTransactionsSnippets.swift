import SyncStore
import Testing

/// The code of `LongTransactions.md`. `GuideTests` checks that both are equal.
@Suite struct LongTransactionsSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  struct Malformed: Error {}

  private func parsed(_ line: String) throws -> Int {
    guard let number = Int(line) else { throw Malformed() }
    return number
  }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.openOrCreate(at: here + "store")
    let lines = ["1", "two", "3"]
    // snippet
    try store.transaction { transaction in
      try transaction.put("import/state", "running")
      for (number, line) in lines.enumerated() {
        do {
          try transaction.nested { transaction in
            try transaction.put(Key("line/\(number)/text"), line)
            try transaction.put(Key("line/\(number)/value"), try parsed(line))
          }
        } catch is Malformed {
          try transaction.put(Key("rejected/\(number)"), line)
        }
      }
    }
    // end
    #expect(try store.list(prefix: Array("line/".utf8)).count == 4)
    #expect(try store.get("rejected/1", as: String.self) == "two")
    // snippet
    try store.transaction { transaction in
      try transaction.put("a", 1)
      let place = transaction.savepoint()
      try transaction.put("b", 2)
      try transaction.rollBack(to: place)  // b was never written
      try transaction.put("c", 3)
    }
    // end
    #expect(try store.contains("a") && !store.contains("b") && store.contains("c"))
    // snippet
    var open = try store.beginTransaction()
    try open.transaction.put("d", 4)
    if try open.transaction.contains("a") {
      try open.commit()
    } else {
      open.rollBack()
    }
    // end
    #expect(try store.get("d", default: 0) == 4)
    try store.put("line/0/text", "one")
    // snippet
    var last: Key?
    let report = try store.pausableTransaction { transaction in
      let page = try store.list(KeyRange(prefix: "line/"), after: last, limit: 500)
      for entry in page where entry.key.description.hasSuffix("/text") {
        try transaction.update(entry.key, default: "") { $0 = $0.uppercased() }
      }
      last = page.last?.key
      return page.count == 500 ? .next : .done
    }
    print(report.steps, report.pauses)
    // end
    #expect(report.steps == 1)
    #expect(try store.get("line/0/text", as: String.self) == "ONE")
    try store.close()
  }
}
