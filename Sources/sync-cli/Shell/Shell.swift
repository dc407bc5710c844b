import SyncStore

/// The shell: runs each line like a command line of the program. A failing line does not end it.
final class Shell {
  /// How a line ended.
  enum Ending: Equatable {
    case done
    case failed(ExitCode)
    case interrupted
    /// `exit` or `quit`.
    case left
  }

  let invocation: Invocation
  let output: Output
  let completion: ShellCompletion
  private let session = ShellSession()
  private let commands: [Command]
  private let parser: ArgumentParser

  init(_ invocation: Invocation, _ output: Output) {
    var own = invocation
    own.shell = session
    (self.invocation, self.output) = (own, output)
    commands = Program.commands.filter { command in
      !ShellCommand.refused.contains { $0.name == command.name }
    }
    // All of them are parsed, so that those refused are refused with the reason.
    parser = ArgumentParser(
      commands: Program.commands, globals: Help.globals, hidden: Program.hidden, alone: Program.alone)
    completion = ShellCompletion(invocation: own, commands: commands)
  }

  /// Runs lines until the end of standard input. Returns the exit code of the shell.
  func run() throws -> ExitCode {
    // Before any thread starts: threads inherit the mask.
    System.blockSignals(System.terminalSignals)
    SignalListener.start(System.terminalSignals)
    _ = try invocation.storePath()
    guard System.isTerminal(0) else {
      var script = ShellScript(self)
      return try script.run()
    }
    var interactive = try InteractiveShell(self)
    try interactive.run()
    return .done
  }

  // MARK: - Lines

  /// The command of a line's words; nil if they are none.
  func command(of words: [Argument]) -> Command? {
    guard case .run(let invocation) = try? parser.parse(words) else { return nil }
    return invocation.command
  }

  /// Runs the words of a line. Throws only what ends the shell: the loss of standard output's reader.
  ///
  /// - Parameter stop: made when the command is interrupted; nil if signals end the program.
  func run(_ words: [Argument], stop: StopRequest?, report: (Failure) -> Void) throws -> Ending {
    guard let first = words.first else { return .done }
    do {
      if ShellCompletion.ownWords.contains(first.text) {
        guard words.count == 1 else {
          throw Failure(
            .usage, "\(first.text): it takes no operands: the shell ends with the code of its lines")
        }
        return .left
      }
      let outcome = try parser.parse(words)
      guard let stop else { return Self.ending(try execute(outcome)) }
      return Self.ending(
        try stop.listening(notice: Self.endEcho) { try Interruption.with(stop) { try execute(outcome) } })
    } catch {
      let failure = Failure(error)
      if failure.isBrokenPipe, output.hasLostReader { throw failure }
      // What the command wrote before is still valid.
      try? output.flush()
      report(stop?.isMade == true ? Self.interruption(of: first, failure) : failure)
      return stop?.isMade == true ? .interrupted : .failed(failure.code)
    }
  }

  /// Ends the line in which the terminal has shown "^C".
  @Sendable private static func endEcho() { Diagnostics.write("\n") }

  private static func ending(_ code: ExitCode) -> Ending { code == .done ? .done : .failed(code) }

  private static func interruption(of word: Argument, _ failure: Failure) -> Failure {
    failure.endsCommand ? Failure(failure.code, "\(word.shown): \(failure.message)") : failure
  }

  private func execute(_ outcome: ArgumentParser.Outcome) throws -> ExitCode {
    var code = ExitCode.done
    switch outcome {
    case .version: try output.line("sync-cli \(Program.version)")
    case .help(let command):
      let text = command.map(Help.text) ?? Help.overview(of: commands) + Self.helpNotes
      try output.write(Array(text.utf8))
    case .run(let parsed):
      let inherited = try inheriting(parsed)
      defer { if parsed.command.name == RekeyCommand.command.name { session.forgetPassphrases() } }
      if ShellCommand.exclusive.contains(where: { $0 == parsed.command.name }) { completion.finish() }
      do { code = try parsed.command.run(inherited, output) } catch {
        throw Failure(error).named(parsed.command.name)
      }
    }
    try output.flush()
    return code
  }

  private static let helpNotes = """

    In the shell, exit, quit and Ctrl-D end it. "help shell" tells how words are quoted.

    """

  /// The command with the options that hold for all lines.
  private func inheriting(_ parsed: Invocation) throws(Failure) -> Invocation {
    let name = parsed.command.name
    if let (_, reason) = ShellCommand.refused.first(where: { $0.name == name }) {
      throw Failure(.usage, "\(name): not in a shell: \(reason): run \"sync-cli \(name)\" outside of it")
    }
    try Self.checkZeros(in: parsed)
    var values = parsed.values
    for option in Help.globals where values[option.name] == nil {
      // The passphrase file of the shell is that of its store.
      if option.name == Secrets.option.name, parsed.has("store") { continue }
      values[option.name] = invocation.values[option.name]
    }
    return Invocation(command: parsed.command, operands: parsed.operands, values: values, shell: session)
  }

  /// A word of the command line of a process has no zero bytes, and the system's calls end names there.
  private static func checkZeros(in parsed: Invocation) throws(Failure) {
    func check(_ words: [Argument], _ name: String) throws(Failure) {
      guard let word = words.first(where: { $0.bytes.contains(0) }) else { return }
      guard !ShellCommand.mayHoldZeros.contains(where: { $0 == name }) else { return }
      throw parsed.usage(
        "\"\(word.shown)\"", reason: "\(name) has a zero byte", advice: "only keys and values may have some")
    }
    for option in parsed.command.options + Help.globals {
      if let name = option.value { try check(parsed.values[option.name] ?? [], name) }
    }
    let places = parsed.command.operands
    for (index, word) in parsed.operands.enumerated() {
      try check([word], places[min(index, places.count - 1)].name)
    }
  }

  // MARK: - The prompt

  /// The name of the shell's store for the prompt; nil if there is none.
  var storeName: String? {
    guard let path = try? invocation.storePath(), (try? Store.exists(at: path)) ?? true else { return nil }
    let last = path.utf8.split(separator: UInt8(ascii: "/")).last.map { Array($0) } ?? []
    return Text.printable((session.name(of: path) ?? String(decoding: last, as: UTF8.self)).utf8)
  }

  /// Whether a line is about an encrypted store, as far as can be seen: its text must not reach the disk.
  func isPrivate(_ words: [Argument]) -> Bool {
    var named = invocation
    if case .run(let parsed) = try? parser.parse(words), let inherited = try? inheriting(parsed) {
      named = inherited
    }
    return [named, invocation].contains { invocation in
      guard let path = try? invocation.storePath() else { return false }
      return (try? Store.isEncrypted(at: path)) ?? true
    }
  }

  /// Opens the store once, if that needs no passphrase, so that its name is known.
  func readStoreName() {
    guard let path = try? invocation.storePath(), (try? !Store.isEncrypted(at: path)) ?? false else { return }
    try? invocation.withStore((path, invocation.configuration(.readOnly))) { _ in }
  }
}
