/// The manual page of the daemon's configuration, made from `schemas/config.md`.
///
/// Of Markdown it reads what that file has: one heading, paragraphs, tables whose first two columns are
/// a setting and its meaning, fenced lines, and code within text.
struct ConfigurationPage {
  private var page: Roff
  private var paragraph: [Substring] = []
  /// The heads of the columns of the table that is being read.
  private var columns: [String] = []
  private var fenced: [Substring]?
  private var isFirst = true

  /// The page.
  static func page(from markdown: String) -> ManualPages.Page {
    var reader = ConfigurationPage()
    for line in markdown.split(separator: "\n", omittingEmptySubsequences: false) { reader.read(line) }
    reader.endParagraph()
    reader.page.section("SEE ALSO")
    reader.page.pages([("sync-cli", 1), ("sync-cli-serve", 1), (ServicePage.name, 8)])
    return ManualPages.Page(file: "sync-cli.conf.5", text: reader.page.text)
  }

  private init() {
    page = Roff(
      "sync-cli.conf", section: 5, summary: "configuration of the daemon of sync-cli",
      source: "sync-cli \(Program.version)")
    page.section("DESCRIPTION")
  }

  private mutating func read(_ line: Substring) {
    if line.hasPrefix("```") {
      endParagraph()
      if let fenced { page.verbatim(fenced) }
      fenced = fenced == nil ? [] : nil
    } else if fenced != nil {
      fenced?.append(line)
    } else if line.hasPrefix("|") {
      endParagraph()
      row(line.utf8.dropFirst().split(separator: UInt8(ascii: "|")).map { Self.trimmed(Substring($0)) })
    } else if line.isEmpty || line.hasPrefix("#") {
      endParagraph()
      columns = []
    } else {
      paragraph.append(line)
    }
  }

  private mutating func row(_ cells: [Substring]) {
    if columns.isEmpty {
      columns = cells.map(String.init)
    } else if !cells.allSatisfy({ $0.allSatisfy { $0 == "-" } }) {
      let rest = zip(columns, cells).dropFirst(2).filter { $0.1 != "–" }.map {
        " \("\($0.0): \($0.1)".sentence)"
      }
      let meaning = cells.count > 1 ? String(cells[1]).sentence : ""
      page.entry(Roff.styled(cells[0]), Roff.styled(meaning + rest.joined()))
      isFirst = false
    }
  }

  private mutating func endParagraph() {
    guard !paragraph.isEmpty else { return }
    page.paragraph(Roff.styled(paragraph.joined(separator: " ")), first: isFirst)
    (paragraph, isFirst) = ([], false)
  }

  private static func trimmed(_ text: Substring) -> Substring {
    let start = text.drop { $0 == " " }
    guard let last = start.lastIndex(where: { $0 != " " }) else { return "" }
    return start[...last]
  }
}
