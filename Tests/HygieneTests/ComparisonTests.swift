import Testing

/// Checks that the names in the comparison with other systems exist and that a program uses them.
@Suite("The comparison with other systems")
struct ComparisonTests {
  /// Names that the program does not use, with the reason.
  static let exceptions: [String: String] = [
    "sync-cli list --long": "a command", "get --json": "a command", "dump": "a command", "why": "a command",
    "sync-cli": "a command", "sync-cli why KEY": "a command",
    "$SYNC_STORE": "a variable of the environment",
    "$XDG_DATA_HOME/sync-store": "a variable of the environment",
  ]

  /// A name in the column that gives a row's name in this library.
  struct Name: Hashable {
    let row: Int
    let text: String
  }

  /// All names: those in backticks in the last cell of a row.
  static func names() throws -> [Name] {
    try Repository.lines("docs/comparison.md").enumerated().flatMap { number, line -> [Name] in
      guard line.hasPrefix("|"), let cell = line.split(separator: " | ").last else { return [] }
      return cell.matches(of: /`([^`]+)`/).map { Name(row: number + 1, text: String($0.1)) }
    }
  }

  /// The identifiers in a text: names and labels.
  static func words(of text: Substring) -> [String] {
    text.split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" }).map(String.init)
      .filter { $0 != "_" }
  }

  @Test("each name in our column is used by a tested program")
  func used() throws {
    let program = try Repository.files(in: "Tests/SnippetTests", ending: ".swift")
      .filter { $0.contains("/EveryRow") }.map(Repository.read).joined()
    let written = Set(Self.words(of: program[...]))
    let names = try Self.names()
    #expect(names.count > 200)
    for name in names where Self.exceptions[name.text] == nil {
      // The call and its labels, without arguments and types.
      let called = name.text.prefix { !"({< ".contains($0) }
      let labels = name.text.matches(of: /\b([A-Za-z]\w*):/).map { String($0.1) }
      let wanted = Self.words(of: called) + labels
      #expect(!wanted.isEmpty, "row \(name.row): what is `\(name.text)`?")
      for word in wanted {
        #expect(written.contains(word), "row \(name.row): `\(name.text)`: the program has no \(word)")
      }
    }
  }

  @Test("each exception still occurs in the table")
  func exceptions() throws {
    let names = Set(try Self.names().map(\.text))
    for name in Self.exceptions.keys { #expect(names.contains(name), "\(name)") }
  }
}
