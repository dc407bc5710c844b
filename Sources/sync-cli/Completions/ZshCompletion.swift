/// Completion for zsh.
enum ZshCompletion {
  static func script(_ table: CompletionScript.Table) -> String {
    let rows = table.rows.map { row in
      let names = row.names.map(CompletionScript.quoted).joined(separator: "|")
      let commands = list("commands", row.subcommands.map { "\($0.name):\($0.summary)" })
      let options = list("options", (row.command?.options ?? []).map(described))
      let operands = list("operands", (row.command?.operands ?? []).map(CompletionScript.word))
      return "    \(names)) \([commands, options, operands].joined(separator: " ")) ;;"
    }
    return head + "\n_sync_cli_globals=(\(quoted(table.globals.map(described))))\n" + tableHead
      + rows.joined(separator: "\n") + "\n    *) return 1 ;;\n  esac\n}\n" + body
  }

  /// An option with its description after a blank.
  private static func described(_ option: Option) -> String {
    "\(CompletionScript.word(option)) \(option.help)"
  }

  private static func list(_ name: String, _ words: [String]) -> String { "\(name)=(\(quoted(words)))" }

  private static func quoted(_ words: [String]) -> String {
    words.map(CompletionScript.quoted).joined(separator: " ")
  }

  private static let head = """
    #compdef sync-cli
    # Completion of sync-cli for zsh, printed by "sync-cli completions zsh". To use it now, after compinit:
    #   source <(sync-cli completions zsh)
    # To install it for all users:
    #   sync-cli completions zsh > /usr/local/share/zsh/site-functions/_sync-cli

    """

  private static let tableHead = """

    # What can follow a command: sets commands, options and operands. Fails if there is no such command.
    _sync_cli_table() {
      case $1 in

    """

  private static let body = #"""

    # Adds the words of a kind.
    _sync_cli_complete() {
      local plain=${(Q)PREFIX}
      local -a names
      case $1 in
        files) _files ;;
        directories) _files -/ ;;
        words:*) names=(${(s:,:)${1#words:}}); compadd -a names ;;
        keys|peers|invitations)
          names=("${(@f)$($program $store complete --kind $1 -- "$plain" 2> /dev/null)}")
          names=(${names:#})
          # No blank after the part of a key.
          compadd -S '' -- ${(M)names:#*[/:]}
          compadd -- ${names:#*[/:]} ;;
      esac
    }

    # Adds the options of the command and those of every command.
    _sync_cli_options() {
      local option
      local -a shown
      for option in $options $_sync_cli_globals; do
        shown+=("${${option%% *}%%=*}:${option#* }")
      done
      _describe -o option shown
    }

    _sync-cli() {
      local program=${(Q)words[1]} command='' kind='' ended='' word option name
      local -i position=0 i
      local -a commands options operands store
      _sync_cli_table ''
      for ((i = 2; i < CURRENT; i++)); do
        word=${(Q)words[i]}
        if [[ -z $ended && $word == -- ]]; then
          ended=1
        elif [[ -z $ended && $word == -?* ]]; then
          for option in $options $_sync_cli_globals; do
            option=${option%% *}
            [[ $option == *=* && ${option%%=*} == ${word%%=*} ]] || continue
            if [[ $word == *=* ]]; then
              word=${word#*=}
            else
              i+=1
              word=${(Q)words[i]}
              ((i < CURRENT)) || kind=${option#*=}
            fi
            [[ ${option%%=*} != --store ]] || store=(--store ${word/#\~\//$HOME/})
          done
        elif [[ $position == 0 && -z $command && $word == help ]]; then
          options=() operands=()
        elif ((position == 0)) && _sync_cli_table "${command:+$command }$word"; then
          command="${command:+$command }$word"
        else
          position+=1
          commands=()
        fi
      done
      if [[ -n $kind ]]; then
        _sync_cli_complete $kind
      elif [[ -z $ended && $PREFIX == --*=* ]]; then
        word=${PREFIX%%=*}
        compset -P '*='
        for option in $options $_sync_cli_globals; do
          option=${option%% *}
          [[ $option != $word=* ]] || _sync_cli_complete ${option#*=}
        done
      elif [[ -z $ended && $PREFIX == -* ]]; then
        _sync_cli_options
      else
        ((! $#commands)) || _describe command commands
        kind=${operands[position + 1]}
        # The last one may repeat.
        [[ -n $kind || ${operands[-1]} != \** ]] || kind=${operands[-1]}
        _sync_cli_complete ${kind#\*}
      fi
    }

    if [[ $funcstack[1] == _sync-cli ]]; then _sync-cli "$@"; else compdef _sync-cli sync-cli; fi

    """#
}
