import SyncStore

/// The lines of standard input where that is no terminal.
struct ShellScript {
  private let shell: Shell
  private let isStrict: Bool
  private var worst = ExitCode.done
  /// The lines of the commands that failed, as far as they are named.
  private var lines: [Int] = []
  private var failures = 0
  private static let namedLines = 10

  init(_ shell: Shell) {
    self.shell = shell
    isStrict = shell.invocation.has(ItemFailures.strict.name)
  }

  /// Runs all lines. Returns `.done`, or throws the code of the worst failure.
  mutating func run() throws -> ExitCode {
    // What a command reads from standard input is not the next line.
    var reader = LineReader(System.takeStandardInput(), limit: ShellWords.mostBytes)
    var open: ShellWords?
    var first = 0
    while let line = try reader.next() {
      var words = open ?? ShellWords()
      if open == nil { first = reader.number }
      open = nil
      do throws(Failure) {
        guard case .text(let text) = line else { throw ShellWords.tooLong }
        guard try words.readLine(text) else {
          open = words
          continue
        }
      } catch {
        try record(Failure(error.code, "shell: line \(reader.number): \(error.message)"), line: first)
        continue
      }
      if try isLast(words.words, line: first) { break }
      if isStrict, worst != .done { return worst }
    }
    if open != nil {
      try record(
        Failure(
          .usage, "shell: line \(first): the script ends inside a quote: the command was not run: close it"),
        line: first)
    }
    try check()
    return .done
  }

  /// Runs a command. True if it ends the script.
  private mutating func isLast(_ words: [Argument], line: Int) throws -> Bool {
    var failed: Failure?
    switch try shell.run(words, stop: nil, report: { failed = $0 }) {
    case .left: return true
    case .failed(let code):
      if let failed { try record(failed, line: line) } else { count(code, line: line) }
    case .done, .interrupted: break
    }
    return false
  }

  private mutating func record(_ failure: Failure, line: Int) throws(Failure) {
    guard !isStrict else { throw failure }
    Diagnostics.report(failure.message, as: .error)
    count(failure.code, line: line)
  }

  private mutating func count(_ code: ExitCode, line: Int) {
    failures += 1
    if lines.count < Self.namedLines { lines.append(line) }
    if worst.severity < code.severity { worst = code }
  }

  private func check() throws(Failure) {
    guard failures > 0 else { return }
    let more = failures > lines.count ? " …" : ""
    let named = (failures == 1 ? "line " : "lines ") + lines.map(String.init).joined(separator: ", ")
    throw Failure(
      worst,
      "shell: not all was done: \(Text.count(failures, noun: "failure")), in \(named)\(more): "
        + "see what is said above, and run those lines again")
  }
}
