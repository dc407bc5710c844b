import Replication
import SyncStore

/// Access to the store and to the global options, for most commands.
extension Invocation {
  var wantsJSON: Bool { has("json") }
  var isQuiet: Bool { has("quiet") }
  /// Whether to show a progress bar: only on a terminal.
  var showsProgress: Bool { !isQuiet && !has("no-progress") && System.isTerminal(2) }

  /// Configuration of a node that serves one command: logs warnings, and everything with `--verbose`.
  var nodeConfiguration: Node.Configuration {
    let isVerbose = has("verbose")
    var configuration = Node.Configuration { level, line in
      if isVerbose || level <= .warning { Diagnostics.report(line) }
    }
    configuration.opensRelay = RelayStores.open
    return configuration
  }

  /// The directory of the store, without trailing slashes: otherwise files to be made next to it would be
  /// made inside it.
  func storePath() throws -> String {
    var path = try namedStorePath()
    while path.utf8.count > 1, path.unicodeScalars.last == "/" { path.unicodeScalars.removeLast() }
    return path
  }

  private func namedStorePath() throws -> String {
    if let argument = value("store") {
      guard !argument.bytes.isEmpty else {
        throw usage("--store", reason: "it is empty", advice: "name a directory")
      }
      return try path(argument)
    }
    func variable(_ name: String) throws -> String? {
      try System.environmentBytes(name).map { try path(Argument($0)) }
    }
    if let path = try variable("SYNC_STORE") { return path }
    if let data = try variable("XDG_DATA_HOME") { return data + "/sync-store" }
    guard let home = try variable("HOME") else {
      throw usage(
        "no store is named", reason: "neither SYNC_STORE nor HOME is set", advice: "give --store DIR")
    }
    return home + "/.local/share/sync-store"
  }

  /// Path and configuration to open the store with, in a mode that allows a daemon or service to have it open
  /// too.
  ///
  /// Asks for the passphrase, before anything is opened.
  func opening(toWrite: Bool) throws -> (path: String, configuration: Configuration) {
    var configuration = configuration(toWrite ? .shared : .readOnly)
    let path = try storePath()
    // A passphrase file named by the option is for this store; one in the environment may be for others.
    if try has(Secrets.option.name) || Store.isEncrypted(at: path) {
      let source = value(Secrets.option.name)
      configuration.passphrase =
        try shell?.passphrase(of: path, source) { try Secrets.passphrase(self) } ?? Secrets.passphrase(self)
    }
    return (path, configuration)
  }

  /// The configuration to open a store with, by the global options.
  func configuration(_ mode: Configuration.Mode) -> Configuration {
    Configuration(mode: mode, allowsNetworkFileSystem: has("force-network"))
  }

  /// Opens the store, runs `body` and closes it.
  func withStore<Result>(toWrite: Bool = true, _ body: (Store) throws -> Result) throws -> Result {
    try withStore(try opening(toWrite: toWrite), body)
  }

  /// Opens the store with that path and configuration, runs `body` and closes it.
  func withStore<Result>(
    _ opening: (path: String, configuration: Configuration), _ body: (Store) throws -> Result
  ) throws -> Result {
    let store: Store
    do { store = try Store.open(at: opening.path, configuration: opening.configuration) } catch {
      if error.code == .wrongKey { shell?.forgetPassphrases() }
      throw error
    }
    shell?.note(store, at: opening.path)
    let result: Result
    do {
      result = try body(store)
      if ClockCommand.writers.contains(command.name) { ClockCommand.warn(store) }
    } catch {
      try? store.close()
      throw error
    }
    try store.close()
    return result
  }

  /// Standard input, for a value of `-`.
  func standardInput() throws(Failure) -> Descriptor {
    guard shell == nil else {
      throw usage(
        "-", reason: "in a shell, standard input has the lines of the shell", advice: "name a file instead")
    }
    return Descriptor(standard: 0)
  }

  /// The prefix in an option or an operand; empty if there is none.
  func prefix(_ argument: Argument?) -> [UInt8] { argument?.bytes ?? [] }

  /// Prints a result, as JSON if requested; text is omitted with `--quiet`.
  func report(_ text: String, json: @autoclosure () -> JSON, _ output: Output) throws {
    if wantsJSON { try output.line(json()) } else if !isQuiet { try output.line(text) }
  }

  /// Logs a message if `--verbose` is set.
  func logVerbose(_ text: @autoclosure () -> String) {
    if has("verbose") { Diagnostics.report("\(command.name): \(text())") }
  }
}

/// A step that a dry run shows.
enum PlannedStep: String { case put, delete }

extension Invocation {
  /// Prints a step of a dry run: `+ KEY` or `- KEY`.
  func show(_ key: Key, as step: PlannedStep, _ output: Output) throws {
    guard !wantsJSON else {
      return try output.line(
        JSON.object([KeyLine.member(key.bytes)]).with("action", .string(step.rawValue)))
    }
    try output.write(Array((step == .put ? "+ " : "- ").utf8) + output.shown(key: key.bytes) + [0x0A])
  }
}

/// Lines of JSON about keys.
enum KeyLine {
  /// `key`, or `key_base64` where the key is not UTF-8.
  static func member(_ key: [UInt8]) -> JSON.Member {
    guard let text = String(validating: key, as: UTF8.self) else {
      return JSON.Member(name: "key_base64", value: .string(Base64.encode(key)))
    }
    return JSON.Member(name: "key", value: .string(text))
  }

  /// A key prefix: a text, or an object with `base64` if it is not UTF-8.
  static func prefix(_ bytes: [UInt8]) -> JSON {
    guard let text = String(validating: bytes, as: UTF8.self) else {
      return ["base64": .string(Base64.encode(bytes))]
    }
    return .string(text)
  }

  /// The line of `dump` and `get --json`.
  static func line(_ key: Key, _ value: Value) -> JSON {
    JSON.object([member(key.bytes)] + ValueText.members(value.bytes, value.type))
      .with("expires", value.deadline.map { .integer($0) })
  }

  /// Parses the key of such a line.
  static func key(of line: JSON) throws(Reason) -> [UInt8] {
    switch (line["key"], line["key_base64"]) {
    case (.string(let text), nil): return Array(text.utf8)
    case (nil, .string(let text)):
      guard let bytes = Base64.decode(text) else { throw Reason("\"key_base64\" does not hold base 64") }
      return bytes
    case (nil, nil): throw Reason("neither \"key\" nor \"key_base64\" is there")
    default: throw Reason("the key is no text, or is there twice")
    }
  }
}
