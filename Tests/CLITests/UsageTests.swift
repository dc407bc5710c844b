import Replication
import SyncStore
import Testing

@testable import sync_cli

/// Wrong usage: the documented exit code, one helpful line, nothing on standard output, no data lost.
@Suite struct UsageTests {
  struct Mistake: Sendable, CustomTestStringConvertible {
    let words: [String]
    let code: Int32
    /// Text that the error line must contain.
    let says: String

    init(_ line: String, _ code: Int32 = 2, says: String) {
      (words, self.code, self.says) = (line.split(separator: " ").map(String.init), code, says)
    }

    var testDescription: String { "sync-cli " + words.joined(separator: " ") }
  }

  static let mistakes: [Mistake] = [
    Mistake("", says: "no command"),
    Mistake("pt key value", says: "did you mean \"put\""),
    Mistake("lst", says: "did you mean \"list\""),
    Mistake("kyes", says: "did you mean \"keys\""),
    Mistake("complet", says: "did you mean \"completions\""),
    Mistake("list --lmit 3", says: "did you mean --limit"),
    Mistake("frobnicate", says: "sync-cli --help"),
    Mistake("--frobnicate", says: "no such option"),
    Mistake("--store", says: "--store has no value"),
    Mistake("put", says: "KEY is missing"),
    Mistake("put a", says: "neither VALUE nor --file"),
    Mistake("put a b c", says: "\"c\" is too much"),
    Mistake("put a b --tll 1h", says: "did you mean --ttl"),
    Mistake("put a b --ttl never", says: "not a span of time"),
    Mistake("put a b --ttl 1h --ttl 2h", says: "given twice"),
    Mistake("put a b --type nonsense", says: "no such type"),
    Mistake("put a b --type int", says: "whole number"),
    Mistake("put a b --file c", says: "both given"),
    Mistake("put a b --json=yes", says: "takes no value"),
    Mistake("put a -b", says: "put -- before it"),
    Mistake("put a --file /", says: "is a directory"),
    Mistake("put a --file /nonexistent", 1, says: "No such file"),
    Mistake("get", says: "KEY is missing"),
    Mistake("get kept nonsense", says: "would run together"),
    Mistake("get absent", 1, says: "no such key"),
    Mistake("delete", says: "no key is given"),
    Mistake("delete --prefix=", says: "would delete everything"),
    Mistake("delete absent", 1, says: "no such key"),
    Mistake("list --limit 0", says: "whole number"),
    Mistake("list --limit ten", says: "whole number"),
    Mistake("list a b", says: "too much"),
    Mistake("import", says: "DIR is missing"),
    Mistake("import /nonexistent", 1, says: "No such file"),
    Mistake("import /etc/hostname", says: "no directory"),
    Mistake("export", says: "DIR is missing"),
    Mistake("export /proc/version", says: "not a directory"),
    Mistake("load", says: "FILE is missing"),
    Mistake("load /nonexistent", 1, says: "No such file"),
    Mistake("load /", says: "is a directory"),
    Mistake("dump a b", says: "too much"),
    Mistake("digest now", says: "too much"),
    Mistake("log --from minus", says: "whole number"),
    Mistake("why", says: "KEY is missing"),
    Mistake("why absent", 1, says: "nothing was ever written"),
    Mistake("peer", says: "it is one of list"),
    Mistake("conflicts lst", says: "did you mean \"conflicts list\""),
    Mistake("conflicts kept", says: "no such command"),
    Mistake("verify twice", says: "too much"),
    Mistake("init", says: "already"),
    Mistake("watch a b", says: "too much"),
    Mistake("watch --from nowhere", says: "no position"),
    Mistake("watch --exec", says: "--exec has no value"),
    Mistake("completions", says: "is missing"),
    Mistake("completions tcsh", says: "bash, zsh or fish"),
    Mistake("conflicts restore", says: "KEY is missing"),
  ]

