import DemoSupport
import SyncStore

/// What a worker is told by its configuration. Each property is a key of its own, so that two people who change different
/// ones, here or on different copies, do not undo each other's work.
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
  /// Keys whose values could not be taken over, and why: their properties are what they were before.
  private(set) var refused: [Key: any Error] = [:]
  /// The place in the journal up to which changes were seen.
  private var position: ChangePosition

  /// Opens the store, or makes it if it is not there; all processes do so in shared mode.
  init(at path: String) throws {
    store = try Store.openOrCreate(at: path, configuration: Configuration(mode: .shared))
    // Position first: what changes from now on is seen again by `follow`.
    position = try store.changePosition()
    for entry in try store.list(KeyRange(prefix: Self.prefix)) { take(entry.key) }
  }

  /// Takes over what changes, by whatever process, as it changes, and names each key. Waits without a thread; goes on until its
  /// task is cancelled, or `hasChanged` throws. A value of another type does not end it: it is in `refused` then.
  func follow(_ hasChanged: (Key) throws -> Void) async throws {
    for try await change in try store.changes(prefix: Self.prefix, from: position) {
      position = change.position
      take(change.key)
      try hasChanged(change.key)
    }
  }

  /// One property, as the store has it now; its default if it was deleted. With a value of another type the property stays
  /// what it was, and all others go on: one wrong setting must not end the reload.
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

  /// Changes a property by what it is now, whoever else does so at the same time, in whatever process: tried again until
  /// nobody was faster. (`Store.update` keeps the others out meanwhile; this holds up nobody.)
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
