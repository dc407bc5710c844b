import Replication
import SyncStore

/// The configuration of a daemon: that of its file, and the options that override it.
struct LoadedConfiguration {
  private(set) var configuration: ServeConfiguration
  private let file: ConfigurationFile?

  /// Reads the file that is named, if any. Without `waiting`, a pipe without a writer is an error.
  init(_ invocation: Invocation, waiting: Bool = true) throws {
    let named = try Self.path(invocation)
    file = try named.map { path in try ConfigurationFile(at: path, waiting: waiting) }
    configuration = file?.configuration ?? ServeConfiguration()
    if let listen = invocation.value("listen") {
      guard let endpoint = Endpoint(listen.text) else {
        throw invocation.usage(
          "--listen \(listen.shown)", reason: "no address",
          advice: "write host:port, or :port for every address")
      }
      configuration.listen = endpoint
    }
    if let http = invocation.value("http") {
      guard let address = HTTPAddress(http.text) else {
        throw invocation.usage(
          "--http \(http.shown)", reason: "no address",
          advice: "write host:port, such as 127.0.0.1:7421, or unix:PATH")
      }
      configuration.http = address
    }
    if invocation.has("verbose") { configuration.logLevel = .debug }
  }

  private static func path(_ invocation: Invocation) throws -> Argument? {
    guard let operand = invocation.operands.first else { return invocation.value("config") }
    guard !invocation.has("config") else {
      throw invocation.usage(
        operand.shown, reason: "--config names another configuration", advice: "leave out one")
    }
    return operand
  }

  /// All mistakes of the file.
  var mistakes: [ConfigurationMistake] { file?.mistakes ?? [] }

  /// A mistake for each name in `peers` that no peer and no member has.
  func unknownPeers(in store: Store) throws -> [ConfigurationMistake] {
    guard let file else { return [] }
    return try configuration.unknownPeers(in: store).map(file.mistake)
  }

  /// The invocation, as if `--passphrase-file` named the file of the configuration: unless it names one, or
  /// the store needs none.
  func withPassphraseFile(_ invocation: Invocation) throws -> Invocation {
    guard let path = configuration.passphraseFile, !invocation.has(Secrets.option.name),
      try Store.isEncrypted(at: invocation.storePath())
    else { return invocation }
    var values = invocation.values
    values[Secrets.option.name] = [Argument(path)]
    return Invocation(
      command: invocation.command, operands: invocation.operands, values: values, shell: invocation.shell)
  }
}

/// `serve --check`: all mistakes of the configuration at once, then the store.
enum ServeCheck {
  static func run(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    let loaded = try LoadedConfiguration(invocation)
    try report(loaded.mistakes, invocation, output)
    try loaded.withPassphraseFile(invocation).withStore(toWrite: false) { store in
      _ = try StoreKeys(store).identity()
      try report(loaded.unknownPeers(in: store), invocation, output)
    }
    let configuration = loaded.configuration
    try invocation.report(
      "the configuration is good: would listen on \(configuration.listen)",
      json: ["listen": .string("\(configuration.listen)"), "log": .string(configuration.logFormat.rawValue)],
      output)
    return .done
  }

  /// Ends the command if there are mistakes.
  private static func report(
    _ mistakes: [ConfigurationMistake], _ invocation: Invocation, _ output: Output
  ) throws {
    guard let last = mistakes.last else { return }
    if invocation.wantsJSON {
      for mistake in mistakes { try output.line(mistake.json) }
      throw Failure(
        .usage,
        "serve: \(last.file): \(Text.count(mistakes.count, noun: "mistake")): correct what the lines name")
    }
    if let failure = ConfigurationMistake.failure(mistakes) { throw failure }
  }
}
