import SyncStore
import Testing

@testable import sync_cli

/// Parsing of the command line into values.
@Suite struct ArgumentTests {
  private static let parser = ArgumentParser(
    commands: [
      Command(
        "copy", "", operands: [Operand("FROM"), Operand("TO", .optional)],
        options: [
          Option("mode", value: "M", ""), Option("exclude", value: "X", repeats: true, ""),
          Option("force", ""),
        ]
      ) { _, _ in .done },
      Command("peer add", "", operands: [Operand("NAME", .many)]) { _, _ in .done },
      Command("peer list", "") { _, _ in .done },
    ], globals: Help.globals)

  private func parse(_ line: String) throws -> Invocation? {
    guard
      case .run(let invocation) = try Self.parser.parse(
        line.split(separator: " ").map { Argument(String($0)) })
    else { return nil }
    return invocation
  }

  @Test(
    "options may come before, between and after operands, with a space or an equals sign",
    arguments: [
      "--store S copy a --mode=m b", "copy --mode m --store=S a b", "copy a b --store S --mode m",
      "copy --mode m --store S -- a b",
    ])
  func places(line: String) throws {
    let invocation = try #require(try parse(line))
    #expect(invocation.command.name == "copy")
    #expect(invocation.operands.map(\.text) == ["a", "b"])
    #expect(invocation.value("mode")?.text == "m")
    #expect(invocation.value("store")?.text == "S")
  }

  @Test("a repeated option keeps all its values, in order")
  func repeats() throws {
    let invocation = try #require(try parse("copy a --exclude 1 --exclude=2 --exclude=a=b --exclude="))
    #expect(invocation.values["exclude"]?.map(\.text) == ["1", "2", "a=b", ""])
  }

  @Test("two words name one command of a family")
  func family() throws {
    #expect(try parse("peer add x y")?.operands.map(\.text) == ["x", "y"])
    #expect(try parse("peer list")?.command.name == "peer list")
    #expect(throws: Failure.self) { try parse("peer") }
    #expect(throws: Failure.self) { try parse("peer revoke") }
  }

  @Test(
    "a command has other names, which mean the same",
    arguments: [
      ("ls", "list"), ("keys", "list"), ("rm k", "delete"), ("del k", "delete"), ("set k v", "put"),
    ])
  func aliases(line: String, name: String) throws {
    let parser = ArgumentParser(
      commands: Program.commands, globals: Help.globals, hidden: Program.hidden, alone: Program.alone)
    let words = line.split(separator: " ").map { Argument(String($0)) }
    guard case .run(let invocation) = try parser.parse(words) else {
      Issue.record("\(line) is no command")
      return
    }
    #expect(invocation.command.name == name)
    #expect(Help.text(of: invocation.command).contains("\nalso called: "))
    // Two commands with one name could not be told apart.
    let names = (Program.commands + Program.hidden).flatMap { [$0.name] + $0.aliases }
    #expect(Set(names).count == names.count)
  }

  @Test(
    "a near miss gets a suggestion",
    arguments: [
      ("pu", "put"), ("exprot", "export"), ("lst", "list"), ("statsu", "status"), ("dum", "dump"),
    ])
  func guess(word: String, meant: String) {
    #expect(ArgumentParser.nearest(to: word, in: ["put", "export", "list", "status", "dump"]) == meant)
  }

  @Test("a distant word gets no suggestion", arguments: ["", "x", "frobnicate", "zzz"])
  func noGuess(word: String) {
    #expect(ArgumentParser.nearest(to: word, in: ["put", "export", "list", "status", "dump"]) == nil)
  }

  @Test(
    "durations are parsed",
    arguments: [
      ("90s", 90_000), ("30m", 1_800_000), ("1h", 3_600_000), ("7d", 604_800_000), ("250ms", 250),
      ("2w", 1_209_600_000),
      ("", nil), ("h", nil), ("1", nil), ("0s", nil), ("-1h", nil), ("1.5h", nil), ("1y", nil),
      ("99999999999999999999h", nil),
      ("999999d", nil),
    ] as [(String, UInt64?)])
  func spans(text: String, milliseconds: UInt64?) {
    #expect(Text.milliseconds(text) == milliseconds)
  }

  @Test("dates, sizes and durations are shown in human-readable form")
  func shown() {
    #expect(Text.date(milliseconds: 0) == "1970-01-01T00:00:00.000Z")
    #expect(Text.date(milliseconds: 951_827_696_789) == "2000-02-29T12:34:56.789Z")
    #expect(Text.date(milliseconds: 4_102_444_800_000) == "2100-01-01T00:00:00.000Z")
    #expect([0, 1023, 1024, 1 << 20].map { Text.size($0) } == ["0 B", "1023 B", "1.0 KiB", "1.0 MiB"])
    #expect(
      [5, 125, 11_400, 360_000].map { Text.duration(seconds: $0) } == ["5s", "2m05s", "3h10m", "4d04h"])
    #expect(Text.printable(Array("a\n\u{1B}[1m\u{202E}é".utf8)) == "a\\x0a\\x1b[1m\\xe2\\x80\\xaeé")
    #expect(Text.printable([0x41, 0xFF]) == "A\\xff")
  }

  @Test("a progress line shows share, rate and time left")
  func progress() {
    let lines = Progress.lines("import", bytes: 25 << 20, of: 100 << 20, seconds: 5, "10 files")
    #expect(lines.first == "import [######··················] 25% 10 files, 5.0 MiB/s, 15s left")
  }
}
