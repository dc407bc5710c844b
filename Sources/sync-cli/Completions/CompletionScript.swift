import SyncStore

/// A completion script: the table of commands in the language of a shell, and a function of that shell that
/// reads it.
///
/// All three have the same form. The table says for each command, by all its names, which words can follow:
/// commands, options with the kinds of their values, and the kinds of operands. The function reads the words
/// before the cursor with it.
enum CompletionScript: String, CaseIterable {
  case bash, zsh, fish

  /// The script for these commands.
  func text(for commands: [Command], globals: [Option]) -> String {
    let table = Table(commands: commands, globals: globals)
    return switch self {
    case .bash: BashCompletion.script(table)
    case .zsh: ZshCompletion.script(table)
    case .fish: FishCompletion.script(table)
    }
  }

  /// The commands by the words before them.
  struct Table {
    /// What can follow the words of a command.
    struct Row {
      /// The words: empty at the beginning, the name of a family, or the names of a command.
      let names: [String]
      /// The next words of longer commands, with their descriptions.
      let subcommands: [(name: String, summary: String)]
      let command: Command?
    }

    let rows: [Row]
    let globals: [Option]

    init(commands: [Command], globals: [Option]) {
      self.globals = globals
      var paths = StringSet(commands.map(\.name))
      for command in commands { if let family = command.family { paths.insert(family) } }
      let rows = paths.sorted().map { path in
        let command = commands.first { $0.name == path }
        return Row(
          names: [path] + (command?.aliases ?? []), subcommands: Self.followers(of: path, in: commands),
          command: command)
      }
      self.rows = [Row(names: [""], subcommands: Self.followers(of: "", in: commands), command: nil)] + rows
    }

    private static func followers(of path: String, in commands: [Command]) -> [(String, String)] {
      guard path.isEmpty else {
        return commands.filter { $0.family == path }.map {
          (String($0.name.dropFirst(path.count + 1)), $0.summary)
        }
      }
      var found: [(String, String)] = []
      for command in commands {
        let word = command.family ?? command.name
        guard !found.contains(where: { $0.0 == word }) else { continue }
        let family = commands.filter { $0.family == word }.map { String($0.name.dropFirst(word.count + 1)) }
        let own = commands.first { $0.name == word }?.summary
        found.append((word, own ?? family.joined(separator: ", ")))
      }
      return found + [("help", "show help on a command")]
    }
  }

  /// A word in single quotes, as all three shells read it.
  static func quoted(_ text: String) -> String {
    "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: #"'\''"#) + "'"
  }

  /// `--name`, or `--name=KIND` if a value follows.
  static func word(_ option: Option) -> String {
    "--\(option.name)" + (option.value == nil ? "" : "=\(WordKind(option).scriptWord)")
  }

  /// The kind of an operand, with a star before it if any number may follow.
  static func word(_ operand: Operand) -> String {
    let repeats = [.many, .some].contains(operand.arity)
    return (repeats ? "*" : "") + WordKind(operand).scriptWord
  }
}
