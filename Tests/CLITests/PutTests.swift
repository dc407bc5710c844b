import Testing

/// Conditions of `put`, what it reports, and standard input that is empty, endless or of the wrong form.
@Suite struct PutTests {
  private static func version(_ result: Tool.Result) throws -> String {
    String(try #require(result.text.firstMatch(of: /[0-9a-f]{32}:[0-9]+/)).output)
  }

  @Test(
    "--if-absent writes a value once, and names the one that is there",
    arguments: ["operand", "stdin", "large"])
  func absent(source: String) throws {
    let tool = try Scratch().store()
    func put(_ value: UInt8) throws -> Tool.Result {
      switch source {
      case "operand": try tool.run("put", "k", "\(value)", "--if-absent")
      case "stdin": try tool.run("put", "k", "-", "--if-absent", input: [value])
      default: try tool.run("put", "k", "-", "--if-absent", input: [UInt8](repeating: value, count: 200_000))
      }
    }
    #expect(try put(1).code == 0)
    let first = try tool.succeed("get", "k").out
    let second = try put(2)
    #expect(second.code == 1 && second.out.isEmpty)
    #expect(second.err.contains("put k --if-absent: the key has version "), "\(second.err)")
    #expect(second.err.contains(" of bytes, written 20"))
    #expect(try tool.succeed("get", "k").out == first)
    try tool.succeed("delete", "k")
    #expect(try put(2).code == 0)
  }

  @Test("--if-version writes over the version that was read, and over no other")
  func versions() throws {
    let tool = try Scratch().store()
    let first = try Self.version(tool.succeed("put", "k", "1", "--json"))
    #expect(try tool.succeed("get", "k", "--json").text.contains(first))
    let second = try Self.version(tool.succeed("put", "k", "2", "--if-version", first, "--json"))
    let stale = try tool.run("put", "k", "3", "--if-version", first)
    #expect(stale.code == 1 && stale.err.contains("the key has version \(second)"), "\(stale.err)")
    #expect(try tool.succeed("get", "k").text == "2")
    let third = try Self.version(
      tool.succeed("put", "k", "-", "--json", input: [UInt8](repeating: 1, count: 200_000)))
    #expect(third != second)
    try tool.succeed("delete", "k")
    #expect(try tool.run("put", "k", "3", "--if-version", third).err.contains("the key has no value"))
    for words in [["--if-version", "x"], ["--if-version", first, "--if-absent"], ["--max-bytes", "1M"]] {
      #expect(try tool.start(["put", "k", "v"] + words).finish().code == 2, "\(words)")
    }
  }

  @Test("put --json shows the key and its version")
  func json() throws {
    let tool = try Scratch().store()
    let result = try tool.succeed("put", "k", "v", "--json")
    let version = try Self.version(result)
    #expect(result.text == "{\"key\":\"k\",\"version\":\"\(version)\"}\n")
    #expect(try tool.succeed("put", "k", "v").out.isEmpty)
  }

  @Test("endless input ends at its bound, and nothing is stored", .timeLimit(.minutes(1)))
  func endless() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    for bound in ["0", "1000", "3M"] {
      let result = try scratch.shell(
        "SYNC_STORE=store $CLI put k - --max-bytes \(bound) < /dev/zero 2>&1; echo $?; ls -A store/blobs/partial 2>&1"
      )
      #expect(result.out.contains("nothing was stored, since it may have no end"), "\(result.out)")
      #expect(result.out.contains("\n2\n") && !result.out.contains("partial/"), "\(result.out)")
    }
    #expect(try tool.run("get", "k").code == 1)
    try tool.succeed("put", "k", "-", "--max-bytes", "3", input: [1, 2, 3])
    #expect(try tool.run("put", "k", "-", "--max-bytes", "2", input: [1, 2, 3]).code == 2)
    #expect(try tool.succeed("get", "k").out == [1, 2, 3])
  }

  @Test("empty input is stored and told, and bytes that are no value of the type are refused")
  func forms() throws {
    let tool = try Scratch().store()
    let empty = try tool.run("put", "k", "-", input: [])
    #expect(empty.code == 0 && empty.err.contains("standard input was empty"), "\(empty.err)")
    #expect(try tool.succeed("put", "k", "-", "--quiet", input: []).err.isEmpty)
    #expect(try tool.succeed("get", "k").out.isEmpty)
    for (type, input) in [
      ("int", "42\n"), ("bool", "true\n"), ("int", ""), ("double", "0.5"), ("uuid", "x"), ("cbor", ""),
    ] {
      let result = try tool.run("put", "n", "-", "--type", type, input: Array(input.utf8))
      #expect(
        result.code == 2 && result.err.contains("are no \(type) as the store keeps it"), "\(result.err)")
    }
    try tool.succeed("put", "n", "--type", "int", "--", "-7")
    let bytes = try tool.succeed("get", "n").out
    try tool.succeed("put", "copy", "-", "--type", "int", input: bytes)
    #expect(try tool.succeed("get", "copy", "--text").text == "-7\n")
  }
}
