import SyncStore

/// Parses a command line into an `Invocation`, by the table of commands.
///
/// Options are long: `--name value` or `--name=value`, before or after the command and between its operands;
/// `--` ends them. Every error is reported in one line that names what could have been meant.
struct ArgumentParser {
  let commands: [Command]
  let globals: [Option]
  /// Commands for scripts and the build: neither listed nor suggested.
  var hidden: [Command] = []
  /// The meaning of a family name on its own; without an entry it is an error.
  var alone: StringDictionary<String> = [:]
  private static let short: [Argument: String] = [
    Argument("-h"): "--help", Argument("-q"): "--quiet", Argument("-v"): "--verbose",
    Argument("-0"): "--null",
  ]

  /// The request in a command line.
  enum Outcome {
    case run(Invocation)
    /// Help for one command, or for all of them.
    case help(Command?)
    case version
  }

  /// Parses `words`, without the program's own name.
  func parse(_ words: [Argument]) throws(Failure) -> Outcome {
    var rest = words[...]
    var found: Command?
    var operands: [Argument] = []
    var values: StringDictionary<[Argument]> = [:]
    var optionsEnded = false
    while let word = rest.popFirst() {
      let long = long(word, of: found)
      let expanded = long ?? word.text
      if !optionsEnded, expanded == "--" {
        optionsEnded = true
      } else if !optionsEnded, expanded.hasPrefix("-"), expanded != "-" {
        try parseOption(long.map { Argument($0) } ?? word, of: found, from: &rest, into: &values)
      } else if found == nil, values["version"] == nil {
        if word.text == "help" { return try help(on: rest) }
        found = try command(word, from: &rest, helping: values["help"] != nil)
        if found == nil { return .help(nil) }
      } else {
        operands.append(word)
      }
    }
    if values["version"] != nil { return .version }
    if values["help"] != nil { return .help(found) }
    guard let found else {
      throw Failure(.usage, "no command given: nothing to do: see \"sync-cli --help\"")
    }
    let kept = try check(operands, of: found)
    return .run(Invocation(command: found, operands: kept, values: values))
  }

  // MARK: - Options

  /// The long form of a short option. A command without that option reports the word as it was given.
  private func long(_ word: Argument, of command: Command?) -> String? {
    guard let long = Self.short[word] else { return nil }
    let known = globals + (command?.options ?? [])
    return known.contains { "--\($0.name)" == long } ? long : nil
  }

  private func parseOption(
    _ word: Argument, of command: Command?, from rest: inout ArraySlice<Argument>,
    into values: inout StringDictionary<[Argument]>
  ) throws(Failure) {
    let parts = word.bytes.split(separator: UInt8(ascii: "="), maxSplits: 1, omittingEmptySubsequences: false)
    let name = String(decoding: parts[0].drop { $0 == UInt8(ascii: "-") }, as: UTF8.self)
    let place = command.map { "\($0.name): " } ?? ""
    let known = globals + (command?.options ?? [])
    guard word.bytes.starts(with: "--".utf8), let option = known.first(where: { $0.name == name }) else {
      throw unknownOption(word, name, place: place, command: command, known: known)
    }
    let value: Argument
    if option.value == nil {
      guard parts.count == 1 else {
        throw Failure(
          .usage,
          "\(place)--\(name) takes no value: \"\(word.shown)\" gives one: leave out what follows \"=\"")
      }
      value = Argument([])
    } else if parts.count == 2 {
      value = Argument(Array(parts[1]))
    } else if let next = rest.popFirst() {
      value = next
    } else {
      throw Failure(.usage, "\(place)--\(name) has no value: one must follow: write \"\(option.usage)\"")
    }
    guard values[name] == nil || option.repeats || option.value == nil else {
      throw Failure(.usage, "\(place)--\(name) is given twice: one is meant: leave out the other")
    }
    values[name, default: []].append(value)
  }

  private func unknownOption(
    _ word: Argument, _ name: String, place: String, command: Command?, known: [Option]
  ) -> Failure {
    let shown = Text.printable(word.bytes.prefix { $0 != UInt8(ascii: "=") })
    let todo: String
    if let near = Self.nearest(to: name, in: known.map(\.name)) {
      todo = "did you mean --\(near)?"
    } else if command == nil, commands.contains(where: { $0.options.contains { $0.name == name } }) {
      todo = "put it after the command it belongs to"
    } else if !word.bytes.starts(with: "--".utf8) {
      todo = "options are long; if it is a key or a value, put -- before it"
    } else {
      todo = "see \"sync-cli \(command.map { "\($0.name) " } ?? "")--help\""
    }
    return Failure(.usage, "\(place)\(shown): there is no such option: \(todo)")
  }

