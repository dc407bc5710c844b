import Foundation
import Glibc
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// `shell` with the lines of a script.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct ShellTests {
  private func run(
    _ tool: Tool, _ lines: String..., options: [String] = [], environment: [String: String] = [:]
  ) throws -> Tool.Result {
    let script = Array((lines.joined(separator: "\n") + "\n").utf8)
    return try tool.start(options + ["shell"], input: script, environment: environment).finish()
  }

  @Test("each line runs as the program runs it, and comments and empty lines do nothing")
  func lines() throws {
    let tool = try Scratch().store()
    let result = try run(
      tool, "put a 'x y'", "", "# a comment", "  get a  # another", "set b#c \"1\\t2\"", "get b#c", "list")
    #expect(result.code == 0 && result.err.isEmpty, "\(result.err)")
    #expect(result.text == "x y1\t2a\nb#c\n")
  }

  @Test("failures are told as the program tells them, and the shell ends with the worst code")
  func failures() throws {
    let tool = try Scratch().store()
    let alone = try tool.run("get", "absent")
    let result = try run(tool, "get absent", "frobnicate", "put k 'v", "w'", "status --check", "get k")
    #expect(result.code == 2 && result.out.suffix(3) == Array("v\nw".utf8), "\(result.err)")
    #expect(result.err.hasPrefix(alone.err), "\(result.err)")
    #expect(result.err.contains("frobnicate: there is no such command"))
    #expect(result.err.contains("shell: not all was done: 2 failures, in lines 1, 2: "), "\(result.err)")
    #expect(try run(tool, "get absent").code == 1)
    // A code without a message counts, too.
    try tool.succeed("put", "other", "x")
    let different = try run(tool, "peer add hub localhost:1", "status --check", "get k")
    #expect(try different.code == tool.run("status", "--check").code)
  }

  @Test("with --strict the first failure ends the script")
  func strict() throws {
    let tool = try Scratch().store()
    let script = Array("put a 1\nget absent\nput b 2\n".utf8)
    let result = try tool.start(["shell", "--strict"], input: script).finish()
    #expect(result.code == 1)
    #expect(try result.err == tool.run("get", "absent").err)
    #expect(try tool.succeed("list").text == "a\n")
    let open = try tool.start(["shell", "--strict"], input: Array("put \"\\q\" 1\nput b 2\n".utf8)).finish()
    #expect(open.code == 2 && open.err.contains("there is no such escape"), "\(open.err)")
    #expect(try tool.run("get", "b").code == 1)
  }

  @Test("exit and quit end the script with the code of the lines before them", arguments: ["exit", "quit"])
  func exits(word: String) throws {
    let tool = try Scratch().store()
    #expect(try run(tool, "put a 1", word, "put b 2").code == 0)
    #expect(try run(tool, "get absent", word, "put b 2").code == 1)
    let operands = try run(tool, "\(word) 3", "put c 3")
    #expect(operands.code == 2 && operands.err.contains("it takes no operands"), "\(operands.err)")
    #expect(try tool.succeed("list").text == "a\nc\n")
  }

  @Test("options before the command hold for each line, those of a line for that line")
  func options() throws {
    let scratch = try Scratch()
    let (tool, other) = (try scratch.store(), try scratch.store("other"))
    try other.succeed("put", "elsewhere", "x")
    let result = try run(
      tool, "put a 1", "count", "--store \(other.store) count", "--store=\(other.store) list", "count",
      options: ["--json"])
    #expect(result.code == 0, "\(result.err)")
    #expect(
      result.lines.count == 5 && result.lines.allSatisfy { $0.hasPrefix("{") }
        && result.lines[3].contains("elsewhere") && result.lines[1] == result.lines[4], "\(result.text)")
    let named = try tool.start(
      ["--store", other.store, "shell"], input: Array("list\n".utf8), environment: ["SYNC_STORE": tool.store]
    ).finish()
    #expect(named.text == "elsewhere\n")
  }

  @Test("commands that are no use in a shell are refused", arguments: ShellCommand.refused.map(\.name))
  func refused(name: String) throws {
    let operand = ["completions": " bash", "manual": " d"][name] ?? ""
    let tool = try Scratch().store()
    let result = try run(tool, name + operand, "count")
    #expect(result.code == 2 && result.text == "0\n", "\(result.text)")
    #expect(result.err.hasPrefix("sync-cli: \(name): not in a shell: "), "\(result.err)")
  }

  @Test("help tells what there is in the shell, and explains a command")
  func help() throws {
    let tool = try Scratch().store()
    let result = try run(tool, "help", "help put", "--help get", "--version")
    #expect(result.code == 0 && result.err.isEmpty)
    #expect(result.text.contains("exit, quit and Ctrl-D end it") && !result.text.contains("  serve "))
    #expect(result.text.contains("usage: sync-cli put") && result.text.contains("usage: sync-cli get"))
    #expect(result.lines.last == "sync-cli \(Program.version)")
  }

  @Test("no command reads the lines of the script as its input")
  func standardInput() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    let result = try run(
      tool, "put a -", "load -", "join -", "put b --file /dev/stdin", "put c 3", "edit c", "get c",
      environment: ["EDITOR": "sh -c 'cat; printf 4 > \"$1\"' x"])
    #expect(result.code == 2 && result.text == "4", "\(result.text) \(result.err)")
    for name in ["put", "load", "join"] {
      #expect(result.err.contains("\(name): -: in a shell, standard input has the lines"), "\(result.err)")
    }
    #expect(try tool.succeed("list").text == "b\nc\n")
    #expect(try tool.succeed("get", "b").out.isEmpty)
  }

  @Test("a word can hold any bytes, and those with a zero byte are refused where the system would cut them")
  func bytes() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try scratch.write("file", [1])
    let result = try run(
      tool, #"put "a\x00b\xff" "\x00\x0a""#, #"get "a\x00b\xff""#, #"mv "a\x00b\xff" "c\x00""#, "list --json",
      #"put k --file "\#(scratch.path)/file\x00x""#, #"peer add "n\x00" h:1"#)
    #expect(result.out.starts(with: [0, 10]) && result.text.contains(#""key":"c\u0000""#), "\(result.text)")
    #expect(result.code == 2, "\(result.err)")
    #expect(result.err.contains("F has a zero byte") && result.err.contains("NAME has a zero byte"))
    #expect(try tool.run("get", "k").code == 1)
  }

  @Test("a quote that is not closed and a command that is too long are told with their line")
  func openQuote() throws {
    let tool = try Scratch().store()
    let result = try run(tool, "put a 1", "put b 'x", "y")
    #expect(result.code == 2, "\(result.err)")
    #expect(result.err.contains("shell: line 2: the script ends inside a quote"), "\(result.err)")
    let long = String(repeating: "x", count: ShellWords.mostBytes)
    let lines = try run(tool, "put c \(long)", "put d 'x", String(long.dropLast(6)), "put e 1", "get e")
    #expect(lines.code == 2 && lines.text == "1", "\(lines.text.prefix(99))")
    #expect(lines.err.contains("shell: line 1: the command has more than 1.0 MiB"))
    #expect(lines.err.contains("shell: line 3: the command has more than 1.0 MiB"), "\(lines.err)")
    #expect(try tool.succeed("list").text == "a\ne\n")
  }

  @Test("the shell is never in the way of a command that needs the store alone")
  func exclusive() throws {
    let scratch = try Scratch()
    let tool = scratch.tool()
    let result = try run(
      tool, "init --name work", "put a 1", "backup \(scratch.path)/b", "put a 2", "get a",
      "restore \(scratch.path)/b --replace", "get a", "rekey --encrypt", "rekey", "get a", "rekey --decrypt",
      "get a", "destroy", "count", options: ["--quiet"],
      environment: [
        "SYNC_PASSPHRASE_FILE": scratch.path + "/new", "SYNC_NEW_PASSPHRASE_FILE": scratch.path + "/new",
      ])
    // Without the file the encryption fails, and so does what follows from it.
    #expect(result.text.hasPrefix("21") && !result.err.contains("in use"), "\(result.text) \(result.err)")
    try scratch.write("new", Array("secret\n".utf8))
    let again = try run(
      tool, "init --name work", "put a 1", "rekey --encrypt", "rekey", "rekey --master-key", "get a",
      "rekey --decrypt", "get a", "destroy", options: ["--quiet"],
      environment: [
        "SYNC_PASSPHRASE_FILE": scratch.path + "/new", "SYNC_NEW_PASSPHRASE_FILE": scratch.path + "/new",
      ])
    #expect(again.code == 0 && again.text == "11", "\(again.err)")
    #expect(!FileManager.default.fileExists(atPath: tool.store + "/STORE"))
  }

  @Test("a signal ends a command that follows something, and then the script goes on")
  func signals() throws {
    let tool = try Scratch().store()
    let running = try tool.start(["shell"], input: Array("put a 1\nwatch --initial\nput b 2\n".utf8))
    while running.isRunning, !String(decoding: running.out, as: UTF8.self).contains("ready") {
      Thread.sleep(forTimeInterval: 0.02)
    }
    running.signal(SIGINT)
    let result = running.finish()
    #expect(result.code == 0 && result.err.contains("watch: ended"), "\(result.err)")
    #expect(try tool.succeed("get", "b").text == "2")
  }

  @Test("a script whose output has no reader ends like other programs")
  func brokenPipe() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", "v")
    let result = try scratch.shell(
      "export SYNC_STORE=store; yes list | $CLI shell 2> err | head -n 1; echo ${PIPESTATUS[1]}; cat err")
    #expect(result.out == "k\n141\n", "\(result.out)")
  }

  // MARK: - Interruption

  @Test("an interrupted command stops where it reads, writes, counts a failure or waits")
  func interruption() throws {
    let request = StopRequest()
    try Interruption.with(request) {
      try Interruption.check()
      DispatchQueue(label: "test.interruption").asyncAfter(deadline: .now() + 0.05) { request.make() }
      let wait = { try blocking { try? await Task.sleep(for: .seconds(600)) } }
      #expect(throws: Failure.self) { try wait() }
      #expect(throws: Failure.self) { try Output().line("never written") }
      #expect(throws: Failure.self) { try Descriptor.reading(Array("/dev/zero".utf8)).read(1) }
      var reader = LineReader(Descriptor(standard: 0))
      #expect(throws: Failure.self) { try reader.next() }
      var failures = ItemFailures(command: "import")
      #expect(throws: Failure.self) { try failures.record(.interrupted) }
      // A command that follows something ends by itself.
      try StopRequest.following(giveUp: { System.exit(.bug) }) { own in
        #expect(own === request && !Interruption.isRequested)
        let end = try blocking(until: own) { () async -> Bool in
          do { try await Task.sleep(for: .seconds(600)) } catch { return true }
          return false
        }
        #expect(end)
      }
    }
    #expect(Interruption.request == nil)
  }

  // MARK: - Words

  private func words(_ line: String) throws -> [[UInt8]]? {
    var words = ShellWords()
    return try words.readLine(Array(line.utf8)) ? words.words.map(\.bytes) : nil
  }

  @Test(
    "words are split as in a shell, with the escapes of C in double quotes",
    arguments: [
      ("", []), ("  a\tb ", ["a", "b"]), ("'a b' \"c d\"", ["a b", "c d"]), ("a'b'\"c\"d", ["abcd"]),
      ("''", [""]), ("\"\" x", ["", "x"]), ("a\\ b \\# \\'", ["a b", "#", "'"]), ("a # b", ["a"]),
      ("a#b", ["a#b"]), ("#a", []), ("'#a'", ["#a"]), (#"'\n'"#, [#"\n"#]),
      (#""\n\r\t\a\b\"\\\$\`""#, ["\n\r\t\u{7}\u{8}\"\\$`"]), (#""\x41\x7a\xC3\xa9""#, ["Azé"]),
      ("--ttl=1h k", ["--ttl=1h", "k"]),
    ] as [(String, [String])])
  func split(line: String, expected: [String]) throws {
    #expect(try words(line)?.map { String(decoding: $0, as: UTF8.self) } == expected)
  }

  @Test(
    "an escape that does not exist is an error", arguments: ["\"\\q\"", "\"\\x1\"", "\"\\xg0\"", "\"\\x"])
  func escapes(line: String) {
    #expect(throws: Failure.self) { try words(line) }
  }

  @Test("a quote, and a backslash at the end, go on with the next line")
  func continued() throws {
    var words = ShellWords()
    for line in ["a 'b", "c' \"d", "e\\", "f\" g\\", "h \\"] {
      #expect(try !words.readLine(Array(line.utf8)))
    }
    #expect(try words.readLine(Array("i".utf8)))
    #expect(words.words.map(\.text) == ["a", "b\nc", "d\nef", "gh", "i"])
  }

  @Test("quoted words are read as the same bytes, and are printable on one line")
  func quoting() throws {
    var random = SplitMix64(seed: .random(in: 0 ... .max))
    var samples = (0...255).map { [UInt8($0)] } + [[], Array("é ß".utf8), Array("a'b".utf8), [0xC3, 0x28]]
    for _ in 0..<2000 { samples.append(random.bytes(Int.random(in: 0...12, using: &random))) }
    for bytes in samples {
      let quoted = ShellWords.quoted(bytes)
      var words = ShellWords()
      let isComplete = try words.readLine(quoted)
      #expect(isComplete && words.words.map(\.bytes) == [bytes], "\(bytes): \(Text.printable(quoted))")
      #expect(Text.printable(quoted) == String(decoding: quoted, as: UTF8.self), "\(bytes)")
      // With more typed after it.
      var open = ShellWords()
      try open.read(ShellWords.quoted(bytes, isOpen: true) + [UInt8(ascii: "z")])
      #expect(open.current == bytes + [UInt8(ascii: "z")], "\(bytes)")
    }
  }

  @Test("random bytes are never more than a line that fails")
  func noise() throws {
    let seed = UInt64.random(in: 0 ... .max)
    var random = SplitMix64(seed: seed)
    let pieces = ["put", "get", "list", "'", "\"", "\\", "\\x0", "#", " ", "--", "-", "=", "k", "\n", "\0"]
    var script: [UInt8] = []
    for _ in 0..<400 {
      for _ in 0..<Int.random(in: 0...8, using: &random) {
        script +=
          Bool.random(using: &random)
          ? Array(pieces.randomElement(using: &random)?.utf8 ?? "".utf8) : random.bytes(2)
      }
      script.append(0x0A)
    }
    for part in script.split(separator: 0x0A) {
      var words = ShellWords()
      _ = try? words.readLine(Array(part))
    }
    let result = try Scratch().store().start(["shell"], input: script).finish()
    #expect([0, 1, 2, 3, 7].contains(result.code), "seed \(seed): \(result.code) \(result.err.suffix(500))")
  }

  // MARK: - Completion

  @Test("the shell offers what the completion of other shells offers")
  func completion() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    for key in ["order/1", "order/2/x", "order/2/y", "user:1", "user:2", "a b"] {
      try tool.succeed("put", key, "a secret value")
    }
    for peer in ["harbour", "hut"] { try tool.succeed("peer", "add", peer, "h:1") }
    let invocation = Invocation(
      command: ShellCommand.command, operands: [], values: ["store": [Argument(tool.store)]],
      shell: ShellSession())
    let completion = ShellCompletion(invocation: invocation, commands: Program.commands)
    func change(_ line: String) -> ShellCompletion.Change { completion.change(Array(line.utf8)) }
    // Relative paths would be those of this process.
    for line in CompletionTests.lines where !line.text.contains("other") && !line.text.contains("--file") {
      var words = ShellWords()
      try words.read(Array(line.text.dropFirst("sync-cli ".count).utf8))
      #expect(completion.candidates(words).found.sorted() == line.words.sorted(), "\(line.text)")
    }
    #expect(change("dig") == .init(replaced: 3, text: Array("digest ".utf8)))
    #expect(change("get a") == .init(replaced: 1, text: Array("'a b' ".utf8)))
    #expect(change("get 'a ") == .init(replaced: 3, text: Array("'a b' ".utf8)))
    #expect(change("get o") == .init(replaced: 1, text: Array("order/".utf8)))
    #expect(change("get user:") == .init(shown: ["user:1", "user:2"]))
    #expect(change("put k --type=fl") == .init(replaced: 9, text: Array("--type=float ".utf8)))
    #expect(change("exi") == .init(replaced: 3, text: Array("exit ".utf8)))
    #expect(change("get \"\\q") == .init() && change("put k v o") == .init())
    // A word that began on the line before stays.
    var open = ShellWords()
    _ = try open.readLine(Array("put 'us".utf8))
    #expect(completion.change(Array("er".utf8), after: open) == .init())
  }

  @Test("a line is kept unless it begins with a space or holds a token")
  func kept() throws {
    func mayKeep(_ line: String, _ command: Command? = nil) throws -> Bool {
      let bytes = Array(line.utf8)
      return ShellHistory.mayKeep(bytes, try words(line)?.map { Argument($0) } ?? [], of: command)
    }
    #expect(try mayKeep("get a", KeyCommands.get))
    #expect(try mayKeep("put join 1", KeyCommands.put))
    for line in ["", "# a", " get a", "--json join x y"] { #expect(try !mayKeep(line), "\(line)") }
    #expect(try !mayKeep(" get a", KeyCommands.get))
    #expect(try !mayKeep("join x", MemberCommands.join))
    #expect(try !mayKeep("put k syncstore1:abc", KeyCommands.put))
  }
}
