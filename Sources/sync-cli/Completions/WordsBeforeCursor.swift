/// The words of a command line before the cursor, and the kinds of words that can stand there. The scripts of
/// `completions` do the same in the languages of their shells.
struct WordsBeforeCursor {
  private let table: CompletionScript.Table
  /// The value of `--store`, if the words have it.
  private(set) var store: Argument?
  private var row: CompletionScript.Table.Row
  private var words = ""
  private var operands = 0
  /// The option whose value comes next.
  private var open: Option?
  private var optionsEnded = false
  private var isHelp = false

  init(_ words: [Argument], in table: CompletionScript.Table) {
    (self.table, row) = (table, table.rows[0])
    for word in words { read(word) }
  }

  private var options: [Option] { (isHelp ? [] : row.command?.options ?? []) + table.globals }

  private mutating func read(_ word: Argument) {
    if let option = open {
      open = nil
      if option.name == "store" { store = word }
      return
    }
    if !optionsEnded, word.text == "--" {
      optionsEnded = true
    } else if !optionsEnded, word.bytes.first == UInt8(ascii: "-"), word.bytes.count > 1 {
      readOption(word)
    } else if operands == 0, words.isEmpty, word.text == "help" {
      isHelp = true
    } else if operands == 0, let next = row(of: (words.isEmpty ? "" : words + " ") + word.text) {
      words = (words.isEmpty ? "" : words + " ") + word.text
      row = next
    } else {
      operands += 1
    }
  }

  private mutating func readOption(_ word: Argument) {
    let parts = word.bytes.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
    let name = Argument(Array(parts[0])).text
    guard let option = options.first(where: { "--\($0.name)" == name }), option.value != nil else { return }
    if parts.count == 1 {
      open = option
    } else if option.name == "store" {
      store = Argument(Array(parts[1]))
    }
  }

  private func row(of name: String) -> CompletionScript.Table.Row? {
    table.rows.first { row in row.names.contains { $0 == name } }
  }

  /// The words that can stand at the cursor, and the kinds of others. `current` is the word up to the cursor;
  /// `stem` its first bytes that stay.
  func expected(_ current: [UInt8]) -> (words: [String], kind: WordKind, stem: [UInt8]) {
    if let open { return ([], WordKind(open), []) }
    if !optionsEnded, current.starts(with: "--".utf8), let end = current.firstIndex(of: UInt8(ascii: "=")) {
      let name = Argument(Array(current[..<end])).text
      guard let option = options.first(where: { "--\($0.name)" == name }), option.value != nil else {
        return ([], .other, [])
      }
      return ([], WordKind(option), Array(current[...end]))
    }
    if !optionsEnded, current.first == UInt8(ascii: "-") {
      return (options.map { "--\($0.name)" }, .other, [])
    }
    let commands = operands == 0 ? row.subcommands.map(\.name) : []
    let places = isHelp ? [] : row.command?.operands ?? []
    let place = operands < places.count ? places[operands] : places.last.flatMap { $0.repeats ? $0 : nil }
    return (commands, place.map { WordKind($0) } ?? .other, [])
  }
}

extension Operand {
  /// Whether any number of words can stand for it.
  fileprivate var repeats: Bool { [.many, .some].contains(arity) }
}
