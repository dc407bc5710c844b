import DemoSupport
import SyncStore

/// `config-store demo`, or its parts separately:
///
///     config-store watch DIR              prints what changes, as it changes
///     config-store set DIR KEY VALUE      workers, timeout or greeting
///     config-store unset DIR KEY
///     config-store route DIR PATH BACKEND
///     config-store raise DIR COUNT        raises `workers` by one, COUNT times
@main
struct ConfigStore {
  static func main() async { await reportingErrors(run) }

  static func run() async throws {
    let words = Array(CommandLine.arguments.dropFirst())
    guard words.count > 1 else { return try await withScratch(demo) }
    let settings = try SettingsStore(at: words[1])
    switch (words[0], words.count) {
    case ("watch", 2): try await watch(settings)
    case ("set", 4): try set(settings.store, words[2], words[3])
    case ("unset", 3): try settings.store.delete(Key(SettingsStore.prefix + words[2]))
    case ("route", 4):
      _ = try settings.change("config/routes", from: [Settings.Route]()) { routes in
        routes.filter { $0.path != words[2] } + [Settings.Route(path: words[2], backend: words[3])]
      }
    case ("raise", 3):
      for _ in 0..<(Int(words[2]) ?? 0) {
        _ = try settings.change("config/workers", from: Settings().workers) { $0 + 1 }
      }
    default: throw DemoFailure("what is \(words)? see the comment at the top of this file")
    }
    try settings.store.close()
  }

  /// Each value has its property's type: a reader cannot misinterpret it.
  private static func set(_ store: Store, _ name: String, _ text: String) throws {
    switch (name, Int(text), Double(text)) {
    case ("workers", let number?, _): try store.put("config/workers", number)
    case ("timeout", _, let number?): try store.put("config/timeout", number)
    case ("greeting", _, _): try store.put("config/greeting", text)
    default: throw DemoFailure("\(name) cannot be \(text)")
    }
  }

  /// A worker that applies configuration changes.
  private static func watch(_ configuration: SettingsStore) async throws {
    say("begins with \(line(configuration.settings))")
    try await configuration.follow { key in
      if let error = configuration.refused[key] { return say("refused: \(key): \(error)") }
      say("changed: \(key)")
      say("now \(line(configuration.settings))")
    }
  }

  private static func line(_ settings: Settings) -> String {
    "workers \(settings.workers), timeout \(settings.timeout), greeting \(settings.greeting), "
      + "routes \(settings.routes.map { "\($0.path) to \($0.backend)" })"
  }

  static func demo(_ scratch: String) async throws {
    let path = scratch + "/config"
    say("Three workers watch one store.")
    try SettingsStore(at: path).store.close()
    var workers = try (0..<3).map { _ in try Program(in: scratch, "watch", path) }
    for worker in workers { _ = try await worker.line("begins with workers 4") }

    say("Another process changes two settings.")
    try await Program(in: scratch, "set", path, "timeout", "9.5").finish()
    try await Program(in: scratch, "route", path, "/shop", "10.0.0.7").finish()
    for worker in workers {
      _ = try await worker.line("now workers 4, timeout 9.5, greeting hello, routes [\"/shop")
    }
    say("  ok: all three have taken them over, without a restart")

    say("Four processes raise one number by 50 each, at the same time; a worker is killed meanwhile.")
    let raisers = try (0..<4).map { _ in try Program(in: scratch, "raise", path, "50") }
    workers.removeLast().kill()
    for raiser in raisers { try await raiser.finish() }
    for worker in workers { _ = try await worker.line("now workers 204") }
    say("  ok: it is 204 everywhere: compare and set has lost none")

    say("A setting is deleted; one gets a value of a wrong type.")
    try await Program(in: scratch, "unset", path, "timeout").finish()
    for worker in workers { _ = try await worker.line("now workers 204, timeout 2.5") }
    say("  ok: the default counts again")
    let settings = try SettingsStore(at: path)
    let before = settings.settings
    try settings.store.put("config/workers", "many")
    for worker in workers { _ = try await worker.line("refused: config/workers") }
    struct Enough: Error {}
    do { try await settings.follow { _ in throw Enough() } } catch is Enough {}
    let isRefused = (settings.refused["config/workers"] as? StoreError)?.code == .wrongType
    try check(isRefused && settings.settings == before, "a text is refused where a number belongs")
    try settings.store.put("config/greeting", "good day")
    for worker in workers { _ = try await worker.line("now workers 204, timeout 2.5, greeting good day") }
    say("  ok: the others are still taken over")
    try settings.store.close()
    say("config-store: all is well")
  }
}
