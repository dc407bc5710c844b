import SyncStore

/// The articles of the documentation site about the command line: a catalogue for `docc`.
struct SiteArticles {
  /// Commands by their use, for the landing page. Those that are in no group come last.
  private static let groups: [(title: String, names: StringSet)] = [
    ("A store", ["init", "status", "verify", "bundle", "compact", "digest", "rekey", "destroy"]),
    (
      "Keys and values",
      ["put", "get", "delete", "list", "count", "du", "expire", "ttl", "mv", "cp", "edit"]
    ),
    ("Files and lines", ["import", "export", "load", "dump"]),
    ("Changes and conflicts", ["watch", "log", "why", "conflicts"]),
    ("Large values", ["policy", "trim"]), ("Backups", ["backup", "restore"]),
    ("Other copies", ["push", "pull", "sync", "relay", "diff", "unsent", "serve"]),
    ("Members", ["invite", "join", "peer", "clock"]), ("At the prompt", ["shell", "completions"]),
  ]

  /// The name of the landing page, and of the catalogue.
  static let name = "CommandLine"
  private let commands: [Command]
  /// The schema of the daemon's configuration, in Markdown.
  private let configuration: String?

  init(_ commands: [Command], configuration: String?) {
    (self.commands, self.configuration) = (commands, configuration)
  }

  /// The files of the catalogue.
  var pages: [ManualPages.Page] {
    let articles: [(name: String, text: String)] =
      [
        (Self.name, landing), ("ExitCodes", exitCodes), ("JSONLines", lines), ("Environment", environment),
        ("RunningAsAService", service), ("Monitoring", monitoring),
      ] + commands.map { (ReferenceText.page(of: $0), article($0)) }
      + (configuration.map { [("Configuration", $0)] } ?? [])
    return articles.map { ManualPages.Page(file: "\($0.name).md", text: $0.text) }
  }

  private static func link(_ command: Command) -> String { "<doc:\(ReferenceText.page(of: command))>" }

  // MARK: - Pages on all commands

  private var landing: String {
    var page = Markdown(
      "Command line", summary: "A page for each command of sync-cli, and what all of them share.")
    page.paragraph("@Metadata {\n  @TechnologyRoot\n}")
    page.section("Overview")
    page.plain(ReferenceText.description)
    page.paragraph("Two copies of a store on one machine:")
    page.code(ReferenceText.example, language: "sh")
    page.section("Options of every command")
    for option in Help.globals {
      page.entry(Markdown.code(option.usage), Markdown.words(option.help.sentence))
    }
    page.section("Topics")
    page.section("What all commands share", level: 3)
    let shared = ["ExitCodes", "JSONLines", "Environment", "RunningAsAService", "Monitoring"]
    for name in shared + (configuration == nil ? [] : ["Configuration"]) { page.item("<doc:\(name)>") }
    for (title, members) in grouped {
      page.section(title, level: 3)
      for command in members { page.item(Self.link(command)) }
    }
    return page.text
  }

  private var grouped: [(title: String, commands: [Command])] {
    func members(_ isMember: (String) -> Bool) -> [Command] {
      commands.filter { isMember($0.family ?? $0.name) }
    }
    return
      (Self.groups.map { group in (group.title, members(group.names.contains)) }
      + [("More commands", members { name in !Self.groups.contains { $0.names.contains(name) } })]).filter {
        !$0.1.isEmpty
      }
  }

  private var exitCodes: String {
    var page = Markdown("Exit codes", summary: "The numbers with which every command ends, for scripts.")
    page.section("Overview")
    page.table(
      ["code", "meaning"],
      ExitCode.allCases.map { ["\($0.rawValue)", Markdown.escaped($0.meaning.sentence)] })
    page.plain(Help.manyItems)
    return page.text
  }

  private var lines: String {
    var page = Markdown("JSON of every command", summary: "The members of the objects that --json prints.")
    page.section("Overview")
    page.plain(ReferenceText.json)
    for command in commands where !command.json.isEmpty {
      page.section("sync-cli \(command.name)")
      Self.add(command.json, to: &page, below: 2)
    }
    return page.text
  }

  private var environment: String {
    var page = Markdown("Environment", summary: "The variables that sync-cli reads.")
    page.section("Overview")
    page.table(
      ["variable", "meaning"], ReferenceText.variables.map { [Markdown.code($0), Markdown.words($1)] })
    return page.text
  }

  private var service: String {
    var page = Markdown(
      "Running as a service",
      summary: "The daemon of a store under a service manager: units, signals, logs. Also sync-store(8).")
    for block in ServicePage.blocks { page.add(block) }
    page.section("See also")
    for command in commands
    where [ServeCommand.command.name, StatusCommand.command.name].contains(command.name) {
      page.item(Self.link(command))
    }
    return page.text
  }

  private var monitoring: String {
    var page = Markdown(
      "Monitoring", summary: "The daemon's pages over HTTP: health, metrics and the state of the copy.")
    page.section("Overview")
    for paragraph in ReferenceText.monitoring { page.plain(paragraph) }
    page.section("Pages")
    page.table(
      ["path", "answer"], ReferenceText.httpPages.map { [Markdown.code($0), Markdown.words($1)] })
    page.section("Checks")
    page.table(
      ["check", "fails if"], HealthCheck.meanings.map { [Markdown.code($0), Markdown.words($1)] })
    page.section("status.json")
    Self.add(JSONReference.statusPage, to: &page, below: 2)
    page.section("Metrics")
    page.table(
      ["name", "type", "meaning"],
      MetricFamily.all.map { family in
        let labels = family.labels.isEmpty ? "" : "{\(family.labels.joined(separator: ", "))}"
        return [
          Markdown.code(MetricFamily.fullName(of: family.name) + labels), family.kind.rawValue,
          Markdown.words(family.help),
        ]
      })
    return page.text
  }

  // MARK: - A command

  private func article(_ command: Command) -> String {
    var page = Markdown("sync-cli \(command.name)", summary: command.summary.sentence)
    page.section("Overview")
    page.code([command.usage])
    page.plain(command.notes)
    if !command.aliases.isEmpty {
      let names = command.aliases.map(Markdown.code).joined(separator: " or ")
      page.paragraph("It can also be called \(names).")
    }
    if !command.options.isEmpty {
      page.section("Options")
      for option in command.options {
        let name = Markdown.code(option.usage) + (option.repeats ? " …" : "")
        page.entry(name, Markdown.words(option.help.sentence))
      }
    }
    page.paragraph("<doc:\(Self.name)> lists the options of every command.")
    if !command.json.isEmpty {
      page.section("JSON")
      page.paragraph("With `--json` each line is one object.")
      Self.add(command.json, to: &page, below: 2)
    }
    page.section("Exit codes")
    page.paragraph("0 if it is done; <doc:ExitCodes> lists the others.")
    let related = ReferenceText.related(command, among: commands)
    if !related.isEmpty {
      page.section("Related commands")
      for other in related { page.item(Self.link(other)) }
    }
    return page.text
  }

  private static func add(_ lines: [JSONLine], to page: inout Markdown, below level: Int) {
    for line in lines {
      page.section(String(line.title.sentence.dropLast()), level: level + 1)
      page.table(
        ["member", "value", "meaning"],
        line.paths.map { path, member in
          [Markdown.code(path), Markdown.escaped(member.form.words), Markdown.words(member.sentences)]
        })
    }
  }
}
