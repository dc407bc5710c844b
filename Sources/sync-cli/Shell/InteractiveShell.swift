import SyncStore

/// A shell on a terminal: prompts, history, and signals of the keyboard.
struct InteractiveShell {
  private let shell: Shell
  private let inbox: SignalInbox
  private let lines: any TerminalLines
  private var history: ShellHistory
  private let open = OpenCommand()
  private var last = Shell.Ending.done

  /// The lines of an unfinished command, which completion reads, too.
  private final class OpenCommand {
    var words = ShellWords()
    var lines: [[UInt8]] = []

    func reset() { (words, lines) = (ShellWords(), []) }
  }

  /// The descriptor for prompts, so that standard output has only data; nil if no terminal is there to show
  /// them.
  private static var screen: Int32? { [2, 1].first { System.isTerminal($0) } }

  init(_ shell: Shell) throws {
    let log = { (text: String) in shell.invocation.logVerbose(text) }
    guard let inbox = SignalInbox() else {
      throw Failure(
        .inputOutput, "shell: no descriptor is left: close some files, or raise the limit (ulimit -n)")
    }
    (self.shell, self.inbox) = (shell, inbox)
    history = ShellHistory(log: log)
    let screen = Self.screen
    let edited: (any TerminalLines)?
    if let screen, Self.canMoveCursor {
      edited = LineEditor(inbox, output: screen, history: history.lines()) { [open] line in
        shell.completion.change(line, after: open.words)
      }
    } else {
      edited = nil
    }
    lines = edited ?? PlainLines(inbox, output: screen)
  }

  private static var canMoveCursor: Bool { !["dumb", nil].contains { $0 == System.environment("TERM") } }

  /// Runs lines until the end.
  mutating func run() throws {
    // Between commands a signal waits for the prompt.
    SignalListener.push { [inbox] number in
      if let number { inbox.put(number) }
      return true
    }
    defer { SignalListener.pop() }
    shell.readStoreName()
    greet()
    while true {
      switch lines.next(open.lines.isEmpty ? prompt : Self.continuation(open.words)) {
      case .end where open.lines.isEmpty: return
      case .end:
        Diagnostics.report("shell: the quote is not closed: the command was not run: close it", as: .error)
        open.reset()
        last = .failed(.usage)
      case .signal(let number):
        System.takeDefaultAction(of: number)
        return
      case .interrupted:
        open.reset()
        last = .done
      case .text(let line): if try reads(line) { return }
      }
    }
  }

  /// Reads a line, and runs the command that it ends. True if that ends the shell.
  private mutating func reads(_ line: [UInt8]) throws -> Bool {
    open.lines.append(line)
    do throws(Failure) {
      guard try open.words.readLine(line) else { return false }
    } catch {
      Diagnostics.report("shell: \(error.message)", as: .error)
      last = .failed(error.code)
      // To be corrected, on one line.
      if open.lines.count == 1 { lines.remember(line) }
      open.reset()
      return false
    }
    let (text, words) = (open.lines, open.words.words)
    open.reset()
    keep(text, words)
    return try runs(words)
  }

  /// Runs a command. True if it ends the shell.
  private mutating func runs(_ words: [Argument]) throws -> Bool {
    inbox.clear()
    let ending = try shell.run(words, stop: StopRequest()) { Diagnostics.report($0.message, as: .error) }
    Diagnostics.showLine(nil)
    // A value without a line end would run into the prompt.
    if shell.output.isTerminal, !shell.output.isAtLineStart {
      try shell.output.write([0x0A])
      try shell.output.flush()
    }
    if !words.isEmpty { last = ending }
    return ending == .left
  }

  /// Adds a command to the history, on one line.
  private mutating func keep(_ text: [[UInt8]], _ words: [Argument]) {
    guard let first = text.first, ShellHistory.mayKeep(first, words, of: shell.command(of: words)) else {
      return
    }
    let line =
      text.count == 1 ? first : Array(words.map { ShellWords.quoted($0.bytes) }.joined(separator: [0x20]))
    lines.remember(line)
    if !shell.isPrivate(words) { history.add(line) }
  }

  // MARK: - Texts

  private func greet() {
    guard !shell.invocation.isQuiet, let screen = Self.screen, let path = try? shell.invocation.storePath()
    else {
      return
    }
    let what = shell.storeName == nil ? "no store in" : "store in"
    let text = "\(what) \(Text.printable(path.utf8)); \"help\" lists the commands, Ctrl-D ends\n"
    try? Descriptor(standard: screen).write(Array(text.utf8))
  }

  private var prompt: Prompt {
    let (bold, red) = Diagnostics.hasColours ? ("1", "31") : (String?.none, String?.none)
    var parts = [Prompt.Part(text: shell.storeName ?? "(no store)", colour: bold)]
    switch last {
    case .done, .left: break
    case .failed(let code): parts.append(Prompt.Part(text: " [\(code.rawValue)]", colour: red))
    case .interrupted: parts.append(Prompt.Part(text: " [^C]", colour: red))
    }
    parts.append(Prompt.Part(text: "> "))
    return Prompt(parts: parts)
  }

  /// The prompt for a continuation line.
  private static func continuation(_ words: ShellWords) -> Prompt {
    let open = words.quote.map { String(UnicodeScalar($0.rawValue)) } ?? "\\"
    return Prompt(parts: [Prompt.Part(text: "  \(open)> ")])
  }
}
