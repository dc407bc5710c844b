import SyncStore

/// `shell`: commands for one store, a line for each.
enum ShellCommand {
  static let command = Command(
    "shell", "type commands for one store, or run a script of them",
    options: [ItemFailures.strict],
    notes: """
      A line is a command as on the command line, without "sync-cli". The options before "shell" hold for each
      line: the store, --json, the passphrase file …; those in a line hold for that line. A passphrase is asked
      for once.

      Blanks part words; '…' and "…" hold blanks. "…" has the escapes \\n \\r \\t \\a \\b \\" \\\\ and \\xHH, so
      that a key can have any bytes. A quote may span lines. # begins a comment. A command has at most
      \(Text.size(ShellWords.mostBytes)).

      On a terminal, Tab completes commands, options, keys and peers, the arrow keys bring back lines, and
      Ctrl-R searches them. The prompt has the exit code of a command that failed. Ctrl-C drops the line, or
      stops the command; where a command does not stop, a second one ends the shell. exit, quit and Ctrl-D end
      it with 0.

      Lines are kept in $XDG_STATE_HOME/sync-store/history, at most \(ShellHistory.mostLines), or in the file
      that SYNC_HISTORY_FILE names; none if the name is empty. Not kept are lines that begin with a space,
      tokens, and lines about an encrypted store.

      Where standard input is no terminal, its lines run as a script: failures are told, the rest is done, and
      the exit code is that of the worst; with --strict the first failure ends it. Standard input cannot be a
      value there: name a file.
      """
  ) { invocation, output in
    try Shell(invocation, output).run()
  }

  /// Commands that are no use in a shell, and why.
  static let refused: [(name: String, reason: String)] = [
    ("shell", "this is one"), ("serve", "it runs until it is stopped"),
    ("completions", "it prints a script for another shell"),
    ("complete", "it is for scripts of other shells"),
    ("manual", "it is for the build"),
  ]

  /// Commands that need the store for themselves.
  static let exclusive = ["destroy", "restore", "rekey", "init", "join"]

  /// Operands and option values that may have zero bytes. Others name files or peers, whose names end there.
  static let mayHoldZeros = ["KEY", "PREFIX", "P", "OLD", "NEW", "VALUE", "GLOB", "S"]
}
