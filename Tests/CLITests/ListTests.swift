import SyncTestSupport
import Testing

@testable import sync_cli

/// `list` with patterns and NULs, `count` and `du`.
@Suite struct ListTests {
  static let keys = ["a", "user/1/mail", "user/1/name", "user/2/name", "user/2/old/name", "users"]

  private static func filled() throws -> Tool {
    let tool = try Scratch().store()
    let lines = keys.map { "{\"key\":\"\($0)\",\"value\":\"12345\"}\n" }
    try tool.succeed("load", "-", "--quiet", input: Array(lines.joined().utf8))
    return tool
  }

  @Test("a pattern lists the keys that match, with a limit and after a key")
  func globs() throws {
    let tool = try Self.filled()
    #expect(try tool.succeed("list", "--glob", "user/*/name").lines == ["user/1/name", "user/2/name"])
    #expect(try tool.succeed("list", "--glob", "user/**/name").lines.count == 3)
    #expect(
      try tool.succeed("list", "--glob", "**name", "--limit", "2").lines == ["user/1/name", "user/2/name"])
    #expect(
      try tool.succeed("list", "--glob", "**name", "--after", "user/1/name", "--limit", "1").lines == [
        "user/2/name"
      ])
    #expect(try tool.succeed("list", "user/*/name").lines.isEmpty, "a prefix is no pattern")
    #expect(try tool.run("list", "--glob").err.contains("no pattern is given"))
    #expect(try tool.run("list", "--glob", "[a").err.contains("a [ has no ]"))
  }

  @Test("keys end with a NUL on request, by the long and by the short option")
  func nul() throws {
    let tool = try Scratch().store()
    for key in ["a\nb", "c"] { try tool.succeed("put", key, "v") }
    let expected = Array("a\nb\0c\0".utf8)
    #expect(try tool.succeed("list", "-0").out == expected)
    #expect(try tool.succeed("list", "--null").out == expected)
    #expect(try tool.run("list", "-0", "--json").code == 2)
    // Where there is no such option, the error names the word that was given.
    #expect(try tool.run("put", "k", "-0").err.contains("put: -0: there is no such option"))
  }

  @Test("--human shows sizes and deadlines for people, and --long alone the columns that scripts read")
  func long() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", String(repeating: "v", count: 2048), "--ttl", "2h")
    try tool.succeed("put", "n", "v")
    let script = try tool.succeed("list", "--long").lines.map { $0.split(separator: " ") }
    #expect(script.map(\.count) == [4, 4] && script[0][1] == "2048")
    let human = try tool.succeed("list", "--long", "--human").lines
    #expect(human[0].contains(" 2.0 KiB ") && human[0].contains(" 2h00m  k"))
    #expect(human[1].hasSuffix("     -  n"), "\(human[1])")
    let terminal = try scratch.shell(
      "export SYNC_STORE=store SHELL=/bin/sh; script -qec \"$CLI list --long\" /dev/null < /dev/null")
    #expect(terminal.out.contains(" 2.0 KiB "), "\(terminal.out)")
  }

  @Test("count and du sum keys, bytes and large values, the most bytes first")
  func sums() throws {
    let tool = try Self.filled()
    #expect(try tool.succeed("count").text == "6\n")
    #expect(try tool.succeed("count", "user/").text == "4\n")
    #expect(try tool.succeed("count", "user/", "--json").text == "{\"prefix\":\"user/\",\"keys\":4}\n")
    try tool.succeed("put", "user/1/photo", "-", input: [UInt8](repeating: 1, count: 30_000))
    #expect(try tool.succeed("du").text == "30096\t7\t1\t.\n")
    #expect(
      try tool.succeed("du", "user/", "--depth", "1").lines == [
        "30080\t5\t1\tuser/", "30044\t3\t1\tuser/1/", "36\t2\t0\tuser/2/",
      ])
    #expect(
      try tool.succeed("du", "--depth", "9").lines.map { $0.split(separator: "\t")[3] } == [
        ".", "user/", "user/1/", "user/2/", "user/2/old/",
      ])
    #expect(try tool.succeed("du", "--depth", "1", "--separator", "r").lines.count == 2)
    #expect(
      try tool.succeed("du", "user/1/", "--json").text
        == #"{"prefix":"user/1/","bytes":30044,"keys":3,"key_bytes":34,"value_bytes":30010,"blobs":1,"blob_bytes":30000}"#
        + "\n")
    #expect(try tool.succeed("du", "--human").text == "  29.4 KiB         7 keys       1 blob  .\n")
    #expect(try tool.run("du", "--separator", "").code == 2)
  }
}

