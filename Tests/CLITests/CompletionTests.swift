import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// `completions`, in the shells that are installed, and the hidden `complete`.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct CompletionTests {
  static func isInstalled(_ shell: String) -> Bool {
    FileManager.default.isExecutableFile(atPath: "/usr/bin/\(shell)")
  }

  /// A line up to the cursor, and the words that can stand there.
  struct Line: Sendable, CustomTestStringConvertible {
    let text: String
    let words: [String]

    init(_ text: String, _ words: String...) { (self.text, self.words) = (text, words) }

    var testDescription: String { text }
  }

  /// Lines with the same answer in bash and fish.
  static let lines = [
    Line("sync-cli dig", "digest"), Line("sync-cli lo", "load", "log"),
    Line("sync-cli peer re", "remove", "rename", "revoke"), Line("sync-cli help peer rem", "remove"),
    Line("sync-cli peer remove h", "harbour", "hut"), Line("sync-cli push hut h", "harbour", "hut"),
    Line("sync-cli get ", "a b", "order/", "user:"), Line("sync-cli get order/", "order/1", "order/2/"),
    Line("sync-cli ls o", "order/"), Line("sync-cli del --prefix o", "order/"),
    Line("sync-cli --json rm k o", "order/"), Line("sync-cli ttl k o"),
    Line("sync-cli put k v --ty", "--type"), Line("sync-cli put --type fl", "float"),
    Line("sync-cli get -- o", "order/"), Line("sync-cli peer set-right hut read-o", "read-only"),
    Line("sync-cli --store /nonexistent get "), Line("sync-cli --store other get ", "elsewhere"),
    Line("sync-cli --store=other get ", "elsewhere"), Line("sync-cli frobnicate "),
    Line("sync-cli put k --file scr", "script"), Line("sync-cli completions b", "bash"),
    Line("sync-cli invite revoke "),
  ]

  /// A directory with two stores, `script` for a shell, and the program on the path of `scratch.shell`.
  private func prepared(_ shell: CompletionScript) throws -> Scratch {
    let scratch = try Scratch()
    let tool = try scratch.store()
    for key in ["order/1", "order/2/x", "order/2/y", "user:1", "user:2", "a b"] {
      try tool.succeed("put", key, "a secret value")
    }
    for peer in ["harbour", "hut"] { try tool.succeed("peer", "add", peer, "h:1") }
    try scratch.store("other").succeed("put", "elsewhere", "x")
    try scratch.write("script", tool.succeed("completions", shell.rawValue).out)
    let linked = try scratch.shell("mkdir bin && ln -s \"$CLI\" bin/sync-cli && \(shell) -n script")
    #expect(linked.code == 0 && linked.out.isEmpty, "\(linked.out)")
    return scratch
  }

  /// Other tests run at the same time.
  private static let patience = "SYNC_COMPLETE_TIMEOUT"
  private static let setting =
    "export SYNC_STORE=$PWD/store PATH=$PWD/bin:$PATH HOME=$PWD TERM=dumb \(patience)=60000\n"

  @Test("bash completes commands, options, keys, peers and files")
  func bash() throws {
    let scratch = try prepared(.bash)
    // Divides the line as readline does: none of these has quotes.
    let harness = #"""
      source ./script
      compopt() { :; }
      try() {
        local rest=$1 word
        COMP_LINE=$1; COMP_WORDS=()
        while [[ -n $rest ]]; do
          case $rest in
            ' '*) rest=${rest# }; [[ -n $rest ]] || COMP_WORDS+=(''); continue ;;
            [:=]*) word=${rest:0:1} ;;
            *) word=${rest%%[ :=]*} ;;
          esac
          COMP_WORDS+=("$word"); rest=${rest#"$word"}
        done
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _sync_cli sync-cli
        printf '%s|' "${COMPREPLY[@]//\\/}"; echo
      }

      """#
    let extra = [Line("sync-cli get user:", "1", "2"), Line("sync-cli put k --type=fl", "float")]
    let all = Self.lines + extra
    let script = all.map { "try '\($0.text)'\n" }.joined()
    try scratch.write("run", Array((Self.setting + harness + script).utf8))
    let result = try scratch.shell("bash run")
    let answers = result.out.split(separator: "\n", omittingEmptySubsequences: false)
    for (line, answer) in zip(all, answers) {
      let words = answer.split(separator: "|").map(String.init)
      #expect(words.sorted() == line.words.sorted(), "\(line.text): \(answer)")
    }
    #expect(answers.count == all.count + 1, "\(result.out)")
  }

  @Test(
    "fish completes commands, options, keys, peers and files",
    .enabled(if: isInstalled("fish"), "fish is not installed"))
  func fish() throws {
    let scratch = try prepared(.fish)
    let extra = [
      Line("sync-cli get user:", "user:1", "user:2"), Line("sync-cli put k --type=fl", "--type=float"),
      Line("sync-cli get 'a ", "a b"),
    ]
    let all = Self.lines + extra
    let script = all.map { "complete -C \"\($0.text)\" | string split -f 1 \\t; echo end\n" }.joined()
    try scratch.write("run", Array(("source script\n" + script).utf8))
    let result = try scratch.shell("\(Self.setting)fish --no-config run")
    var answers = result.out.split(separator: "\n").map(String.init)[...]
    for line in all {
      let words = Array(answers.prefix { $0 != "end" })
      answers = answers.dropFirst(words.count + 1)
      #expect(words.sorted() == line.words.sorted(), "\(line.text)")
    }
    #expect(answers.isEmpty, "\(result.out)")
  }

  @Test(
    "at a terminal, a tab completes the line", arguments: ["bash", "zsh"])
  func terminal(shell: String) throws {
    guard let kind = CompletionScript(rawValue: shell), Self.isInstalled(shell) else {
      return print("not tried: \(shell) is not installed")
    }
    let scratch = try prepared(kind)
    let start =
      shell == "bash" ? "bash --norc --noprofile" : "zsh -f"
    let setup = shell == "bash" ? "" : "autoload -U compinit; compinit -D -u; "
    let result = try scratch.shell(
      """
      \(Self.setting)export SHELL=/bin/sh
      mkfifo keys; touch screen
      script -qfc '\(start) -i' screen <> keys > /dev/null 2>&1 &
      trap 'kill -9 $!' EXIT
      until_true() { for try in $(seq 1500); do eval "$1" && return; sleep 0.01; done; cat screen; exit 9; }
      printf '\(setup)source ./script; PS1="%% "; echo rea""dy\\n' > keys
      until_true 'grep -q ^ready screen'
      printf 'sync-cli peer rem\\t' > keys; until_true 'grep -q "peer remove" screen'
      printf 'har\\t' > keys; until_true 'grep -q harbour screen'
      printf '; sync-cli ge\\t' > keys; until_true 'grep -q "sync-cli get" screen'
      printf 'us\\t' > keys; until_true 'grep -q er: screen'
      printf '1; sync-cli peer list\\n' > keys
      until_true 'grep -q "hut h:1" screen'
      """)
    #expect(result.code == 0, "\(result.out)")
    // The completed line was run.
    #expect(try scratch.tool().succeed("peer", "list").text.contains("harbour") == false)
  }

  @Test(
    "each command and option is in each script, hidden ones are not", arguments: CompletionScript.allCases)
  func whole(shell: CompletionScript) {
    let script = shell.text(for: Program.commands, globals: Help.globals)
    for command in Program.commands {
      for name in [command.name] + command.aliases { #expect(script.contains("'\(name)'"), "\(name)") }
      for option in command.options { #expect(script.contains("'--\(option.name)"), "\(option.name)") }
    }
    #expect(!script.contains("'complete'") && !script.contains("'manual'"))
  }

  @Test("names are printed up to the next separator, at most 200, and never a value")
  func names() throws {
    let tool = try Scratch().store()
    var lines = (0..<300).map { "{\"key\":\"many\($0)\",\"value\":\"secret\"}\n" }
    lines += (0..<300).map { "{\"key\":\"deep/\($0)/x\",\"value\":\"secret\"}\n" }
    lines += ["{\"key\":\"bad\\u001b[1m\",\"value\":\"x\"}\n", "{\"key_base64\":\"/w==\",\"value\":\"x\"}\n"]
    try tool.succeed("load", "-", input: Array(lines.joined().utf8))
    func names(_ kind: String, _ word: String = "") throws -> [String] {
      try tool.start(["complete", "--kind", kind, word], environment: [Self.patience: "60000"]).finish().lines
    }
    #expect(try names("keys", "d") == ["deep/"])
    #expect(try names("keys", "deep/7").count == 11)
    // The first of them cannot be shown.
    #expect(try names("keys").count == CompleteCommand.mostCandidates - 1)
    #expect(try names("keys", "bad") == [])
    #expect(try names("invitations") == [])
    try tool.succeed("invite", "--address", "h:1")
    let id = try #require(tool.succeed("invite", "list").text.split(separator: " ").first)
    #expect(try names("invitations") == [String(id)])
    // Those written last, if the keys cannot be sorted in time.
    let store = try Store.open(at: tool.store, configuration: Configuration(mode: .shared))
    #expect(try CompleteCommand.recentKeys(Array("d".utf8), in: store) == ["deep/"])
    #expect(try CompleteCommand.recentKeys(Array("many29".utf8), in: store).count == 11)
    try store.close()
    // Too little time is no error.
    let hurried = try tool.start(["complete", "--kind", "keys"], environment: [Self.patience: "0"]).finish()
    #expect(hurried.code == 0 && hurried.err.isEmpty)
  }

  @Test("completion is silent on every error, and asks for no passphrase")
  func silent() throws {
    let scratch = try Scratch()
    let tool = scratch.tool()
    let encrypted = scratch.tool("encrypted")
    #expect(
      try encrypted.start(["init", "--encrypt"], environment: ["SYNC_PASSPHRASE": "p"]).finish().code == 0)
    let words = ["complete", "--kind", "keys"]
    for (tool, words) in [
      (tool, words), (encrypted, words), (tool, ["complete"]), (tool, words + ["--store", ""]),
    ] {
      let result = try tool.start(words).finish()
      #expect(result.code == 0 && result.out.isEmpty && result.err.isEmpty, "\(words): \(result)")
    }
  }
}
