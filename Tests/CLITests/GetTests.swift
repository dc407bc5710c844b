import Testing

/// `get`: values as text, several keys, and the version.
@Suite struct GetTests {
  /// The program's output on a terminal, which script(1) provides, without the carriage returns of one.
  private static func onTerminal(_ scratch: Scratch, _ words: String) throws -> String {
    let result = try scratch.shell(
      "export SYNC_STORE=store SHELL=/bin/sh; script -qec \"$CLI \(words)\" /dev/null < /dev/null")
    return result.out.split(separator: "\r\n", omittingEmptySubsequences: false).joined(separator: "\n")
  }

  @Test(
    "a typed value is text on a terminal and with --text, and its bytes in a pipe",
    arguments: [
      ("int", "-42", "-42"), ("uint", "42", "42"), ("bool", "true", "true"), ("double", "0.5", "0.5"),
      ("double", "nan", "nan"), ("float", "-inf", "-inf"), ("string", "é", "é"),
      ("uuid", "00112233-4455-6677-8899-AABBCCDDEEFF", "00112233-4455-6677-8899-aabbccddeeff"),
      ("cbor", "[1,null]", "[1,null]"), ("date", "1700000000.123456789", "1700000000.123456789"),
      ("json", "{ \"a\":1}", "{ \"a\":1}"),
    ])
  func typed(type: String, written: String, text: String) throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", "--type", type, "--", written)
    #expect(try tool.succeed("get", "k", "--text").text == text + "\n")
    #expect(try Self.onTerminal(scratch, "get k") == text + "\n")
    let bytes = try tool.succeed("get", "k").out
    switch type {
    case "int", "uint", "double": #expect(bytes.count == 8)
    case "bool": #expect(bytes == [1])
    case "string", "json": #expect(bytes == Array(text.utf8))
    default: #expect(bytes != Array(text.utf8))
    }
  }

  @Test("a terminal gets no control characters of a value, and a line end once")
  func terminal() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", "-", input: Array("a\u{1B}[31m\tb\nc\n".utf8))
    try tool.succeed("put", "binary", "-", input: [0x61, 0xFF, 0x00])
    #expect(try Self.onTerminal(scratch, "get k") == "a\\x1b[31m\tb\nc\n")
    #expect(try Self.onTerminal(scratch, "get binary") == "a\\xff\\x00\n")
    #expect(try tool.succeed("get", "k", "--text").text == "a\u{1B}[31m\tb\nc\n")
    #expect(try tool.succeed("get", "binary", "--text").text == "a\\xff\\x00\n")
    #expect(try tool.succeed("get", "binary").out == [0x61, 0xFF, 0x00])
  }

  @Test("several keys give a line each, in their order, and an absent one is named")
  func several() throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "a", "1", "--type", "int")
    try tool.succeed("put", "b", "text")
    #expect(try tool.succeed("get", "b", "a", "--text").text == "text\n1\n")
    let lines = try tool.succeed("get", "a", "b", "--json").lines
    #expect(lines.count == 2 && lines[0].hasPrefix(#"{"key":"a","value":1,"type":"int","version":""#))
    let partly = try tool.run("get", "a", "absent", "b", "--text")
    #expect(partly.code == 1 && partly.text == "1\ntext\n")
    #expect(partly.err.contains("get absent: there is no such key"))
    let strict = try tool.run("get", "absent", "b", "--text", "--strict")
    #expect(strict.code == 1 && strict.out.isEmpty)
  }

  @Test("a prefix gives keys and values, also none")
  func prefix() throws {
    let tool = try Scratch().store()
    for key in ["a/1", "a/2", "b"] { try tool.succeed("put", key, "v" + key) }
    #expect(try tool.succeed("get", "--prefix", "a/", "--text").text == "a/1\tva/1\na/2\tva/2\n")
    #expect(try tool.succeed("get", "--prefix", "none", "--text").out.isEmpty)
    #expect(try tool.succeed("get", "--prefix", "a/", "--json").lines.count == 2)
  }

  @Test("`why --json` and `get --json` give the version of a value, and load ignores it")
  func version() throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "k", "v", "--type", "string")
    let line = try tool.succeed("get", "k", "--json").text
    let version = String(try #require(line.firstMatch(of: /[0-9a-f]{32}:[0-9]+/)).output)
    #expect(line == "{\"key\":\"k\",\"value\":\"v\",\"type\":\"string\",\"version\":\"\(version)\"}\n")
    #expect(try tool.succeed("why", "k", "--json").text.contains("\"version\":\"\(version)\""))
    #expect(try tool.succeed("load", "-", input: Array(line.utf8)).text == "loaded 1 key\n")
  }

  @Test(
    "options of get that contradict each other are refused",
    arguments: [
      ("get a b", "--text or --json"), ("get --prefix a", "--text or --json"),
      ("get a --prefix a", "both are given"),
      ("get a --text --json", "exclude each other"), ("get a b --output f", "takes one value"),
      ("get a --text --output f", "bytes of the value"), ("get", "KEY is missing"),
    ])
  func contradictions(line: String, says: String) throws {
    let tool = try Scratch().store()
    let result = try tool.start(line.split(separator: " ").map(String.init)).finish()
    #expect(result.code == 2 && result.out.isEmpty && result.err.contains(says), "\(result.err)")
  }
}
