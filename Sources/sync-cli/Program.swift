import SyncStore

/// The program, from its command line to its exit code.
enum Program {
  /// The version printed by `--version`.
  static let version = "0.1.0"
  /// The day of that version, in the manual pages.
  static let date = "2026-11-28"

  /// All commands, in the order of the help.
  static let commands: [Command] = [
    InitCommand.command, KeyCommands.put, KeyCommands.get, KeyCommands.delete, ListCommand.command,
    UsageCommands.count, UsageCommands.du,
    ExpiryCommands.expire, ExpiryCommands.ttl, MoveCommands.mv, MoveCommands.cp, EditCommand.command,
    TreeCommands.importing, TreeCommands.exporting, LineCommands.load, LineCommands.dump,
    WatchCommand.command,
    InspectCommands.digest, InspectCommands.log, WhyCommand.command, InspectCommands.conflicts,
    VerifyCommand.command, CompactCommand.command, TierCommands.trim, TierCommands.policy,
    BackupCommands.backup,
    BackupCommands.restore, BackupCommands.destroy, RekeyCommand.command,
    StatusCommand.command, BundleCommand.command, UnsentCommand.command,
    SyncCommands.push, SyncCommands.pull, SyncCommands.sync,
    DiffCommand.command,
    ServeCommand.command,
    MemberCommands.invite, InviteCommands.list, InviteCommands.revoke, MemberCommands.join,
    MemberCommands.list, MemberCommands.add, MemberCommands.remove, RenameCommand.command,
    SetRightCommand.command,
    RevokeCommand.command, RelayCommands.check, RelayCommands.status, RelayCommands.collect,
    ClockCommand.command, ConflictCommands.show,
    ConflictCommands.restore, ShellCommand.command, CompletionsCommand.command,
  ]

  /// Commands for scripts and the build.
  static let hidden: [Command] = [CompleteCommand.command, ManualCommand.command]

  /// Milliseconds that an ending daemon waits for the reader of its log.
  private static let finalFlushMilliseconds: Int32 = 250

  /// The meaning of a family name on its own.
  static let alone: StringDictionary<String> = ["conflicts": "conflicts list"]

  /// Runs a command line.
  static func run(_ words: [Argument]) -> ExitCode {
    let output = Output()
    do {
      let parser = ArgumentParser(commands: commands, globals: Help.globals, hidden: hidden, alone: alone)
      let code: ExitCode
      switch try parser.parse(words) {
      case .version:
        try output.line("sync-cli \(version)")
        code = .done
      case .help(let command):
        try output.write(Array((command.map(Help.text) ?? Help.overview(of: commands)).utf8))
        code = .done
      case .run(let invocation):
        do { code = try invocation.command.run(invocation, output) } catch {
          throw Failure(error).named(invocation.command.name)
        }
      }
      try output.flush()
      Diagnostics.flush(within: finalFlushMilliseconds)
      return code
    } catch {
      return end(Failure(error), output)
    }
  }

  private static func end(_ failure: Failure, _ output: Output) -> ExitCode {
    if failure.isBrokenPipe { System.dieOfBrokenPipe() }
    // Output before the failure is still valid data; if it cannot be written either, one error is enough.
    try? output.flush()
    Diagnostics.report(failure.message, as: .error)
    Diagnostics.flush(within: finalFlushMilliseconds)
    return failure.code
  }
}
