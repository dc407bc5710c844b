import DemoSupport
import SyncStore

/// A worker's configuration. Each property has its own key, so that concurrent changes to different
/// properties, here or on different copies, do not overwrite each other.
struct Settings: Codable, Equatable {
  struct Route: Codable, Equatable {
    var path: String
    var backend: String
  }

  var workers = 4
  var timeout = 2.5
  var greeting = "hello"
  var routes: [Route] = []
}

/// Settings in a store that several processes have open.
final class SettingsStore {
  static let prefix = "config/"

  let store: Store
  private(set) var settings = Settings()
  /// Keys whose values were rejected, with the reason: their properties keep their earlier values.
  private(set) var refused: [Key: any Error] = [:]
  /// The journal position up to which changes were seen.
  private var position: ChangePosition

  /// Opens or creates the store; all processes use shared mode.
  init(at path: String) throws {
    store = try Store.openOrCreate(at: path, configuration: Configuration(mode: .shared))
    // Read the position first: `follow` then repeats changes made from now on instead of missing them.
    position = try store.changePosition()
    for entry in try store.list(KeyRange(prefix: Self.prefix)) { take(entry.key) }
  }

  /// Applies changes made by any process, and reports each key. Waits without a thread, until its task is
  /// cancelled or `hasChanged` throws. A value of another type does not end it: it is added to `refused`.
  func follow(_ hasChanged: (Key) throws -> Void) async throws {
    for try await change in try store.changes(prefix: Self.prefix, from: position) {
      position = change.position
      take(change.key)
      try hasChanged(change.key)
    }
  }

  /// Reads one property from the store; its default if it was deleted. With a value of another type the
  /// property keeps its value, and the others are still applied: one wrong setting must not end the reload.
  private func take(_ key: Key) {
    do {
      try read(key)
      refused[key] = nil
    } catch {
      refused[key] = error
    }
  }

  private func read(_ key: Key) throws {
    let defaults = Settings()
    switch key {
    case "config/workers": settings.workers = try store.get(key, default: defaults.workers)
    case "config/timeout": settings.timeout = try store.get(key, default: defaults.timeout)
    case "config/greeting": settings.greeting = try store.get(key, default: defaults.greeting)
    case "config/routes": settings.routes = try store.get(key, default: defaults.routes)
    default: break
    }
  }

  /// Changes a property based on its current value, with optimistic concurrency across processes: it
  /// retries after a concurrent change. (`Store.update` would block other writers during `body`; this blocks
  /// none.)
  func change<Content: Codable>(
    _ key: Key, from initial: Content, _ body: (Content) -> Content
  ) throws -> Content {
    while true {
      let seen = try store.versioned(key, as: Content.self)
      let next = body(seen?.value ?? initial)
      if try store.put(key, next, expecting: .unchanged(since: seen)) != nil { return next }
    }
  }
}