/// Patterns for keys and paths.
@Suite struct GlobTests {
  @Test(
    "a pattern matches what its signs stand for",
    arguments: [
      ("a", ["a"], ["", "b", "aa", "a/"]), ("", [""], ["a"]), ("*", ["", "a", "äb"], ["a/", "/"]),
      ("**", ["", "a/b/c"], []), ("a*b", ["ab", "axb", "abab"], ["a/b", "abc"]),
      ("a**b", ["ab", "a/b", "a/x/b"], ["a/bc"]), ("?", ["a", "ä"], ["", "/", "ab"]),
      ("[a-c]x", ["ax", "cx"], ["dx", "x"]), ("[!a-c]", ["d", "ä"], ["a", "/"]), ("[]-]", ["]", "-"], ["a"]),
      (#"\*"#, ["*"], ["a"]), (#"[\]]"#, ["]"], ["a"]), ("*/*/c", ["a/b/c"], ["a/c", "a/b/x/c"]),
      ("**/*.txt", ["a/b.txt", "a/b/c.txt"], ["a.txt", "a/b.txt/c"]),
    ] as [(String, [String], [String])])
  func signs(pattern: String, matching: [String], others: [String]) throws {
    let glob = try Glob(Array(pattern.utf8))
    for text in matching { #expect(glob.matches(Array(text.utf8)), "\(pattern) should match \(text)") }
    for text in others { #expect(!glob.matches(Array(text.utf8)), "\(pattern) should not match \(text)") }
  }

  @Test("bytes that are not UTF-8 match one sign each, and begin the range of keys")
  func bytes() throws {
    let glob = try Glob([0xFF, 0xC3, 0x2A])
    #expect(glob.literalPrefix == [0xFF, 0xC3])
    #expect(glob.matches([0xFF, 0xC3]) && glob.matches([0xFF, 0xC3, 0xFE]) && !glob.matches([0xFF]))
    #expect(try Glob(Array("?".utf8)).matches([0xFF]))
    #expect(try Glob(Array(#"ä\*b/[x]"#.utf8)).literalPrefix == Array("ä*b/".utf8))
  }

  /// A slow matcher that tries everything.
  private static func matches(_ pattern: ArraySlice<UInt8>, _ text: ArraySlice<UInt8>) -> Bool {
    guard let first = pattern.first else { return text.isEmpty }
    let rest = pattern.dropFirst()
    guard first == UInt8(ascii: "*") else {
      return text.first == first && matches(rest, text.dropFirst())
    }
    let isDouble = rest.first == first
    let next = isDouble ? rest.drop { $0 == first } : rest
    for end in text.startIndex...text.endIndex {
      if matches(next, text[end...]) { return true }
      if !isDouble, end < text.endIndex, text[end] == UInt8(ascii: "/") { return false }
    }
    return false
  }

  @Test("random patterns match as a matcher that tries everything", arguments: [1, 2, 3] as [UInt64])
  func random(seed: UInt64) throws {
    var random = SplitMix64(seed: seed)
    func word(_ letters: String, _ length: Int) -> [UInt8] {
      let letters = Array(letters.utf8)
      return (0..<length).map { _ in letters[Int(random.next() % UInt64(letters.count))] }
    }
    for _ in 0..<3000 {
      let pattern = word("ab/**", Int(random.next() % 8))
      let text = word("ab/", Int(random.next() % 10))
      #expect(
        try Glob(pattern).matches(text) == Self.matches(pattern[...], text[...]),
        "seed \(seed): \(String(decoding: pattern, as: UTF8.self)) on \(String(decoding: text, as: UTF8.self))"
      )
    }
  }
}
