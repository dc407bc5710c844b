import Testing

/// `put`, `get`, `delete` and `list` round trips.
@Suite struct KeyTests {
  struct Sample: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let bytes: [UInt8]
  }

  static let samples = [
    Sample(testDescription: "nothing", bytes: []), Sample(testDescription: "a zero", bytes: [0]),
    Sample(testDescription: "text", bytes: Array("text\n".utf8)),
    Sample(testDescription: "all bytes", bytes: Array(0...255)),
    Sample(testDescription: "at the threshold", bytes: [UInt8](repeating: 7, count: 20_480)),
    Sample(testDescription: "above the threshold", bytes: [UInt8](repeating: 8, count: 20_481)),
    Sample(testDescription: "through staging", bytes: [UInt8](repeating: 9, count: 3 << 20)),
  ]

  @Test("a value comes back unchanged, whatever its bytes and however it was put", arguments: samples)
  func roundTrip(sample: Sample) throws {
    let value = sample.bytes
    let scratch = try Scratch()
    let tool = try scratch.store()
    try scratch.write("file", value)
    try tool.succeed("put", "by file", "--file", scratch.path + "/file")
    try tool.succeed("put", "by stdin", "-", input: value)
    for key in ["by file", "by stdin"] {
      let same = try tool.succeed("get", key).out == value
      #expect(same)
      try tool.succeed("get", key, "--output", scratch.path + "/out")
      let sameFile = try scratch.read("out") == value
      #expect(sameFile)
    }
  }

  @Test("compaction reclaims the space of overwritten values")
  func compaction() throws {
    let tool = try Scratch().store()
    let value = String(repeating: "v", count: 15_000)
    let lines = (0..<400).map { "{\"key\":\"k\",\"value\":\"\(value)\($0)\",\"type\":\"string\"}\n" }
    try tool.succeed("load", "-", input: Array(lines.joined().utf8))
    let figures = try JSONFigures(tool.succeed("compact", "--json"))
    // Compaction leaves one value of the segments of 1, 2 and 4 MiB; the tail is never compacted.
    #expect(try #require(figures["journal_bytes"]) <= 9 << 20)
    #expect(try tool.succeed("get", "k").text == value + "399")
    #expect(try tool.succeed("verify").text.contains("all whole"))
    #expect(try tool.run("compact", "now").code == 2)
  }

  @Test("a key may contain any byte but zero")
  func oddKeys() throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      for key in $'\\xff\\xfe' 'a b' $'line\\nbreak' -- 'ключ' "-dash"; do $CLI put -- "$key" "$key" || exit 9; done
      for key in $'\\xff\\xfe' 'a b' $'line\\nbreak' 'ключ' "-dash"; do [ "$($CLI get -- "$key")" = "$key" ] || exit 8; done
      $CLI list --json
      """)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains(#"{"key_base64":"//4=""#))
    #expect(result.out.contains(#"{"key":"line\nbreak""#))
  }

  @Test(
    "values on the command line are checked against their type",
    arguments: [
      ("int", "-42", "-42"), ("bool", "true", "true"), ("double", "0.1", "0.1"),
      ("json", "{\"a\":1}", "\"{\\\"a\\\":1}\""),
      ("string", "é", "\"é\""),
    ])
  func types(type: String, written: String, shown: String) throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "k", "--type", type, "--", written)
    #expect(
      try tool.succeed("get", "k", "--json").text
        .hasPrefix("{\"key\":\"k\",\"value\":\(shown),\"type\":\"\(type)\","))
  }

  @Test("a value with a time to live is absent once it has expired")
  func timeToLive() throws {
    let tool = try Scratch().store()
    try tool.succeed("put", "short", "v", "--ttl", "1ms")
    try tool.succeed("put", "long", "v", "--ttl", "1h")
    #expect(try tool.run("get", "short").code == 1)
    #expect(try tool.succeed("list").lines == ["long"])
    #expect(try tool.succeed("get", "long", "--json").text.contains("\"expires\":"))
  }

  @Test("a listing is in byte order and can be paged")
  func listing() throws {
    let tool = try Scratch().store()
    for key in ["b", "a/2", "a/10", "a", "ä", "B"] { try tool.succeed("put", key, "v") }
    #expect(try tool.succeed("list").lines == ["B", "a", "a/10", "a/2", "b", "ä"])
    #expect(try tool.succeed("list", "a/").lines == ["a/10", "a/2"])
    #expect(try tool.succeed("list", "--limit", "2").lines == ["B", "a"])
    #expect(try tool.succeed("list", "--after", "a", "--limit", "2").lines == ["a/10", "a/2"])
    #expect(try tool.succeed("list", "none").lines.isEmpty)
  }

  @Test("delete removes keys and whole prefixes, and reports keys that were absent")
  func deleting() throws {
    let tool = try Scratch().store()
    for key in ["a/1", "a/2", "b", "c"] { try tool.succeed("put", key, "v") }
    let partly = try tool.run("delete", "b", "nothing")
    #expect(partly.code == 1)
    #expect(partly.err.contains("nothing"))
    #expect(try tool.succeed("list").lines == ["a/1", "a/2", "c"])
    #expect(try tool.succeed("delete", "--prefix", "a/", "--json").text == "{\"deleted\":2}\n")
    #expect(try tool.succeed("list").lines == ["c"])
  }

  @Test(
    "a value larger than memory is streamed out on a read-only disk, and not at all if it is damaged")
  func streaming() throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      head -c 17000000 /dev/zero | tr '\\0' x > large; $CLI put large --file large || exit 9
      (ulimit -f 1024; $CLI get large) | cmp - large || exit 8
      blob=$(find store/blobs -type f -size +16000k | head -1); chmod u+w $blob
      printf X | dd of=$blob bs=1 seek=16999990 conv=notrunc status=none || exit 7
      $CLI get large > out; echo $? $(stat -c %s out)
      """)
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.hasSuffix("\n5 0\n"), "\(result.out)")
  }

  @Test(
    "a large value is staged in its object file only, and staging files of earlier versions are removed")
  func staging() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try scratch.write("store/staging/1-1", [1, 2, 3])
    try tool.succeed("put", "big", "-", input: [UInt8](repeating: 1, count: 5 << 20))
    #expect(try scratch.shell("ls -A store/blobs/partial; [ ! -e store/staging ]").out.isEmpty)
    #expect(try scratch.shell("[ ! -e store/staging ]").code == 0)
  }
}
