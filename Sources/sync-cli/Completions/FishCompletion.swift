/// Completion for fish.
enum FishCompletion {
  static func script(_ table: CompletionScript.Table) -> String {
    let rows = table.rows.map { row in
      let commands = row.subcommands.map { "\($0.name)\t\($0.summary)" }
      return """
            case \(row.names.map(quoted).joined(separator: " "))
              set -g __sync_cli_commands \(list(commands))
              set -g __sync_cli_options \(list((row.command?.options ?? []).map(described)))
              set -g __sync_cli_operands \(list((row.command?.operands ?? []).map(CompletionScript.word)))
        """
    }
    return head + "\nset -g __sync_cli_globals \(list(table.globals.map(described)))\n" + tableHead
      + rows.joined(separator: "\n") + "\n    case '*'\n      return 1\n  end\n  return 0\nend\n" + body
  }

  /// An option with its description after a tab.
  private static func described(_ option: Option) -> String {
    "\(CompletionScript.word(option))\t\(option.help)"
  }

  private static func list(_ words: [String]) -> String { words.map(quoted).joined(separator: " ") }

  /// A backslash escapes within single quotes, unlike in other shells.
  private static func quoted(_ text: String) -> String {
    "'" + text.map { $0 == "'" || $0 == "\\" ? "\\\($0)" : "\($0)" }.joined() + "'"
  }

  private static let head = """
    # Completion of sync-cli for fish, printed by "sync-cli completions fish". To use it now:
    #   sync-cli completions fish | source
    # To install it for all users:
    #   sync-cli completions fish > /usr/share/fish/vendor_completions.d/sync-cli.fish

    """

  private static let tableHead = """

    # What can follow a command: sets commands, options and operands. Fails if there is no such command.
    function __sync_cli_table
      switch $argv[1]

    """

  private static let body = #"""

    # Prints the words of a kind.
    function __sync_cli_complete --argument-names kind current
      switch $kind
        case files
          __fish_complete_path $current
        case directories
          __fish_complete_directories $current
        case 'words:*'
          string split , (string replace words: '' -- $kind)
        case keys peers invitations
          $__sync_cli_program $__sync_cli_store complete --kind $kind -- "$current" 2> /dev/null
      end
    end

    # Prints all words that can stand at the cursor, each with a tab and its description.
    function __sync_cli_candidates
      set -l words (commandline -opc)
      # Without its quotes.
      set -l current (commandline -ct | string replace -r -- "^['\"]" '')
      set current (string replace -ra -- '\\\\(.)' '$1' $current)
      set -g __sync_cli_program $words[1]
      set -g __sync_cli_store
      set -l command ''
      set -l kind ''
      set -l ended ''
      set -l position 0
      __sync_cli_table ''
      set -l i 2
      while test $i -le (count $words)
        set -l word $words[$i]
        if test -z "$ended" -a "$word" = --
          set ended 1
        else if test -z "$ended"; and string match -q -- '-?*' $word
          for option in $__sync_cli_options $__sync_cli_globals
            set option (string split -m 1 \t -- $option)[1]
            set -l parts (string split -m 1 = -- $option)
            set -l given (string split -m 1 = -- $word)
            test (count $parts) -eq 2 -a "$parts[1]" = "$given[1]"; or continue
            if test (count $given) -eq 1
              set i (math $i + 1)
              set -a given $words[$i]
              test $i -le (count $words); or set kind $parts[2]
            end
            if test $parts[1] = --store
              set -g __sync_cli_store --store (string replace -r '^~/' "$HOME/" -- $given[2])
            end
          end
        else if test $position -eq 0 -a -z "$command" -a "$word" = help
          set -g __sync_cli_options
          set -g __sync_cli_operands
        else if test $position -eq 0; and __sync_cli_table (string trim -- "$command $word")
          set command (string trim -- "$command $word")
        else
          set position (math $position + 1)
          set -g __sync_cli_commands
        end
        set i (math $i + 1)
      end
      if test -n "$kind"
        __sync_cli_complete $kind $current
      else if test -z "$ended"; and string match -q -- '--*=*' $current
        set -l given (string split -m 1 = -- $current)
        for option in $__sync_cli_options $__sync_cli_globals
          set -l parts (string split -m 1 = -- (string split -m 1 \t -- $option)[1])
          test (count $parts) -eq 2 -a "$parts[1]" = "$given[1]"; or continue
          for found in (__sync_cli_complete $parts[2] $given[2])
            printf '%s=%s\n' $given[1] $found
          end
        end
      else if test -z "$ended"; and string match -q -- '-*' $current
        string replace -r '=[^\t]*' '' -- $__sync_cli_options $__sync_cli_globals
      else
        printf '%s\n' $__sync_cli_commands
        set kind $__sync_cli_operands[(math $position + 1)]
        # The last one may repeat.
        if test -z "$kind"; and string match -q -- '\**' $__sync_cli_operands[-1]
          set kind $__sync_cli_operands[-1]
        end
        __sync_cli_complete (string replace -r '^\*' '' -- $kind) $current
      end
    end

    complete -c sync-cli -f -a '(__sync_cli_candidates)'

    """#
}
