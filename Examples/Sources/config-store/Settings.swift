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
  /// The place in the journal up to which changes were seen.
  private var position: UInt64 = 0

  /// Opens the store, or makes it if it is not there; all processes do so in shared mode.
  init(at path: String) throws {
    let shared = Configuration(mode: .shared)
    let isThere = try Store.exists(at: path)
    store =
      isThere
      ? try Store.open(at: path, configuration: shared) : try Store.create(at: path, configuration: shared)
    // Position first: what changes from now on is seen again by `reload`.
    position = try store.status().position
    for entry in try store.list(KeyRange(prefix: Self.prefix)) { try take(entry.key) }
  }

  /// Takes over what has changed since the last call, and names those keys. Costs what was written meanwhile, and nothing
  /// if nothing was.
  func reload() throws -> Set<Key> {
    var changed: Set<Key> = []
    while case let records = try store.log(from: position + 1, limit: 1000), let last = records.last {
      changed.formUnion(records.compactMap(\.key).filter(KeyRange(prefix: Self.prefix).contains))
      position = last.position
    }
    for key in changed { try take(key) }
    return changed
  }

  /// One property, as the store has it now; its default if it was deleted. A value of another type is an error, and the
  /// property stays what it was.
  private func take(_ key: Key) throws {
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
  /// nobody was faster.
  func change<Content: Codable>(
    _ key: Key, from initial: Content, _ body: (Content) -> Content
  ) throws -> Content {
    while true {
      let seen = try store.versioned(key)
      let present = try seen.map {
        try EncodedValue(bytes: $0.value.bytes, type: $0.value.type).decoded(as: Content.self)
      }
      let next = body(present ?? initial)
      let expected: Expected = seen.map { .version($0.version) } ?? .absent
      if try store.put(key, next, expecting: expected) != nil { return next }
    }
  }
}
