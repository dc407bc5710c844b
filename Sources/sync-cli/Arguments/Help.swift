/// The texts of `--help`.
enum Help {
  /// Options that every command takes.
  static let globals = [
    Option("store", value: "DIR", "the store (default: $SYNC_STORE, else $XDG_DATA_HOME/sync-store)"),
    Secrets.option,
    Option("json", "one JSON object a line on standard output"),
    Option("quiet", "no figures and no progress; errors are still told"),
    Option("verbose", "say more on standard error"),
    Option("no-progress", "no progress bar"),
    Option("force-network", "open a store on a network file system that no other machine uses"),
    Option("help", "show this, or help on the command"),
    Option("version", "show the version"),
  ]

  /// Help on everything.
  static func overview(of commands: [Command]) -> String {
    let width = commands.map(\.name.count).max() ?? 0
    let lines = commands.map { "  \(padded($0.name, width))  \($0.summary)" }
    return """
      usage: sync-cli [OPTION…] COMMAND [OPTION…] [OPERAND…]

      An offline-first store of keys and values that comes into step with its copies whenever it can reach one.

      commands:
      \(lines.joined(separator: "\n"))

      options of every command:
      \(table(globals))

      exit codes: \(ExitCode.allCases.map { "\($0.rawValue) \($0.meaning)" }.joined(separator: ", ")).
      "sync-cli help COMMAND" tells more about one command.

      \(manyItems)

      """
  }

  /// How commands over many items end.
  static let manyItems = """
    A command over many items (files, keys, lines, peers) does all that can be done, names each failure on
    standard error (up to \(ItemFailures.named) of them) and ends with the code of the worst: 70, 5, 7, 8, 3,
    4, 6, 2, 1, from the worst on. With --strict the first failure ends it.
    """

  /// Help on one command.
  static func text(of command: Command) -> String {
    var text = "usage: \(command.usage)\n\n\(command.summary)\n"
    if !command.aliases.isEmpty { text += "\nalso called: \(command.aliases.joined(separator: ", "))\n" }
    if !command.notes.isEmpty { text += "\n\(command.notes)\n" }
    if !command.options.isEmpty { text += "\noptions:\n\(table(command.options))\n" }
    if !command.json.isEmpty {
      text += "\nman \(ReferenceText.page(of: command)) describes the members of its --json\n"
    }
    return text + "\noptions of every command:\n\(table(globals))\n"
  }

  private static func table(_ options: [Option]) -> String {
    let width = options.map(\.usage.count).max() ?? 0
    return options.map { "  \(padded($0.usage, width))  \($0.help)" }.joined(separator: "\n")
  }

  private static func padded(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.count))
  }
}
