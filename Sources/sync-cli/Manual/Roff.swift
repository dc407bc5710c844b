/// Text of a manual page, in the macros of man(7).
struct Roff {
  /// Longer lines of the source are hard to compare.
  private static let columns = 78
  private(set) var text: String
  /// Whether nothing follows the title of the section yet.
  private var beginsSection = false

  /// Begins a page. `source` is named at the foot of the page.
  init(_ name: String, section: Int, summary: String, source: String) {
    text = """
      .\\" Made from the program's table of commands: "make man".
      .TH \(Self.escaped(name.uppercased())) \(section) "\(Program.date)" "\(Self.escaped(source))" SyncStore
      .SH NAME

      """
    fill("\(Self.escaped(name)) \\- \(Self.escaped(summary))")
  }

  /// Begins a section.
  mutating func section(_ title: String) {
    text += ".SH \(title)\n"
    beginsSection = true
  }

  /// Adds a paragraph of words that are escaped and may hold font changes.
  mutating func paragraph(_ words: String, first: Bool = false) {
    if !first { text += ".PP\n" }
    fill(words)
  }

  /// Adds paragraphs of plain text, divided by empty lines.
  mutating func plain(_ plain: String) {
    var lines: [Substring] = []
    var isFirst = true
    for line: Substring in plain.split(separator: "\n", omittingEmptySubsequences: false) + [""] {
      guard line.isEmpty else {
        lines.append(line)
        continue
      }
      guard !lines.isEmpty else { continue }
      paragraph(Self.escaped(lines.joined(separator: " ")), first: isFirst)
      (lines, isFirst) = ([], false)
    }
  }

  /// Adds an entry of a list. Both are escaped and may hold font changes.
  mutating func entry(_ term: String, _ words: String) {
    text += ".TP\n\(term)\n"
    fill(words)
  }

  /// Adds lines that are shown as they are.
  mutating func verbatim(_ lines: [some StringProtocol]) {
    beginsSection = false
    text +=
      ".PP\n.nf\n.RS\n" + lines.map { Self.guarded(Self.escaped(String($0))) + "\n" }.joined() + ".RE\n.fi\n"
  }

  /// Adds a list of pages.
  mutating func pages(_ pages: [(name: String, section: Int)]) {
    for (index, page) in pages.enumerated() {
      text += ".BR \(Self.escaped(page.name)) (\(page.section))\(index < pages.count - 1 ? "," : "")\n"
    }
  }

  /// Adds a part of the reference.
  mutating func add(_ block: ReferenceText.Block) {
    func styled(_ lines: String) -> String {
      Self.styled(lines.split(separator: "\n").joined(separator: " "))
    }
    switch block {
    case .section(let title): section(title)
    case .text(let words): paragraph(styled(words), first: beginsSection)
    case .entry(let term, let words): entry(Self.bold(term), styled(words))
    case .code(let lines): verbatim(lines)
    }
  }

  private mutating func fill(_ words: String) {
    beginsSection = false
    var line = ""
    for word in words.split(separator: " ") {
      if !line.isEmpty, line.count + 1 + word.count > Self.columns {
        text += Self.guarded(line) + "\n"
        line = ""
      }
      line += (line.isEmpty ? "" : " ") + word
    }
    text += Self.guarded(line) + "\n"
  }

  /// A line that is no request, whatever it begins with.
  private static func guarded(_ line: String) -> String {
    line.hasPrefix(".") || line.hasPrefix("'") ? "\\&" + line : line
  }

  /// Plain text for a page.
  static func escaped(_ text: String) -> String {
    text.unicodeScalars.map { scalar in
      switch scalar {
      case "\\": "\\e"
      case "-": "\\-"
      case "…": "..."
      case "\"": "\\(dq"
      case "'": "\\(aq"
      case "`": "\\(ga"
      case "^": "\\(ha"
      case "~": "\\(ti"
      case _ where scalar.isASCII: String(scalar)
      default: "\\[u\(Self.hexadecimal(scalar))]"
      }
    }.joined()
  }

  private static func hexadecimal(_ scalar: UnicodeScalar) -> String {
    let digits = String(scalar.value, radix: 16, uppercase: true)
    return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
  }

  /// Plain text with code between backticks, which is in bold.
  static func styled(_ text: some StringProtocol) -> String {
    text.split(separator: "`", omittingEmptySubsequences: false).enumerated().map { index, part in
      index.isMultiple(of: 2) ? escaped(String(part)) : bold(String(part))
    }.joined()
  }

  /// Words in bold, or in italics.
  static func bold(_ text: String) -> String { "\\fB\(escaped(text))\\fR" }
  static func italic(_ text: String) -> String { "\\fI\(escaped(text))\\fR" }
}
