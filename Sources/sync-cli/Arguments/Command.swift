import SyncStore

/// One `--name` option of a command, or of all commands.
struct Option: Sendable {
  /// Without the dashes.
  let name: String
  /// Name of the value in the help; nil for a switch.
  let value: String?
  let help: String
  let repeats: Bool
  /// The words that the value can be, for completion; empty if they cannot be listed.
  let words: [String]

  init(_ name: String, value: String? = nil, words: [String] = [], repeats: Bool = false, _ help: String) {
    (self.name, self.value, self.help, self.repeats) = (name, value, help, repeats)
    self.words = words
  }

  /// The form shown in the help.
  var usage: String { "--\(name)" + (value.map { " \($0)" } ?? "") }
}

/// A positional argument of a command.
struct Operand: Sendable {
  /// `many` means any number, `some` at least one.
  enum Arity: Sendable { case one, optional, many, some }
  let name: String
  let arity: Arity

  init(_ name: String, _ arity: Arity = .one) { (self.name, self.arity) = (name, arity) }

  /// The form shown in the help.
  var usage: String {
    switch arity {
    case .one: name
    case .optional: "[\(name)]"
    case .many, .some: "\(name)…"
    }
  }
}

/// A command of the program.
struct Command: Sendable {
  /// One word, or two for a member of a family (`peer add`).
  let name: String
  let summary: String
  /// Other names, each one word.
  let aliases: [String]
  let operands: [Operand]
  let options: [Option]
  /// Further help text; may be empty.
  let notes: String
  /// The kinds of lines that it prints with `--json`; empty if it prints none.
  private(set) var json: [JSONLine] = []
  let run: @Sendable (Invocation, Output) throws -> ExitCode

  init(
    _ name: String, _ summary: String, aliases: [String] = [], operands: [Operand] = [],
    options: [Option] = [], notes: String = "",
    run: @escaping @Sendable (Invocation, Output) throws -> ExitCode
  ) {
    (self.name, self.summary, self.aliases, self.operands) = (name, summary, aliases, operands)
    (self.options, self.notes, self.run) = (options, notes, run)
  }

  /// The command, with the lines that it prints with `--json`.
  func printing(_ lines: [JSONLine]) -> Command {
    var command = self
    command.json = lines
    return command
  }

  /// The first of two words; nil if there is only one.
  var family: String? {
    let words = name.split(separator: " ")
    return words.count > 1 ? String(words[0]) : nil
  }

  /// Whether the command is called by this word or these two words.
  func isCalled(_ word: String) -> Bool { name == word || aliases.contains(word) }

  /// The line after "usage:".
  var usage: String {
    (["sync-cli", name] + options.map { "[\($0.usage)]" + ($0.repeats ? "…" : "") } + operands.map(\.usage))
      .joined(separator: " ")
  }
}

/// A word of the command line, kept as bytes: keys may contain any.
struct Argument: Hashable, Sendable {
  let bytes: [UInt8]

  init(_ bytes: [UInt8]) { self.bytes = bytes }
  init(_ text: String) { bytes = Array(text.utf8) }

  /// The text; invalid UTF-8 is replaced.
  var text: String { String(decoding: bytes, as: UTF8.self) }
  /// For messages.
  var shown: String { Text.printable(bytes) }
}

/// A parsed command line.
struct Invocation: Sendable {
  let command: Command
  let operands: [Argument]
  let values: StringDictionary<[Argument]>
  /// The shell in which the command runs; nil if it runs alone.
  var shell: ShellSession? = nil

  /// Whether the switch or option is present.
  func has(_ option: String) -> Bool { values[option] != nil }

  /// The value of an option that may occur once.
  func value(_ option: String) -> Argument? { values[option]?.first }

  /// The value as an integer within `range`.
  func integer<Number: FixedWidthInteger>(_ option: String, in range: ClosedRange<Number>) throws -> Number? {
    guard let argument = value(option) else { return nil }
    guard let number = Number(argument.text), range.contains(number) else {
      throw usage(
        "--\(option) \(argument.shown)",
        reason: "not a whole number from \(range.lowerBound) to \(range.upperBound)", advice: "give one")
    }
    return number
  }

  /// The value as a duration, in milliseconds.
  func milliseconds(_ option: String) throws -> UInt64? {
    guard let argument = value(option) else { return nil }
    guard let span = Text.milliseconds(argument.text) else {
      throw usage(
        "--\(option) \(argument.shown)", reason: "not a span of time", advice: "write 90s, 30m, 1h or 7d")
    }
    return span
  }

  /// The path in an argument or a variable, for APIs that take text. Invalid UTF-8 is an error: replacing it
  /// could name another file.
  func path(_ argument: Argument) throws(Failure) -> String {
    guard let path = String(validating: argument.bytes, as: UTF8.self) else {
      throw usage(
        argument.shown, reason: "the path is not UTF-8",
        advice: "give one that is, such as a symbolic link to it")
    }
    return path
  }

  /// The error for an invalid command line.
  func usage(_ what: String, reason why: String, advice todo: String) -> Failure {
    Failure(.usage, "\(command.name): \(what): \(why): \(todo)")
  }
}
