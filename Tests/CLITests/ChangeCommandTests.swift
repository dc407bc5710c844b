import SyncTestSupport
import Testing

/// `expire`, `ttl`, `mv`, `cp` and `edit`.
@Suite struct ChangeCommandTests {
  private static func filled() throws -> Tool {
    let tool = try Scratch().store()
    try tool.succeed("put", "int", "42", "--type", "int", "--ttl", "2h")
    try tool.succeed("put", "text", "value", "--type", "string")
    return tool
  }

  @Test("a deadline is set, shown in seconds and taken away, and the value stays")
  func deadlines() throws {
    let tool = try Self.filled()
    #expect(try tool.succeed("ttl", "int").text == "7200\n")
    #expect(try tool.succeed("ttl", "text").text == "never\n")
    #expect(
      try tool.succeed("ttl", "text", "--json").text == #"{"key":"text","expires":null,"seconds":null}"#
        + "\n")
    #expect(try tool.succeed("expire", "int", "10m").out.isEmpty)
    #expect(try tool.succeed("ttl", "int").text == "600\n")
    #expect(try tool.succeed("expire", "int", "5m", "--json").text.contains(#""seconds":300"#))
    try tool.succeed("expire", "int", "--never")
    #expect(try tool.succeed("ttl", "int").text == "never\n")
    #expect(try tool.succeed("get", "int", "--text").text == "42\n")
    try tool.succeed("expire", "int", "1ms")
    for words in [["ttl", "int"], ["expire", "int", "1h"], ["ttl", "absent"]] {
      let result = try tool.start(words).finish()
      #expect(result.code == 1 && result.err.contains("no such key"), "\(result.err)")
    }
    for words in [["expire", "text"], ["expire", "text", "soon"], ["expire", "text", "1h", "--never"]] {
      #expect(try tool.start(words).finish().code == 2, "\(words)")
    }
  }

  @Test("mv and cp keep type and deadline, and replace a value only with --force", arguments: ["mv", "cp"])
  func transfers(command: String) throws {
    let tool = try Self.filled()
    let refused = try tool.run(command, "int", "text")
    #expect(refused.code == 1 && refused.err.contains("text has a value"), "\(refused.err)")
    #expect(try tool.succeed("get", "text").text == "value")
    try tool.succeed(command, "int", "text", "--force")
    #expect(try tool.succeed("get", "text", "--json").text.contains(#""value":42,"type":"int","expires":"#))
    #expect(try tool.run("get", "int").code == (command == "mv" ? 1 : 0))
    #expect(try tool.run(command, "absent", "new").code == 1)
    #expect(try tool.run(command, "text", "text").code == 2)
    #expect(
      try tool.succeed(command, "text", "new", "--json").text == "{\"key\":\"new\",\"from\":\"text\"}\n")
  }

  @Test("cp of a large value takes no more space")
  func sharedContent() throws {
    let tool = try Self.filled()
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 1, count: 100_000))
    try tool.succeed("cp", "large", "copy")
    // Both keys, one object.
    #expect(try JSONFigures(tool.succeed("status", "--json"))["blob_keys"] == 2)
    #expect(try JSONFigures(tool.succeed("trim", "--dry-run", "--max-bytes", "1K", "--json"))["due"] == 1)
    try tool.succeed("delete", "large")
    #expect(try tool.succeed("get", "copy").out.count == 100_000)
  }

  /// Runs `edit` with an editor that is a command of the shell.
  private static func edit(_ tool: Tool, _ key: String, with editor: String) throws -> Tool.Result {
    try tool.run("edit", key, environment: ["EDITOR": editor, "TMPDIR": tool.scratch.path, "CLI": Tool.path])
  }

  @Test("an editor changes a value, which keeps its type and deadline")
  func editing() throws {
    let tool = try Self.filled()
    let changed = try Self.edit(tool, "int", with: "sed -i s/42/-7/")
    #expect(changed.code == 0 && changed.out.isEmpty, "\(changed.err)")
    #expect(try tool.succeed("get", "int", "--json").text.contains(#""value":-7,"type":"int","expires":"#))
    // The line end that most editors add is not part of the value.
    #expect(try Self.edit(tool, "text", with: "sh -c 'echo new > $0'").code == 0)
    #expect(try tool.succeed("get", "text").text == "new")
    let digest = try tool.succeed("digest").text
    let same = try Self.edit(tool, "text", with: "true")
    #expect(same.code == 0 && same.text == "text is unchanged\n")
    #expect(try tool.succeed("digest").text == digest)
    #expect(try tool.scratch.shell("ls | grep -c sync-cli-edit").out == "0\n")
  }

  @Test("an edit that cannot be stored writes nothing and keeps the text, unless the editor failed")
  func refusedEdits() throws {
    let tool = try Self.filled()
    for (editor, code, says) in [
      ("sed -i s/42/many/ $0", 2, "not of type int"),
      ("sed -i s/42/43/ $0; $CLI put int 5 --type int; true", 1, "another writer changed"),
      ("sed -i s/42/43/ $0; $CLI delete int; true", 1, "another writer changed"),
    ] as [(String, Int32, String)] {
      try tool.succeed("put", "int", "42", "--type", "int")
      let result = try Self.edit(tool, "int", with: "sh -c '\(editor)'")
      #expect(result.code == code && result.err.contains(says), "\(editor): \(result.err)")
      #expect(result.err.contains("your text is kept in \(tool.scratch.path)/sync-cli-edit-"))
      #expect(try tool.scratch.shell("cat sync-cli-edit-*/int; rm -r sync-cli-edit-*").out.hasSuffix("\n"))
    }
    try tool.succeed("put", "int", "42", "--type", "int")
    #expect(try Self.edit(tool, "int", with: "false").code == 7)
    #expect(try Self.edit(tool, "absent", with: "true").code == 1)
    #expect(try tool.run("edit", "int").err.contains("there is no terminal for vi"))
    #expect(try tool.scratch.shell("ls | grep -c sync-cli-edit").out == "0\n")
    #expect(try tool.succeed("get", "int", "--text").text == "42\n")
  }

  @Test(
    "an editor on a terminal gets its interrupts, and the text of others cannot be read",
    .timeLimit(.minutes(1)))
  func terminalSignals() throws {
    let tool = try Self.filled()
    let result = try tool.scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh TMPDIR=$PWD
      printf '%s\\n' 'stat -c %a "$(dirname "$1")" "$1" > modes; trap : INT; kill -INT 0; sed -i s/42/9/ "$1"' > editor
      script -qec "EDITOR='sh editor' $CLI edit int" /dev/null < /dev/null; cat modes; $CLI get int --text
      """)
    #expect(result.out == "700\n600\n9\n", "\(result.out)")
  }
}
