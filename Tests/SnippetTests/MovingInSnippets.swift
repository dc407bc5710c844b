import SyncStore
import Testing

/// The code of `MovingIn.md`. `GuideTests` checks that both are equal.
@Suite struct MovingInSnippets {
  private let scratch = Scratch()
  private var here: String { scratch.path + "/" }

  @Test("the examples of the page behave as described")
  func run() throws {
    let store = try Store.create(at: here + "store")
    try scratch.write("notes.txt", Array("milk".utf8))
    let preferences = #"<plist version="1.0"><dict><key>volume</key><integer>7</integer></dict></plist>"#
    try scratch.write("preferences.plist", Array(preferences.utf8))
    let other = try Store.create(at: here + "old")
    try other.put("order/1", "3 apples")
    try other.close()
    // snippet
    func takeIn(_ path: String) throws -> ImportReport {
      let file = try MMKVFile(path: path)
      return try store.importAll(from: file, prefix: "settings/") { key in
        key.hasPrefix("count") ? .integer : .string
      }
    }
    // end
    #expect(throws: StoreError.self) { try takeIn(here + "nothing") }
    // snippet
    let imported = try store.importAll(fromPropertyListAt: here + "preferences.plist", prefix: "preferences/")
    print(imported.imported, imported.skipped)
    // end
    #expect(try store.get("preferences/volume", default: 0) == 7)
    // snippet
    struct Person: Codable, Identifiable, Sendable {
      let id: Int
      var name: String
    }

    func takeIn(_ rows: some Sequence<Person>) throws {
      let people = try store.collection("people", of: Person.self)
      var batch: [Person] = []
      for row in rows {
        batch.append(row)
        if batch.count == 1000 {
          try people.insertOrReplace(contentsOf: batch)
          batch.removeAll(keepingCapacity: true)
        }
      }
      try people.insertOrReplace(contentsOf: batch)
    }
    // end
    try takeIn((1...2500).map { Person(id: $0, name: "\($0)") })
    #expect(try store.collection("people", of: Person.self).count == 2500)
    // snippet
    try store.put("files/notes.txt", fileAt: here + "notes.txt")
    // end
    #expect(try store.get("files/notes.txt")?.bytes.count == 4)
    // snippet
    let old = try Store.open(at: here + "old", configuration: Configuration(mode: .readOnly))
    let report = try store.importAll(from: old, KeyRange(prefix: "order/"), conflict: .keep)
    print(report.imported, report.kept)
    // end
    #expect(try store.get("order/1", as: String.self) == "3 apples")
    try old.close()
    try store.close()
  }
}
