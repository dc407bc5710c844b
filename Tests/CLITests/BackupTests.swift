import Foundation
import Testing

@Suite("Backups on the command line")
struct BackupTests {
  let scratch: Scratch

  init() throws { scratch = try Scratch() }

  func file(_ name: String) -> String { scratch.path + "/" + name }

  @Test(
    "backup, destroy and restore bring the store back with its device and values, also at an earlier state")
  func endToEnd() throws {
    let tool = try scratch.store()
    let large = [UInt8](repeating: 0x41, count: 60_000)
    try scratch.write("large", large)
    try tool.succeed("put", "k", "first")
    try tool.succeed("put", "large", "--file", file("large"))
    let device = try scratch.read("store/keys/device.pem")
    let first = try tool.run("backup", file("saved"), "--json")
    #expect(first.code == 0 && first.text.contains("\"full\":true") && first.text.contains("\"blobs\":1"))
    try tool.succeed("put", "k", "second")
    let second = try tool.run("backup", file("saved"), "--json")
    #expect(
      second.code == 0 && second.text.contains("\"full\":false") && second.text.contains("\"records\":1"))
    let there = try tool.run("restore", file("saved"))
    #expect(there.code == 2 && there.err.contains("not empty"))
    #expect(try tool.run("destroy").code == 0)
    #expect(try tool.run("destroy").code == 2)
    #expect(!FileManager.default.fileExists(atPath: file("store")))
    #expect(try tool.run("restore", file("saved"), "--state", "3").code == 2)
    #expect(try tool.run("restore", file("saved"), "--state", "1").code == 0)
    #expect(try tool.run("get", "k").text == "first")
    #expect(try tool.run("restore", file("saved"), "--replace").code == 0)
    #expect(try tool.run("get", "k").text == "second")
    #expect(try scratch.read("store/keys/device.pem") == device)
    try tool.succeed("get", "large", "--output", file("again"))
    #expect(try scratch.read("again") == large)
    #expect(try tool.run("verify").code == 0)
    #expect(try tool.run("trim").code == 0)
  }

  @Test(
    "restore --prefix takes keys back into the store that is there, shown by --dry-run, and moves no others")
  func prefix() throws {
    let tool = try scratch.store()
    let daemon = try Daemon(tool)
    for key in ["a/1", "a/2", "b/1"] { try tool.succeed("put", key, "old") }
    try tool.succeed("put", "a/n", "7", "--type", "int")
    try tool.succeed("backup", file("saved"))
    for key in ["a/1", "a/3", "b/1"] { try tool.succeed("put", key, "new") }
    try tool.succeed("delete", "a/2")
    let shown = try tool.succeed("restore", file("saved"), "--prefix", "a/", "--delete", "--dry-run").text
    #expect(shown.hasPrefix("+ a/1\n+ a/2\n- a/3\nwould restore 2 keys as of "), "\(shown)")
    #expect(shown.hasSuffix(", would delete 1 key, 1 unchanged\n"))
    #expect(try tool.succeed("get", "a/1").text == "new")
    let done = try tool.succeed("restore", file("saved"), "--prefix", "a/", "--json").text
    #expect(
      done.contains("\"prefix\":\"a/\"") && done.contains("\"restored\":2,\"unchanged\":1")
        && done.contains("\"failed\":0") && !done.contains("deleted"), "\(done)")
    #expect(try tool.succeed("get", "a/1").text == "old" && tool.succeed("get", "a/2").text == "old")
    #expect(try tool.succeed("get", "b/1").text == "new" && tool.succeed("get", "a/3").text == "new")
    #expect(try tool.succeed("get", "a/n", "--text").text == "7\n")
    let again = try tool.succeed("restore", file("saved"), "--prefix", "a/").text
    #expect(
      again.hasPrefix("restored 0 keys as of ") && again.contains("; not in the backup, and kept: 1 key"))
    try tool.succeed("restore", file("saved"), "--prefix", "a/", "--delete")
    #expect(try tool.run("get", "a/3").code == 1)
    try daemon.end()
  }

  @Test("restore --prefix refuses what contradicts it, and many deletes without a terminal")
  func prefixRefusals() throws {
    let tool = try scratch.store()
    try tool.succeed("put", "k", "v")
    try tool.succeed("backup", file("saved"))
    #expect(try tool.run("restore", file("saved"), "--prefix", "", "--replace").code == 2)
    #expect(try tool.run("restore", file("saved"), "--delete").code == 2)
    #expect(try tool.run("restore", file("saved"), "--prefix", "k", "--state", "2").code == 2)
    try scratch.write(
      "many", Array((0...1000).map { "{\"key\":\"m/\($0)\",\"value\":\"x\"}\n" }.joined().utf8))
    try tool.succeed("load", file("many"))
    let refused = try tool.run("restore", file("saved"), "--prefix", "", "--delete")
    #expect(refused.code == 3 && refused.err.contains("1001 keys"), "\(refused.err)")
    #expect(try tool.succeed("count").text == "1002\n")
    try tool.succeed("restore", file("saved"), "--prefix", "", "--delete", "--yes")
    #expect(try tool.succeed("list").text == "k\n")
    let other = try scratch.store("other")
    #expect(try other.run("restore", file("saved"), "--prefix", "k").code == 5)
    #expect(
      try !FileManager.default.contentsOfDirectory(atPath: scratch.path).contains {
        $0.hasSuffix(".comparing")
      })
  }

  @Test("a restore that is not possible is refused with a specific exit code, and creates nothing")
  func refusals() throws {
    let tool = try scratch.store()
    try tool.succeed("put", "k", "v")
    try tool.succeed("backup", file("saved"))
    var bytes = try scratch.read("saved")
    try scratch.write("text", Array("no backup".utf8))
    #expect(try tool.run("backup", file("text")).code == 5)
    try tool.succeed("destroy")
    #expect(try tool.run("restore", file("text")).code == 5)
    #expect(try tool.run("restore", file("missing")).code == 1)
    bytes[bytes.count / 2] ^= 1
    try scratch.write("damaged", bytes)
    #expect(try tool.run("restore", file("damaged")).code == 5)
    #expect(!FileManager.default.fileExists(atPath: file("store")))
  }

  @Test(
    "backups, restores and removals killed at any time leave the old state or the new one (F1, F5)"
  )
  func killed() throws {
    let tool = try scratch.store()
    try scratch.write("large", [UInt8](repeating: 0x42, count: 3 << 20))
    for number in 0..<3 {
      try tool.succeed("put", "large\(number)", "--file", file("large"), "--type", "bytes")
    }
    try tool.succeed("backup", file("saved"))
    var states = 1
    for milliseconds in stride(from: 1, through: 60, by: 4) {
      try tool.succeed("put", "k", "\(milliseconds)")
      let backup = try tool.start(["backup", file("saved"), "--json"])
      usleep(UInt32(milliseconds) * 1000)
      backup.signal(SIGKILL)
      _ = backup.finish()
      // A backup that was killed leaves the file readable, with each of its earlier states.
      let copy = scratch.tool("copy\(milliseconds)")
      let restored = try copy.run("restore", file("saved"), "--state", "\(states)")
      #expect(restored.code == 0, "\(restored.err)")
      let restore = try copy.start(["restore", file("saved"), "--state", "1", "--replace"])
      usleep(UInt32(milliseconds) * 1000)
      restore.signal(SIGKILL)
      _ = restore.finish()
      #expect(try copy.run("list").text.hasPrefix("large0\n") || copy.run("list").text.hasPrefix("k\n"))
      #expect(try copy.run("verify").code == 0)
      let removal = try copy.start(["destroy"])
      usleep(UInt32(milliseconds) * 500)
      removal.signal(SIGKILL)
      _ = removal.finish()
      let list = try copy.run("list")
      #expect(list.code == 2 || list.text.contains("large0\n"), "\(list.err)")
      if list.code == 0 { #expect(try copy.run("verify").code == 0) }
      let next = try tool.run("backup", file("saved"), "--json")
      #expect(next.code == 0, "\(next.err)")
      let state = try #require(next.text.firstMatch(of: /"state":(\d+)/).flatMap { Int($0.1) })
      #expect(state == states + 1 || state == states + 2)
      states = state
    }
    #expect(try scratch.tool("last").run("restore", file("saved")).code == 0)
    #expect(try scratch.tool("last").run("get", "k").text == "57")
  }

  @Test("backing up a small store needs little more address space than reading it")
  func addressSpace() throws {
    let tool = try scratch.store()
    try tool.succeed("put", "k", "v")
    // The least address space in which the program runs, in steps of 16 MiB; then that plus the size of the
    // records.
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      for mib in $(seq 64 16 4096); do
        (ulimit -v $((mib * 1024)); $CLI get k) > out 2> err && break
      done
      echo "least: $mib MiB"
      (ulimit -v $(((mib + 32) * 1024)); $CLI backup limited)
      """)
    #expect(result.code == 0, "\(result.out)")
    try scratch.tool("copy").succeed("restore", file("limited"))
    #expect(try scratch.tool("copy").succeed("get", "k").text == "v")
  }
}
