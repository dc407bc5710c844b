/// The manual pages, made from the table of commands.
struct ManualPages {
  /// One file.
  struct Page: Equatable {
    let file: String
    let text: String
  }

  private let commands: [Command]
  private static let source = "sync-cli \(Program.version)"

  init(_ commands: [Command]) { self.commands = commands }

  /// The page of the program, then one for each command.
  var pages: [Page] {
    [Page(file: "sync-cli.1", text: program)]
      + commands.map { Page(file: "\(Self.name($0)).1", text: page($0)) }
  }

  private static func name(_ command: Command) -> String {
    "sync-cli-" + String(command.name.map { $0 == " " ? "-" : $0 })
  }

  // MARK: - The program

  private var program: String {
    var page = Roff(
      "sync-cli", section: 1, summary: "an offline-first store of keys and values", source: Self.source)
    page.section("SYNOPSIS")
    page.paragraph(
      "\(Roff.bold("sync-cli")) [\(Roff.italic("OPTION"))]... \(Roff.italic("COMMAND")) "
        + "[\(Roff.italic("OPTION"))]... [\(Roff.italic("OPERAND"))]...", first: true)
    page.section("DESCRIPTION")
    page.plain(Self.description)
    page.section("COMMANDS")
    for command in commands {
      page.entry(".BR \(Roff.escaped(Self.name(command))) (1)", Roff.escaped(command.summary.sentence))
    }
    page.section("OPTIONS")
    options(Help.globals, &page)
    page.section("EXIT STATUS")
    for code in ExitCode.allCases { page.entry(".B \(code.rawValue)", Roff.escaped(code.meaning.sentence)) }
    page.paragraph(Roff.escaped(Help.manyItems))
    page.section("ENVIRONMENT")
    for (name, text) in Self.variables { page.entry(".B \(Roff.escaped(name))", Roff.escaped(text)) }
    page.section("FILES")
    page.entry(".I \(Roff.escaped("$XDG_DATA_HOME/sync-store"))", "The store, unless another one is named.")
    page.section("EXAMPLES")
    page.plain("Two copies of a store on one machine:")
    page.verbatim(Self.example)
    page.section("SEE ALSO")
    page.pages([("sync-cli-serve", 1), ("sync-cli.conf", 5)])
    return page.text
  }

  private static let description = """
    An offline-first store of keys and values that comes into step with its copies whenever it can reach
    one. Every command works while the daemon of the store runs, except those that replace or remove the
    store.

    Options are long: --name value or --name=value, before or after the command and between its operands;
    -- ends them. Data goes to standard output, messages go to standard error: "sync-cli: what failed: why:
    what to do".
    """

  private static let variables = [
    ("SYNC_STORE", "The directory of the store, unless --store names one."),
    ("SYNC_PASSPHRASE_FILE", "A file whose first line opens an encrypted store."),
    ("SYNC_PASSPHRASE", "The passphrase of an encrypted store, if no file is named."),
    ("SYNC_NEW_PASSPHRASE_FILE", "A file whose first line is the new passphrase, for rekey."),
    ("SYNC_NEW_PASSPHRASE", "The new passphrase for rekey, if no file is named."),
    ("XDG_DATA_HOME", "The directory of the store is sync-store below it, unless one is named."),
    ("HOME", "Stands for XDG_DATA_HOME as its directory .local/share."),
    ("SYNC_COMPLETE_TIMEOUT", "Milliseconds that completion may take to read names from the store: 180."),
    ("NOTIFY_SOCKET", "Where the daemon reports to the service manager: see sd_notify(3)."),
  ]

  private static let example = [
    "sync-cli --store here init --name here",
    "sync-cli --store here put greeting hello",
    "sync-cli --store here serve --listen 127.0.0.1:7420 &",
    "sync-cli --store there join \"$(sync-cli --store here invite)\" --name there",
    "sync-cli --store there get greeting",
  ]

  // MARK: - A command

  private func page(_ command: Command) -> String {
    var page = Roff(Self.name(command), section: 1, summary: command.summary, source: Self.source)
    page.section("SYNOPSIS")
    page.paragraph(Self.synopsis(command), first: true)
    page.section("DESCRIPTION")
    page.plain(command.notes.isEmpty ? command.summary.sentence : command.notes)
    if !command.aliases.isEmpty {
      let names = command.aliases.joined(separator: " or ")
      page.paragraph(Roff.escaped("It can also be called \(names)."))
    }
    page.section("OPTIONS")
    options(command.options, &page)
    let more = "The options of every command are in \\fBsync\\-cli\\fR(1)."
    page.paragraph(more, first: command.options.isEmpty)
    page.section("EXIT STATUS")
    page.paragraph("0 if it is done; the other numbers are in \\fBsync\\-cli\\fR(1).", first: true)
    page.section("SEE ALSO")
    page.pages([("sync-cli", 1)] + related(command).map { (Self.name($0), 1) })
    return page.text
  }

  private static func synopsis(_ command: Command) -> String {
    let options = command.options.map { "[\(option($0))]" + ($0.repeats ? "..." : "") }
    let operands = command.operands.map { operand in
      let name = Roff.italic(operand.name)
      return switch operand.arity {
      case .one: name
      case .optional: "[\(name)]"
      case .many: "[\(name)]..."
      case .some: "\(name)..."
      }
    }
    return ([Roff.bold("sync-cli \(command.name)")] + options + operands).joined(separator: " ")
  }

  private static func option(_ option: Option) -> String {
    Roff.bold("--\(option.name)") + (option.value.map { " " + Roff.italic($0) } ?? "")
  }

  private func options(_ options: [Option], _ page: inout Roff) {
    for option in options { page.entry(Self.option(option), Roff.escaped(option.help.sentence)) }
  }

  /// The commands of the same family, and those that its texts name.
  private func related(_ command: Command) -> [Command] {
    let family = command.family ?? command.name
    let texts = ([command.summary, command.notes] + command.options.map(\.help)).joined(separator: " ")
    return commands.filter { other in
      guard other.name != command.name else { return false }
      return other.name == family || other.family == family || texts.mentions("\"sync-cli \(other.name)")
        || texts.mentions("\"\(other.name)\"")
    }
  }
}

extension String {
  /// With a capital at the beginning and a full stop at the end.
  fileprivate var sentence: String { prefix(1).uppercased() + dropFirst() + (hasSuffix(".") ? "" : ".") }

  fileprivate func mentions(_ words: String) -> Bool {
    let (text, words) = (Array(utf8), Array(words.utf8))
    return text.indices.contains { text[$0...].starts(with: words) }
  }
}