  // MARK: - Commands and operands

  /// The command that begins with `word`; nil if help on a whole family is requested.
  private func command(
    _ word: Argument, from rest: inout ArraySlice<Argument>, helping: Bool
  ) throws(Failure) -> Command? {
    let name = word.text
    if let command = (commands + hidden).first(where: { $0.isCalled(name) }) {
      // A command may be the first word of others in its family: `invite`, and `invite list`.
      guard let second = rest.first,
        let longer = commands.first(where: { $0.name == "\(command.name) \(second.text)" })
      else {
        return command
      }
      rest.removeFirst()
      return longer
    }
    let family = commands.filter { $0.name.hasPrefix(name + " ") }.map {
      String($0.name.dropFirst(name.count + 1))
    }
    guard family.isEmpty else {
      if let usual = alone[name], !helping, rest.first.map({ Self.isOption($0) && !Self.isHelp($0) }) ?? true
      {
        return commands.first { $0.name == usual }
      }
      guard let second = rest.first, !Self.isHelp(second) else {
        if helping || rest.first != nil { return nil }
        throw Failure(
          .usage, "\(name): what to do with it is missing: it is one of \(Self.list(family)): give one")
      }
      rest.removeFirst()
      if let command = commands.first(where: { $0.name == "\(name) \(second.text)" }) { return command }
      throw unknownCommand(
        "\(name) \(second.shown)", near: Self.nearest(to: second.text, in: family).map { "\(name) \($0)" })
    }
    let near = Self.nearest(to: name, in: commands.map(\.name) + commands.flatMap(\.aliases))
    throw unknownCommand(word.shown, near: near)
  }

  private static func isOption(_ word: Argument) -> Bool { word.bytes.first == UInt8(ascii: "-") }
  private static func isHelp(_ word: Argument) -> Bool { ["--help", "-h"].contains(word.text) }

  private func unknownCommand(_ name: String, near: String?) -> Failure {
    Failure(
      .usage,
      "\(name): there is no such command: "
        + (near.map { "did you mean \"\($0)\"?" } ?? "see \"sync-cli --help\" for what there is"))
  }

  private func help(on rest: ArraySlice<Argument>) throws(Failure) -> Outcome {
    var rest = rest.filter { !$0.bytes.starts(with: "--".utf8) }[...]
    guard let word = rest.popFirst() else { return .help(nil) }
    return .help(try command(word, from: &rest, helping: true))
  }

  private func check(_ operands: [Argument], of command: Command) throws(Failure) -> [Argument] {
    let needed = command.operands.filter { [.one, .some].contains($0.arity) }
    if operands.count < needed.count {
      let missing = needed[operands.count].name
      throw Failure(
        .usage, "\(command.name): \(missing) is missing: the command needs it: write \"\(command.usage)\"")
    }
    let isOpen = command.operands.last.map { [.many, .some].contains($0.arity) } ?? false
    if operands.count > command.operands.count, !isOpen {
      let extra = operands[command.operands.count].shown
      throw Failure(
        .usage,
        "\(command.name): \"\(extra)\" is too much: the command takes \(Text.count(command.operands.count, noun: "operand"))"
          + ": write \"\(command.usage)\"")
    }
    return operands
  }

  // MARK: - Suggestions

  private static func list(_ names: [String]) -> String {
    names.count < 2
      ? names.joined() : names.dropLast().joined(separator: ", ") + " or " + names[names.count - 1]
  }

  /// The name that was most likely meant; nil if none is close.
  static func nearest(to word: String, in names: [String]) -> String? {
    if word.count >= 2, let match = names.filter({ $0.hasPrefix(word) }).min(by: { $0.count < $1.count }) {
      return match
    }
    let ranked = names.map { ($0, distance(Array(word), Array($0))) }.min { $0.1 < $1.1 }
    guard let (name, distance) = ranked, distance <= max(1, min(3, name.count / 3)) else { return nil }
    return name
  }

  /// The number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`
  /// (optimal string alignment).
  static func distance(_ a: [Character], _ b: [Character]) -> Int {
    var rows = [Array(0...b.count)]
    for i in 0..<a.count {
      var row = [i + 1]
      for j in 0..<b.count {
        var best = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (a[i] == b[j] ? 0 : 1))
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { best = min(best, rows[i - 1][j - 1] + 1) }
        row.append(best)
      }
      rows.append(row)
    }
    return rows[a.count][b.count]
  }
}
