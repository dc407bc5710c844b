import Foundation
import Testing

/// Dry runs, mirrors of a directory, and questions before what cannot be undone.
@Suite struct DryRunTests {
  private static func filled() throws -> Tool {
    let tool = try Scratch().store()
    for key in ["a/1", "a/2", "b"] { try tool.succeed("put", key, "v") }
    return tool
  }

  @Test("delete --dry-run lists what would go, and deletes nothing")
  func deleting() throws {
    let tool = try Self.filled()
    let digest = try tool.succeed("digest").text
    let result = try tool.run("delete", "b", "absent", "a/1", "--prefix", "a/", "--dry-run")
    #expect(result.code == 1 && result.text == "b\na/1\na/2\n", "\(result.text)")
    #expect(
      try tool.succeed("delete", "b", "--dry-run", "--json").text
        == "{\"key\":\"b\"}\n{\"deleted\":0,\"would_delete\":1}\n")
    #expect(try tool.succeed("digest").text == digest)
  }

  @Test("import --dry-run lists what would be stored and deleted, and does neither")
  func importing() throws {
    let tool = try Self.filled()
    let scratch = tool.scratch
    try scratch.write("tree/1", Array("v".utf8))
    try scratch.write("tree/new", Array("new".utf8))
    try scratch.write("tree/large", [UInt8](repeating: 1, count: 30_000))
    let digest = try tool.succeed("digest").text
    let words = ["import", scratch.path + "/tree", "--prefix", "a/"]
    let result = try tool.start(words + ["--delete", "--dry-run"]).finish()
    #expect(
      result.code == 0 && result.text.hasPrefix("+ a/large\n+ a/new\n- a/2\nwould import 2 files, "),
      "\(result.text)")
    #expect(result.text.contains("1 unchanged, would delete 1 key, in "))
    #expect(try tool.succeed("digest").text == digest)
    let json = try tool.start(words + ["--dry-run", "--json"]).finish()
    #expect(
      json.lines.first == #"{"key":"a/large","action":"put"}"# && json.text.contains(#""dry_run":true"#))
    let done = try tool.start(words + ["--delete"]).finish()
    #expect(done.code == 0 && done.text.contains("1 unchanged, deleted 1 key, in "), "\(done.err)")
    #expect(try tool.succeed("list").lines == ["a/1", "a/large", "a/new", "b"])
  }

  @Test("import leaves out what a pattern excludes, and deletes none of its keys")
  func excluding() throws {
    let tool = try Scratch().store()
    let scratch = tool.scratch
    for name in ["a.txt", "a.tmp", "build/x", "src/build", "src/b.tmp", "src/deep/c.txt"] {
      try scratch.write("tree/" + name, [1])
    }
    for key in ["p/old.tmp", "p/build/old", "p/gone"] { try tool.succeed("put", key, "v") }
    try tool.succeed(
      "import", scratch.path + "/tree", "--prefix", "p/", "--exclude", "*.tmp", "--exclude", "build/",
      "--exclude",
      "src/deep", "--delete")
    #expect(try tool.succeed("list").lines == ["p/a.txt", "p/build/old", "p/old.tmp", "p/src/build"])
    #expect(try tool.run("import", scratch.path + "/tree", "--exclude", "[").code == 2)
    #expect(try tool.run("import", scratch.path + "/tree", "--exclude", "/").code == 2)
  }

  @Test("import --delete wants a prefix, and a yes for more than a thousand keys without a terminal")
  func massDelete() throws {
    let tool = try Scratch().store()
    let scratch = tool.scratch
    let lines = (0...1000).map { "{\"key\":\"p/\($0)\",\"value\":\"v\"}\n" }
    try tool.succeed("load", "-", "--quiet", input: Array(lines.joined().utf8))
    try scratch.write("tree/new", [1])
    let path = scratch.path + "/tree"
    #expect(try tool.run("import", path, "--delete").err.contains("without --prefix"))
    let refused = try tool.run("import", path, "--prefix", "p/", "--delete")
    #expect(refused.code == 3 && refused.err.contains("1001 keys that begin with \"p/\""), "\(refused.err)")
    #expect(try tool.succeed("count").text == "1001\n", "nothing is stored either")
    try tool.succeed("import", path, "--prefix", "p/", "--delete", "--yes")
    #expect(try tool.succeed("list").lines == ["p/new"])
  }

  @Test("import --delete deletes nothing where a directory cannot be read, and keeps keys of links")
  func unreadable() throws {
    let tool = try Scratch().store()
    let result = try tool.scratch.shell(
      """
      export SYNC_STORE=store; mkdir -p tree/shut; ln -s /etc tree/link; $CLI put p/link v; $CLI put p/gone v
      $CLI import tree --prefix p/ --delete --quiet 2> /dev/null; $CLI list
      """)
    #expect(result.out == "p/link\n", "\(result.out)")
  }

  @Test("backup --list shows the states, and restore --dry-run what would be made of one")
  func backups() throws {
    let tool = try Self.filled()
    let file = tool.scratch.path + "/saved"
    try tool.succeed("backup", file, "--quiet")
    try tool.succeed("put", "c", "v")
    try tool.succeed("backup", file, "--quiet")
    let states = try tool.succeed("backup", "--list", file).lines
    #expect(
      states.count == 2 && states[0].hasPrefix("1  20") && states[1].contains("  position "), "\(states)")
    #expect(try tool.succeed("backup", "--list", file, "--json").lines[1].hasPrefix(#"{"state":2,"time":"#))
    #expect(try tool.run("backup", "--list", "--replace", file).code == 2)
    #expect(try tool.run("backup", "--list", "/nonexistent").code == 1)

    let other = tool.scratch.tool("other")
    let would = try other.succeed("restore", file, "--dry-run", "--state", "1")
    #expect(
      would.text.hasPrefix("would restore store in \(other.store), as it was at position "), "\(would.text)")
    #expect(try tool.scratch.shell("[ ! -e other ]").code == 0)
    #expect(try tool.run("restore", file, "--dry-run").code == 2)
    #expect(
      try tool.succeed("restore", file, "--dry-run", "--replace", "--json").text.contains(#""replaces":true"#)
    )
    #expect(try tool.scratch.tool().run("--store", tool.scratch.path, "restore", file, "--dry-run").code == 2)
    #expect(try other.run("restore", file, "--dry-run", "--state", "3").err.contains("has 2 states"))
    #expect(
      try tool.scratch.shell("printf X | dd of=saved bs=1 seek=5000 conv=notrunc status=none").code == 0)
    #expect(try other.run("restore", file, "--dry-run").code == 5)
    #expect(try tool.succeed("list").lines.count == 4)
  }

  @Test("trim --dry-run estimates, and gives nothing back")
  func trimming() throws {
    let tool = try Scratch().store()
    for value in ["1", "2"] { try tool.succeed("put", "k", value) }
    try tool.succeed("put", "large", "-", input: [UInt8](repeating: 1, count: 100_000))
    let before = try tool.succeed("digest").text
    let estimate = try JSONFigures(tool.succeed("trim", "--dry-run", "--json"))
    // The last segment is not compacted.
    #expect(estimate["journal_bytes"] == 0 && estimate["due"] == 0)
    let due = try JSONFigures(tool.succeed("trim", "--dry-run", "--max-bytes", "1K", "--json"))
    #expect(due["due"] == 1 && due["due_bytes"] == 100_000)
    #expect(
      try tool.succeed("trim", "--dry-run", "--max-bytes", "1K").text.contains(
        "1 large value (97.7 KiB) would leave"))
    #expect(try tool.succeed("digest").text == before)
    #expect(try tool.succeed("get", "large").out.count == 100_000)
  }

  @Test(
    "a terminal is asked before what cannot be undone, and a no changes nothing",
    arguments: [
      ("destroy", "remove "), ("restore --replace saved", "replace the store"),
      ("peer revoke other", "revoke other"), ("rekey --decrypt", "without encryption"),
      ("import tree --prefix a/ --delete", "delete 2 keys"),
    ])
  func questions(command: String, says: String) throws {
    let tool = try Self.filled()
    let result = try tool.scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh; mkdir tree; touch tree/new; $CLI backup saved --quiet
      for answer in n ''; do
        echo "$answer" | script -qec "$CLI \(command); echo code \\$?" /dev/null; $CLI list
      done
      """)
    #expect(result.out.components(separatedBy: says).count == 3, "\(result.out)")
    #expect(result.out.components(separatedBy: "code 3").count == 3, "\(result.out)")
    #expect(result.out.components(separatedBy: "nothing was changed: answer y, or give --yes").count == 3)
    #expect(result.out.components(separatedBy: "a/1\na/2\nb\n").count == 3)
  }

  @Test(
    "a yes, by answer or option, goes on; without a terminal there is no question",
    arguments: ["y", "--yes", "pipe"])
  func consent(way: String) throws {
    let tool = try Self.filled()
    let result = try tool.scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh
      case '\(way)' in
        y) echo y | script -qec "$CLI destroy" /dev/null;;
        --yes) script -qec "$CLI destroy --yes" /dev/null < /dev/null;;
        pipe) $CLI destroy < /dev/null;;
      esac
      [ ! -e store ]
      """)
    #expect(result.code == 0 && result.out.contains("removed "), "\(result.out)")
  }
}
