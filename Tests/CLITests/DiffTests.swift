import Foundation
import Testing

/// `diff`, and `push`, `pull` and `sync` with `--dry-run`.
@Suite struct DiffTests {
  @Test("diff names each key that differs and what would settle it; a sync then settles it")
  func differences() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    for key in ["same", "changed", "gone"] { try daemon.tool.succeed("put", key, "1") }
    let beta = try daemon.join(scratch.tool("beta"))
    let equal = try beta.succeed("diff", "alpha")
    #expect(equal.text.isEmpty)
    try daemon.tool.succeed("put", "changed", "22")
    try daemon.tool.succeed("delete", "gone")
    try beta.succeed("put", "a/new", "333")
    let result = try beta.run("diff", "alpha")
    #expect(result.code == 1 && result.err.isEmpty)
    #expect(result.text == "push\tadd\ta/new\npull\tchange\tchanged\npull\tdelete\tgone\n")
    #expect(try beta.run("diff", "alpha", "a/").text == "push\tadd\ta/new\n")
    let json = try beta.run("diff", "alpha", "chan", "--json")
    #expect(json.code == 1 && json.text.contains(#""key":"changed","direction":"pull","change":"change""#))
    #expect(json.text.contains(#""there":{"size":2,"#))
    let summary = try beta.run("diff", "alpha", "--summary")
    #expect(summary.code == 1)
    #expect(summary.text == "alpha: to push: 1 key, 3 B; to pull: 2 keys, of which 1 delete, 2 B\n")
    try beta.succeed("sync", "alpha")
    #expect(try beta.succeed("diff", "alpha").text.isEmpty)
    try daemon.end()
  }

  @Test("--dry-run tells what a push, a pull or a sync would move, and moves nothing")
  func dryRun() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    try daemon.tool.succeed("put", "theirs", "1")
    try beta.succeed("put", "mine", "22")
    let digests = (try daemon.tool.succeed("digest").text, try beta.succeed("digest").text)
    #expect(try beta.succeed("push", "alpha", "--dry-run").text == "alpha: to push: 1 key, 2 B\n")
    #expect(try beta.succeed("pull", "alpha", "--dry-run").text == "alpha: to pull: 1 key, 1 B\n")
    let both = try beta.succeed("sync", "alpha", "--dry-run", "--verbose").text
    #expect(both.contains("push\tadd\tmine\n") && both.contains("pull\tadd\ttheirs\n"))
    #expect((try daemon.tool.succeed("digest").text, try beta.succeed("digest").text) == digests)
    let json = try beta.succeed("sync", "alpha", "--dry-run", "--json").text
    #expect(json.contains(#""to_push":{"keys":1,"deletes":0,"bytes":2}"#))
    let unknown = try beta.run("diff", "nobody")
    #expect(unknown.code == 3 && unknown.err.contains("nobody"))
    try daemon.end()
  }
}