  @Test("a usage error ends with its code and one helpful line, and nothing is lost", arguments: mistakes)
  func mistake(_ mistake: Mistake) throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "kept", "value")
    let digest = try tool.succeed("digest").text
    let result = try tool.start(mistake.words).finish()
    #expect(result.code == mistake.code, "\(result.err)")
    #expect(result.out.isEmpty)
    #expect(result.err.hasPrefix("sync-cli: "))
    #expect(result.err.hasSuffix("\n"))
    #expect(result.err.dropLast().contains("\n") == false, "more than one line: \(result.err)")
    #expect(result.err.contains(mistake.says), "\(result.err)")
    #expect(try tool.succeed("digest").text == digest)
    #expect(try tool.succeed("get", "kept").text == "value")
  }

  @Test(
    "without a store each command says how to create one",
    arguments: [
      ["put", "a", "b"], ["get", "a"], ["list"], ["dump"], ["digest"], ["log"], ["verify"], ["status"],
      ["why", "a"],
    ])
  func noStore(words: [String]) throws {
    let scratch = try Scratch()
    let result = try scratch.tool().start(words).finish()
    #expect(result.code == 2)
    #expect(result.out.isEmpty)
    #expect(
      result.err.contains("create one with `init`") || result.err.contains("create a store with `init`"))
    // The library's own message names a call instead of a command.
    #expect(!result.err.contains("Store."))
  }

  @Test(
    "`conflicts` without a subcommand lists them",
    arguments: [["conflicts"], ["conflicts", "--json"], ["--quiet", "conflicts"]])
  func family(words: [String]) throws {
    let tool = try Scratch().store()
    #expect(try tool.start(words).finish().code == 0)
    let help = try tool.succeed("conflicts", "--help")
    #expect(help.text.hasPrefix("usage: sync-cli [OPTION"))
  }

  @Test("a path that is not UTF-8 is refused, not mistaken for another one")
  func foreignPaths() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 1, count: 100_000))
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      for words in 'get large --output' backup export '--store'; do
        [ "$words" = --store ] && last=list || last=
        $CLI $words $'x\\xff' $last; echo $?
      done
      SYNC_STORE=$'x\\xff' $CLI init; echo $?
      $CLI --store other restore $'x\\xff'; echo $?
      ls
      """)
    let lines = result.out.split(separator: "\n")
    #expect(lines.count { $0.contains("x\\xff: the path is not UTF-8: ") } == 6, "\(result.out)")
    #expect(lines.count { $0 == "2" } == 6)
    #expect(lines.last == "store" && lines[lines.count - 2] == "2", "\(result.out)")
  }

  @Test("trailing slashes of a store's path are ignored", arguments: ["", "/", "//"])
  func slashes(end: String) throws {
    let scratch = try Scratch()
    let result = try scratch.shell(
      """
      umask 002; export SYNC_STORE=new/store\(end)
      $CLI init --quiet && stat -c %a new/store && $CLI put k v && $CLI backup --quiet saved && $CLI destroy --quiet
      $CLI --store new/store\(end) restore --quiet saved && $CLI get k; ls -A new
      """)
    #expect(result.out == "700\nvstore\n", "\(result.out)")
  }

  @Test(
    "an error that another copy or a retry can fix has no internal-error code",
    arguments: [
      (.unsettled, .network), (.rolledBack, .network), (.blobUnavailable, .network),
      (.changesLost, .notFound),
      (.closed, .busy), (.snapshotEnded, .busy), (.cancelled, .bug),
    ] as [(StoreError.Code, ExitCode)])
  func codes(of error: StoreError.Code, code: ExitCode) {
    #expect(Failure(StoreError(error, "")).code == code)
    #expect(Failure(ReplicationError(StoreError(error, ""))).code == code)
  }

  @Test("help and version go to standard output and are no errors")
  func help() throws {
    let tool = try Scratch().tool()
    for words in [["--help"], ["help"], ["put", "--help"], ["help", "put"], ["--help", "put"], ["-h"]] {
      let result = try tool.start(words).finish()
      #expect(result.code == 0)
      #expect(result.text.hasPrefix("usage: sync-cli"))
      #expect(result.err.isEmpty)
    }
    #expect(try tool.run("--version").text.hasPrefix("sync-cli "))
  }

  @Test("an unwritable standard output is an error, and loses nothing")
  func fullOutput() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "a", "b")
    let full = try scratch.shell("SYNC_STORE=store $CLI get a > /dev/full; echo $?")
    #expect(full.out.contains("No space left"))
    #expect(full.out.hasSuffix("7\n"))
    let closed = try scratch.shell("SYNC_STORE=store $CLI get a >&-; echo $?")
    #expect(closed.out.hasSuffix("7\n"))
  }

  @Test("a broken pipe ends the program silently")
  func brokenPipe() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try scratch.write("big", [UInt8](repeating: 65, count: 300_000))
    try tool.succeed("put", "a", "--file", scratch.path + "/big")
    let result = try scratch.shell(
      "set -o pipefail; SYNC_STORE=store $CLI get a | head -c 1; echo \" ${PIPESTATUS[0]}\"")
    #expect(result.out == "A 141\n")
  }

  @Test("F36 text never goes into the store because standard streams are closed")
  func closedStreams() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    _ = try scratch.shell(
      "SYNC_STORE=store $CLI put a b <&- >&- 2>&-; SYNC_STORE=store $CLI get absent <&- >&- 2>&-")
    #expect(try tool.succeed("get", "a").text == "b")
    #expect(try tool.succeed("verify").text.contains("all whole"))
  }

  @Test("impossible arguments are usage errors, whichever part of the program detects them")
  func unmeant() throws {
    let scratch = try Scratch()
    let store = try scratch.store()
    try store.succeed("put", "k", "value")
    for (words, code) in [
      (["peer", "add", "", "h:1"], 2), (["peer", "add", "a b", "h:1"], 2), (["peer", "add", "x", "h:0"], 2),
      (["invite", "--ttl", "60d"], 2), (["get", "k", "--output", "/tmp"], 2), (["backup", "/tmp"], 2),
      (["backup", "/dev/null"], 2), (["restore", "/nonexistent"], 1), (["restore", "/tmp"], 2),
      (["--store", scratch.path + "/new", "join", "token", "--name", "a b"], 2),
      (["peer", "revoke", "store"], 3),
    ] as [([String], Int32)] {
      let result = try store.start(words).finish()
      #expect(result.code == code && result.out.isEmpty, "\(words): \(result.code) \(result.err)")
    }
    // Output to a device or a pipe is written directly; a log file that is still being written is not
    // replaced.
    let streams = try scratch.shell(
      """
      export SYNC_STORE=store; $CLI get k --output /dev/null || exit 9
      (echo before; $CLI get k --output /dev/stdout; echo; echo after) > log; cat log; $CLI get k --output /dev/stdout | cat
      """)
    #expect(streams.code == 0 && streams.out == "before\nvalue\nafter\nvalue", "\(streams.out)")
  }
}
