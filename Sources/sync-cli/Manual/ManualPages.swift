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

  /// The page of the program, one for each command, and that of the service.
  var pages: [Page] {
    [Page(file: "sync-cli.1", text: program)]
      + commands.map { Page(file: "\(ReferenceText.page(of: $0)).1", text: page($0)) } + [ServicePage.manual]
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
    page.plain(ReferenceText.description)
    page.section("COMMANDS")
    for command in commands {
      page.entry(
        ".BR \(Roff.escaped(ReferenceText.page(of: command))) (1)", Roff.escaped(command.summary.sentence))
    }
    page.section("OPTIONS")
    options(Help.globals, &page)
    page.section("JSON")
    page.plain(ReferenceText.json)
    page.section("EXIT STATUS")
    for code in ExitCode.allCases { page.entry(".B \(code.rawValue)", Roff.escaped(code.meaning.sentence)) }
    page.paragraph(Roff.escaped(Help.manyItems))
    page.section("ENVIRONMENT")
    for (name, text) in ReferenceText.variables { page.entry(".B \(Roff.escaped(name))", Roff.escaped(text)) }
    page.section("FILES")
    page.entry(".I \(Roff.escaped("$XDG_DATA_HOME/sync-store"))", "The store, unless another one is named.")
    page.section("EXAMPLES")
    page.plain("Two copies of a store on one machine:")
    page.verbatim(ReferenceText.example)
    page.section("SEE ALSO")
    page.pages([("sync-cli-serve", 1), ("sync-cli.conf", 5), (ServicePage.name, 8)])
    return page.text
  }

  // MARK: - A command

  private func page(_ command: Command) -> String {
    var page = Roff(
      ReferenceText.page(of: command), section: 1, summary: command.summary, source: Self.source)
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
    json(command.json, &page)
    page.section("EXIT STATUS")
    page.paragraph("0 if it is done; the other numbers are in \\fBsync\\-cli\\fR(1).", first: true)
    page.section("SEE ALSO")
    let service =
      command.name == ServeCommand.command.name ? [(ServicePage.name, 8), ("sync-cli.conf", 5)] : []
    page.pages(
      [("sync-cli", 1)] + service
        + ReferenceText.related(command, among: commands).map { (ReferenceText.page(of: $0), 1) })
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

  private func json(_ lines: [JSONLine], _ page: inout Roff) {
    guard !lines.isEmpty else { return }
    page.section("JSON")
    page.paragraph(Roff.escaped("With --json each line is one object."), first: true)
    for line in lines {
      page.paragraph(Roff.escaped("\(line.title.sentence.dropLast()):"))
      for (path, member) in line.paths {
        page.entry(
          "\(Roff.bold(path)) (\(Roff.escaped(member.form.words)))", Roff.escaped(member.sentences))
      }
    }
  }

  private func options(_ options: [Option], _ page: inout Roff) {
    for option in options { page.entry(Self.option(option), Roff.escaped(option.help.sentence)) }
  }
}
