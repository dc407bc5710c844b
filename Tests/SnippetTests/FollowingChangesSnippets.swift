import SyncStore
import Testing

/// The code of `FollowingChanges.md`. `GuideTests` checks that both are equal.
@Suite struct FollowingChangesSnippets {
  private let scratch = Scratch()

  private static func printChanges(_ store: Store) async throws {
    // snippet
    for try await change in try store.changes(prefix: "config/") {
      switch change.kind {
      case .put: print(change.key, "has", change.size, "bytes now")
      case .delete: print(change.key, "is gone")
      }
    }
    // end
  }

  private static func observe(_ store: Store) async throws {
    // snippet
    for try await value in store.observe("config/workers") {
      do {
        let workers = try value?.decoded(as: Int.self) ?? 4
        print("workers:", workers)
      } catch {
        print("the number of workers stays as it was:", error)
      }
    }
    // end
  }

  @Test("a loop receives writes, and ends with its task")
  func loops() async throws {
    let store = try Store.openOrCreate(at: scratch.path + "/store")
    let tasks = [Task { try await Self.printChanges(store) }, Task { try await Self.observe(store) }]
    try store.put("config/workers", "many")
    try store.put("config/workers", 8)
    try store.delete("config/workers")
    for task in tasks {
      task.cancel()
      try await task.value
    }
    try store.close()
  }

  @Test("state first, then changes: none is missed")
  func settings() async throws {
    let store = try Store.openOrCreate(at: scratch.path + "/store")
    try store.put("limit/a", 1)
    try store.put("limit/b", 2)
    // A value of another type, at the start or later, must not end the reload.
    try store.put("limit/c", "none")
    // snippet
    actor Settings {
      private(set) var limits: [Key: Int] = [:]
      private let store: Store

      init(_ store: Store) { self.store = store }

      func follow() async throws {
        let start = try store.changePosition()
        for entry in try store.list(KeyRange(prefix: "limit/")) { take(entry.key) }
        for try await change in try store.changes(prefix: "limit/", from: start) { take(change.key) }
      }

      /// A value of another type leaves this setting as it was, and ends nothing.
      private func take(_ key: Key) {
        do { limits[key] = try store.get(key, as: Int.self) } catch { print(key, "stays as it was:", error) }
      }
    }

    let settings = Settings(store)
    let following = Task {
      do { try await settings.follow() } catch { print("settings are not followed any more:", error) }
    }
    // end
    while await settings.limits != ["limit/a": 1, "limit/b": 2] {
      try await Task.sleep(for: .milliseconds(1))
    }
    try store.put("limit/a", "many")
    try store.put("limit/a", 5)
    try store.put("limit/b", "few")
    try store.delete("limit/b")
    while await settings.limits != ["limit/a": 5] { try await Task.sleep(for: .milliseconds(1)) }
    following.cancel()
    await following.value
    try store.close()
  }

  @Test("resumes after a restart following the last forwarded change")
  func forwarding() async throws {
    let store = try Store.openOrCreate(at: scratch.path + "/store")
    // snippet
    func forward(to send: (Change) async throws -> Void) async throws {
      let kept = try store.get("forwarder/position", as: ChangePosition.self)
      for try await change in try store.changes(prefix: "order/", from: kept ?? .beginning) {
        try await send(change)
        if change.endsTransaction { try store.put("forwarder/position", change.position) }
      }
    }
    // end
    struct Enough: Error {}
    for round in 0..<2 {
      for number in 0..<3 { try store.put(Key("order/\(round)\(number)"), number) }
      var sent: [Key] = []
      do {
        try await forward { change in
          if sent.count == 3 { throw Enough() }
          sent.append(change.key)
          if sent.count == 3 { try store.put("order/end", round) }
        }
      } catch is Enough {}
      // The last change of the previous round was not acknowledged, so it is delivered first.
      #expect(sent.count == 3 && sent.contains(Key(stringLiteral: "order/\(round)0")))
    }
    try store.close()
  }
}
