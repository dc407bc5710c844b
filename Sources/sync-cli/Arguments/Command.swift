import SyncStore

/// One `--name` of a command, or of all of them.
struct Option: Sendable {
  /// Without the dashes.
  let name: String
  /// What stands for the value in the help; nil for a switch that has none.
  let value: String?
  let help: String
  let repeats: Bool

  init(_ name: String, value: String? = nil, repeats: Bool = false, _ help: String) {
    (self.name, self.value, self.help, self.repeats) = (name, value, help, repeats)
  }

  /// How the help writes it.
  var usage: String { "--\(name)" + (value.map { " \($0)" } ?? "") }
}

/// What a command takes besides options.
struct Operand: Sendable {
  /// `many` may be none, `some` are at least one.
  enum Arity: Sendable { case one, optional, many, some }
  let name: String
  let arity: Arity

  init(_ name: String, _ arity: Arity = .one) { (self.name, self.arity) = (name, arity) }

  /// How the help writes it.
  var usage: String {
    switch arity {
    case .one: name
    case .optional: "[\(name)]"
    case .many, .some: "\(name)…"
    }
  }
}

/// One thing that the program does.
struct Command: Sendable {
  /// One word, or two for a member of a family (`peer add`).
  let name: String
  let summary: String
  let operands: [Operand]
  let options: [Option]
  /// What the help says besides; may be empty.
  let notes: String
  let run: @Sendable (Invocation, Output) throws -> ExitCode

  init(
    _ name: String, _ summary: String, operands: [Operand] = [], options: [Option] = [], notes: String = "",
    run: @escaping @Sendable (Invocation, Output) throws -> ExitCode
  ) {
    (self.name, self.summary, self.operands, self.options) = (name, summary, operands, options)
    (self.notes, self.run) = (notes, run)
  }

  /// The line after "usage:".
  var usage: String {
    (["sync-cli", name] + options.map { "[\($0.usage)]" + ($0.repeats ? "…" : "") } + operands.map(\.usage))
      .joined(separator: " ")
  }
}

/// A word of the command line. Keys may hold any bytes, so it is bytes first.
struct Argument: Hashable, Sendable {
  let bytes: [UInt8]

  init(_ bytes: [UInt8]) { self.bytes = bytes }
  init(_ text: String) { bytes = Array(text.utf8) }

  /// The text; bytes that are not UTF-8 are replaced.
  var text: String { String(decoding: bytes, as: UTF8.self) }
  /// For messages.
  var shown: String { Text.printable(bytes) }
}

/// A command line, understood.
struct Invocation: Sendable {
  let command: Command
  let operands: [Argument]
  let values: StringDictionary<[Argument]>

  /// Is the switch there, or the option with its value?
  func has(_ option: String) -> Bool { values[option] != nil }

  /// The value of an option that may be given once.
  func value(_ option: String) -> Argument? { values[option]?.first }

  /// The value as a whole number within `range`.
  func integer<Number: FixedWidthInteger>(_ option: String, in range: ClosedRange<Number>) throws -> Number? {
    guard let argument = value(option) else { return nil }
    guard let number = Number(argument.text), range.contains(number) else {
      throw usage(
        "--\(option) \(argument.shown)",
        reason: "not a whole number from \(range.lowerBound) to \(range.upperBound)", advice: "give one")
    }
    return number
  }

  /// The value as a span of time, in milliseconds.
  func milliseconds(_ option: String) throws -> UInt64? {
    guard let argument = value(option) else { return nil }
    guard let span = Text.milliseconds(argument.text) else {
      throw usage(
        "--\(option) \(argument.shown)", reason: "not a span of time", advice: "write 90s, 30m, 1h or 7d")
    }
    return span
  }

  /// The path that an argument or a variable names, for what takes text. Other bytes could only be guessed at, and the
  /// guess may be another file.
  func path(_ argument: Argument) throws(Failure) -> String {
    guard let path = String(validating: argument.bytes, as: UTF8.self) else {
      throw usage(
        argument.shown, reason: "the path is not UTF-8",
        advice: "give one that is, such as a symbolic link to it")
    }
    return path
  }

  /// The error of a command line that cannot be meant.
  func usage(_ what: String, reason why: String, advice todo: String) -> Failure {
    Failure(.usage, "\(command.name): \(what): \(why): \(todo)")
  }
}
