/// Completion for bash, from version 4.4 on. It needs no other package.
enum BashCompletion {
  static func script(_ table: CompletionScript.Table) -> String {
    let rows = table.rows.map { row in
      let names = row.names.map(CompletionScript.quoted).joined(separator: "|")
      let commands = list("commands", row.subcommands.map(\.name))
      let options = list("options", (row.command?.options ?? []).map(CompletionScript.word))
      let operands = list("operands", (row.command?.operands ?? []).map(CompletionScript.word))
      return "    \(names)) \([commands, options, operands].joined(separator: " ")) ;;"
    }
    return head + "\n_sync_cli_globals=(\(quoted(table.globals.map(CompletionScript.word))))\n" + tableHead
      + rows.joined(separator: "\n") + "\n    *) return 1 ;;\n  esac\n}\n" + body
  }

  private static func list(_ name: String, _ words: [String]) -> String { "\(name)=(\(quoted(words)))" }

  private static func quoted(_ words: [String]) -> String {
    words.map(CompletionScript.quoted).joined(separator: " ")
  }

  private static let head = """
    # Completion of sync-cli for bash, printed by "sync-cli completions bash". To use it now:
    #   source <(sync-cli completions bash)
    # To install it for all users:
    #   sync-cli completions bash > /usr/share/bash-completion/completions/sync-cli

    """

  private static let tableHead = """

    # What can follow a command: sets commands, options and operands. Fails if there is no such command.
    _sync_cli_table() {
      case $1 in

    """

  private static let body = #"""

    # Prints a word of the line without its quotes.
    _sync_cli_unquoted() {
      local word=${1//[\"\']/}
      word=${word//\\/}
      [[ $word != \~/* ]] || word=$HOME/${word:2}
      printf '%s' "$word"
    }

    # Sets words to those up to the cursor. bash divides them at ":" and "=", too, which keys and options
    # hold.
    _sync_cli_words() {
      local rest=$COMP_LINE word i
      for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ -n $word && $rest != [[:blank:]]* ]]; then
          words[-1]+=$word
        else
          words+=("$word")
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
      done
    }

    # Adds the words of a kind that begin with the given one to COMPREPLY.
    _sync_cli_complete() {
      local kind=$1 current=$2 plain found quoted strip
      local -a names=()
      plain=$(_sync_cli_unquoted "$current")
      case $kind in
        files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$plain"); return ;;
        directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$plain"); return ;;
        words:*) IFS=, read -r -a names <<< "${kind#words:}" ;;
        keys | peers | invitations)
          mapfile -t names < <("$program" "${store[@]}" complete --kind "$kind" -- "$plain" 2> /dev/null) ;;
        *) return ;;
      esac
      # bash replaces only what follows the last of its separators.
      strip=${current%"${current##*[:=]}"}
      [[ $COMP_WORDBREAKS == *:* ]] || strip=
      for found in "${names[@]}"; do
        [[ $found == "$plain"* ]] || continue
        quoted=$found
        [[ $current == [\"\']* ]] || quoted=$(printf '%q' "$found")
        COMPREPLY+=("${quoted#"$strip"}")
        [[ $found != *[/:] ]] || compopt -o nospace
      done
      return 0
    }

    # Adds the options that begin with the given word to COMPREPLY.
    _sync_cli_options() {
      local option
      for option in "${options[@]}" "${_sync_cli_globals[@]}"; do
        [[ ${option%%=*} != "$1"* ]] || COMPREPLY+=("${option%%=*}")
      done
    }

    _sync_cli() {
      local program=$1 command='' kind='' ended='' current='' word option name
      local -i position=0 last i
      local -a words=() commands=() options=() operands=() store=()
      COMPREPLY=()
      _sync_cli_words
      last=$((${#words[@]} - 1))
      current=${words[last]}
      _sync_cli_table ''
      for ((i = 1; i < last; i++)); do
        word=${words[i]}
        if [[ -z $ended && $word == -- ]]; then
          ended=1
        elif [[ -z $ended && $word == -?* ]]; then
          for option in "${options[@]}" "${_sync_cli_globals[@]}"; do
            [[ $option == *=* && ${option%%=*} == "${word%%=*}" ]] || continue
            if [[ $word == *=* ]]; then
              word=${word#*=}
            else
              i+=1
              word=${words[i]}
              ((i < last)) || kind=${option#*=}
            fi
            [[ ${option%%=*} != --store ]] || store=(--store "$(_sync_cli_unquoted "$word")")
          done
        elif ((position == 0)) && [[ -z $command && $word == help ]]; then
          options=() operands=()
        elif ((position == 0)) && _sync_cli_table "${command:+$command }$word"; then
          command="${command:+$command }$word"
        else
          position+=1
          commands=()
        fi
      done
      if [[ -n $kind ]]; then
        _sync_cli_complete "$kind" "$current"
      elif [[ -z $ended && $current == --*=* ]]; then
        for option in "${options[@]}" "${_sync_cli_globals[@]}"; do
          [[ $option != "${current%%=*}="* ]] || _sync_cli_complete "${option#*=}" "${current#*=}"
        done
      elif [[ -z $ended && $current == -* ]]; then
        _sync_cli_options "$current"
      else
        for name in "${commands[@]}"; do
          [[ $name != "$current"* ]] || COMPREPLY+=("$name")
        done
        kind=${operands[position]-}
        # The last one may repeat.
        [[ -n $kind || ${operands[*]: -1} != \** ]] || kind=${operands[*]: -1}
        _sync_cli_complete "${kind#\*}" "$current"
      fi
    }

    complete -F _sync_cli sync-cli

    """#
}
