import SyncTestSupport
import Testing

@testable import SyncStore

/// Taking back the keys of a prefix from a backup.
@Suite("Keys restored from a backup")
struct KeyRestorationTests {
  private static let file = "/store.backup"
  let host = SimulatedHost()

  /// A store with a backup, after which keys were changed, deleted and added, within the prefix and outside.
  private func changed() throws -> Store {
    let store = try Store.create(on: host, configuration: Configuration(blobThreshold: 4096))
    for key in ["a/kept", "a/changed", "a/deleted", "a/typed", "b/changed"] {
      try store.put(Key(key), "old \(key)")
    }
    try store.put("a/large", [UInt8](repeating: 1, count: 300_000))
    try store.put("a/large kept", [UInt8](repeating: 2, count: 300_000))
    try store.put("a/lease", [1], expiration: .at(host.time + 60_000))
    _ = try store.backUp(to: Self.file)
    for key in ["a/changed", "b/changed", "a/added", "b/added"] { try store.put(Key(key), "new") }
    try store.put("a/typed", Array("old a/typed".utf8), type: .bytes)
    try store.put("a/lease", [1])
    try store.put("a/large", [UInt8](repeating: 3, count: 300_000))
    _ = try store.delete("a/deleted")
    return store
  }

  private static func lines(_ restoration: KeyRestoration) -> [String] {
    restoration.changes.map { "\($0.kind) \($0.key)" }
  }

  /// What is next to the store.
  private func names() throws -> [String] { try host.storage.list("/").sorted() }

  @Test("are those of the prefix that differ; values, types and deadlines come back as new writes")
  func values() throws {
    let store = try changed()
    let before = try names()
    let position = try store.status().position
    let report = try store.withRestoration(ofKeys: Array("a/".utf8), from: Self.file) { past in
      #expect(
        Self.lines(past) == [
          "differs a/changed", "missing a/deleted", "differs a/large", "differs a/lease", "differs a/typed",
          "added a/added",
        ])
      #expect(past.unchanged == 2)
      return try past.restoreValues()
    }
    #expect(report.restored == 5 && report.overtaken.isEmpty && report.unreadable.isEmpty)
    #expect(report.bytes == 300_000 + 1 + 13 + 13 + 11)
    #expect(try store.text("a/changed") == "old a/changed" && store.text("a/deleted") == "old a/deleted")
    #expect(try store.get("a/large")?.bytes == [UInt8](repeating: 1, count: 300_000))
    #expect(try store.entry("a/lease")?.deadline != nil && store.entry("a/typed")?.type == .string)
    #expect(try store.text("a/added") == "new" && store.text("b/changed") == "new")
    #expect(try store.status().position == position + 5)
    #expect(try store.verify().isClean)
    #expect(try names() == before)
    // Nothing is left to be done.
    try store.withRestoration(ofKeys: Array("a/".utf8), from: Self.file) { past in
      #expect(Self.lines(past) == ["added a/added"])
    }
  }

  @Test("go with `deleteAdded` if the backup does not have them, and only within the prefix")
  func deletes() throws {
    let store = try changed()
    let report = try store.withRestoration(ofKeys: Array("a/".utf8), from: Self.file) { past in
      try past.deleteAdded()
    }
    #expect(report.restored == 1)
    #expect(try store.get("a/added") == nil && store.text("b/added") == "new")
    #expect(try store.text("a/changed") == "new")
  }

  @Test("are left alone if someone writes them after the comparison")
  func overtaken() throws {
    let store = try changed()
    let (written, deleted) = try store.withRestoration(ofKeys: [], from: Self.file) { past in
      try store.put("a/changed", "newest")
      try store.put("a/deleted", "newest")
      try store.put("a/large", "newest")
      try store.put("a/added", "newest")
      return (try past.restoreValues(), try past.deleteAdded())
    }
    #expect(Set(written.overtaken) == ["a/changed", "a/deleted", "a/large"])
    #expect(written.restored == 3 && deleted.overtaken == ["a/added"] && deleted.restored == 1)
    for key: Key in ["a/changed", "a/deleted", "a/large", "a/added"] {
      #expect(try store.text(key) == "newest")
    }
    #expect(try store.text("b/changed") == "old b/changed" && store.get("b/added") == nil)
  }

  @Test("come from the state that is named")
  func state() throws {
    let store = try Store.create(on: host)
    for text in ["first", "second"] {
      try store.put("k", text)
      _ = try store.backUp(to: Self.file)
    }
    try store.put("k", "third")
    for (state, text) in [(1, "first"), (2, "second")] {
      _ = try store.withRestoration(ofKeys: [], from: Self.file, state: state) { try $0.restoreValues() }
      #expect(try store.text("k") == text)
    }
    let error = #expect(throws: StoreError.self) {
      try store.withRestoration(ofKeys: [], from: Self.file, state: 3) { _ in }
    }
    #expect(error?.code == .outOfBounds)
  }

  @Test("are refused from the backup of another store, and nothing is left next to this one")
  func otherStore() throws {
    let other = try Store.create("/other", on: host)
    try other.put("k", "theirs")
    _ = try other.backUp(to: Self.file)
    let store = try Store.create(on: host)
    let before = try names()
    let error = #expect(throws: StoreError.self) {
      try store.withRestoration(ofKeys: [], from: Self.file) { _ in }
    }
    #expect(error?.code == .foreignFile && error?.message.contains("another store") == true)
    #expect(try names() == before)
  }

  @Test("need the passphrase of the backup's moment, not that of today")
  func passphrases() throws {
    let host = SimulatedHost(encrypted: true)
    let store = try Store.create(on: host)
    try store.put("k", "old")
    _ = try store.backUp(to: Self.file)
    try store.put("k", "new")
    try store.changePassphrase(to: Passphrase("another"))
    let error = #expect(throws: StoreError.self) {
      try store.withRestoration(ofKeys: [], from: Self.file, passphrase: Passphrase("another")) { _ in }
    }
    #expect(error?.code == .wrongKey)
    _ = try store.withRestoration(ofKeys: [], from: Self.file) { try $0.restoreValues() }
    #expect(try store.text("k") == "old")
    #expect(try !host.storage.list("/").contains("store.comparing"))
  }

  @Test(
    "of a call that was killed leave a directory, which the next call or the removal of the store deletes")
  func killed() throws {
    for removes in [false, true] {
      let host = SimulatedHost()
      var store = try Store.create(on: host)
      try store.put("k", "old")
      _ = try store.backUp(to: Self.file)
      // As after a kill within the closure.
      for path in ["/store.comparing", "/store.restoring", "/store.comparing.restoring"] {
        _ = try Store.restore(
          from: Self.file, to: path, state: nil, replacing: false, environment: host.environment)
      }
      host.killProcesses()
      store = try Store.open(on: host)
      if removes {
        try store.close()
        #expect(try Store.remove(at: "/store", host.storage))
        #expect(try host.storage.list("/") == ["store.backup"])
      } else {
        try store.withRestoration(ofKeys: [], from: Self.file) { #expect($0.unchanged == 1) }
        #expect(try !host.storage.list("/").contains { $0.hasPrefix("store.comparing") })
      }
    }
  }

  @Test("are refused on a read-only member and in a store opened to be read, after the comparison")
  func readOnly() throws {
    let store = try changed()
    try store.close()
    let reader = try Store.open(on: host, configuration: Configuration(mode: .readOnly))
    try reader.withRestoration(ofKeys: Array("a/".utf8), from: Self.file) { past in
      #expect(past.changes.count == 6)
      #expect(#expect(throws: StoreError.self) { try past.restoreValues() }?.code == .readOnly)
    }
  }
}
