/// Text of an article of the documentation site, in the Markdown that `docc` reads.
struct Markdown {
  private(set) var text: String

  /// Begins an article with its title and the sentence below it.
  init(_ title: String, summary: String) { text = "# \(Self.escaped(title))\n\n\(Self.words(summary))\n" }

  /// Begins a section.
  mutating func section(_ title: String, level: Int = 2) {
    text += "\n\(String(repeating: "#", count: level)) \(Self.escaped(title))\n\n"
  }

  /// Adds Markdown as it is, as a paragraph.
  mutating func paragraph(_ markdown: String) { text += "\n\(markdown)\n" }

  /// Adds paragraphs of plain text, divided by empty lines.
  mutating func plain(_ plain: String) {
    let lines: [Substring] = plain.split(separator: "\n", omittingEmptySubsequences: false)
    for part in lines.split(whereSeparator: \.isEmpty) { paragraph(Self.words(part.joined(separator: " "))) }
  }

  /// Adds an entry of a list.
  mutating func entry(_ term: String, _ markdown: String) { text += "- term \(term): \(markdown)\n" }

  /// Adds an item of a list.
  mutating func item(_ markdown: String) { text += "- \(markdown)\n" }

  /// Adds lines that are shown as they are.
  mutating func code(_ lines: [String], language: String = "") {
    text += "\n```\(language)\n\(lines.joined(separator: "\n"))\n```\n"
  }

  /// Adds a table of Markdown.
  mutating func table(_ columns: [String], _ rows: [[String]]) {
    text += "\n"
    for row in [columns, columns.map { _ in "---" }] + rows {
      text += "| \(row.joined(separator: " | ")) |\n"
    }
  }

  /// Adds a part of the reference.
  mutating func add(_ block: ReferenceText.Block) {
    switch block {
    case .section(let title): section(title.prefix(1) + title.dropFirst().lowercased())
    case .text(let words): paragraph(Self.styled(words))
    case .entry(let term, let words):
      entry(Self.code(term), Self.styled(words.split(separator: "\n").joined(separator: " ")))
    case .code(let lines): code(lines)
    }
  }

  // MARK: - Words

  /// Plain text with code between backticks.
  static func styled(_ text: String) -> String {
    text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
      index.isMultiple(of: 2) ? escaped(String(part)) : code(String(part))
    }.joined()
  }

  /// Plain text in which options, and commands in quotes, are set as code.
  static func words(_ text: String) -> String {
    let parts = text.split(separator: "\"", omittingEmptySubsequences: false).map(String.init)
    return parts.enumerated().map { index, part in
      guard !index.isMultiple(of: 2) else { return options(in: part) }
      guard index < parts.count - 1 else { return "\\\"" + options(in: part) }
      return isCommand(part) ? code(part) : "\\\"\(options(in: part))\\\""
    }.joined()
  }

  private static func isCommand(_ text: String) -> Bool {
    (["sync-cli"] + Program.commands.map(\.name)).contains { text == $0 || text.hasPrefix($0 + " ") }
  }

  private static func options(in text: String) -> String {
    text.split(separator: " ", omittingEmptySubsequences: false).map { word in
      let start = word.firstIndex { $0 != "(" } ?? word.startIndex
      let option = word[start...].prefix { $0 == "-" || $0.isLetter }
      guard option.hasPrefix("--"), option.count > 2 else { return escaped(word) }
      return escaped(word[..<start]) + code(String(option)) + escaped(word[option.endIndex...])
    }.joined(separator: " ")
  }

  static func code(_ text: String) -> String { "`\(text)`" }

  /// Plain text without a meaning for Markdown. Quotes and hyphens are escaped, since they would be replaced
  /// by typographic ones.
  static func escaped(_ text: some StringProtocol) -> String {
    text.unicodeScalars.map { marks.contains($0) ? "\\\($0)" : String($0) }.joined()
  }

  private static let marks = Set("\\`*_{}[]()#+-!|<>~@\"'".unicodeScalars)
}
