import Foundation
import SyncTestSupport
import Testing

/// Sandboxes and file systems that refuse a system call: the fallbacks must work as the calls do.
@Suite("Refused system calls")
struct RefusedCallTests {
  /// The calls above POSIX that the program makes, by their names in `Tests/RefuseCall`, and the errors by
  /// which each is refused: ENOSYS by a kernel or a filter that lacks it, EPERM by a filter, EINVAL by a file
  /// system.
  static let all: [(call: String, errors: [String])] =
    ["openat2", "renameat2", "fallocate", "sync_file_range", "syncfs"].map {
      ($0, ["ENOSYS", "EPERM", "EINVAL"])
    }
    + ["statx", "membarrier", "madvise", "populate", "write-hint", "read-hint"].map {
      ($0, ["ENOSYS", "EPERM"])
    }

  /// One error for each call, so that each error occurs; `make refused` runs all pairs.
  static let calls: [[String]] =
    ProcessInfo.processInfo.environment["REFUSED_CALLS"] == "all"
    ? all.flatMap { call, errors in errors.map { [call, $0] } }
    : all.enumerated().map { [$1.call, $1.errors[$0 % $1.errors.count]] }

  /// Number of values, more than fit into the space that the journal has already allocated.
  private static let lines = 1500

  /// The program that refuses a call; it is next to `sync-cli`.
  static let refuser = (Tool.path as NSString).deletingLastPathComponent + "/refuse-call"

  @Test("a refused system call changes nothing for the user of a store", arguments: calls)
  func refused(words: [String]) throws {
    let scratch = try Scratch()
    var tool = scratch.tool()
    tool.launcher = [Self.refuser] + words
    try tool.succeed("init")
    // Too large for a pack, so stored in a file of its own.
    var large = [UInt8](repeating: 3, count: 4_300_000)
    for index in 0..<1000 { large[index * 4299] = UInt8(index & 0xFF) }
    try scratch.write("tree/large", large)
    try scratch.write("tree/small", [1, 2, 3])
    try tool.succeed("put", "k", "first")
    try tool.succeed("put", "packed", "--file", try file(scratch, "packed", [UInt8](large[..<60_000])))
    try tool.succeed("put", "large", "--file", scratch.path + "/tree/large")
    try tool.succeed("import", scratch.path + "/tree", "--prefix", "tree/")
    #expect(try tool.run("get", "large").out == large)
    try tool.succeed("backup", scratch.path + "/saved")
    try tool.succeed("put", "k", "second")
    try tool.succeed("compact")
    try tool.succeed("trim")
    #expect(try tool.succeed("list").lines == ["k", "large", "packed", "tree/large", "tree/small"])
    #expect(try tool.succeed("get", "k").text == "second")
    try tool.succeed("verify")
    try tool.succeed("export", scratch.path + "/out", "--prefix", "tree/")
    #expect(try tool.run("restore", scratch.path + "/saved").code == 2)
    try tool.succeed("restore", scratch.path + "/saved", "--replace")
    #expect(try tool.succeed("get", "k").text == "first")
    #expect(try tool.run("get", "large").out == large)
    #expect(try tool.run("get", "packed").out == [UInt8](large[..<60_000]))
    try tool.succeed("verify")
    try tool.succeed("destroy")
    #expect(try tool.run("get", "k").code != 0)
    // No temporary file is left next to the store.
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: scratch.path).sorted()
        == ["out", "packed", "saved", "tree"])
  }

  @Test(
    "with fallocate refused on a full disk, writes fail as usual, and deletes and reads work (F25)",
    .enabled(if: LoopImage.isAvailable), arguments: ["ENOSYS", "EPERM", "EOPNOTSUPP"])
  func full(error: String) throws {
    let image = try LoopImage(megabytes: 24)
    let scratch = try Scratch()
    let tool = Tool(
      store: image.path + "/store", scratch: scratch, launcher: [Self.refuser, "fallocate", error])
    try tool.succeed("init")
    try tool.succeed("put", "k", "v")
    try image.fill(leaving: 1 << 20)
    // A value for a pack is refused before anything is allocated.
    let packed = try tool.run("put", "packed", "-", input: [UInt8](repeating: 1, count: 60_000))
    #expect(packed.code == 7 && packed.err.contains("stay reserved"), "\(packed.err)")
    // The journal grows until the file system has no room for its next part.
    let value = String(repeating: "x", count: 12_000)
    let lines = (0..<Self.lines).map { "{\"key\":\"v\($0)\",\"value\":\"\(value)\"}\n" }.joined()
    let last = try tool.run("load", try file(scratch, "lines", Array(lines.utf8)))
    #expect(last.code == 7 && last.err.contains("No space left on device"), "\(last.err)")
    #expect(try tool.succeed("get", "k").text == "v")
    try tool.succeed("delete", "k")
    try tool.succeed("verify")
    image.drain()
    try tool.succeed("put", "k", "again")
    #expect(try tool.succeed("get", "k").text == "again")
  }

  private func file(_ scratch: Scratch, _ name: String, _ content: [UInt8]) throws -> String {
    try scratch.write(name, content)
    return scratch.path + "/" + name
  }

  @Test(
    "the filter really refuses the calls: without a fallback the command fails",
    arguments: ["ENOSYS", "EPERM"])
  func filter(error: String) throws {
    let scratch = try Scratch()
    let result = try ChildProcess.run(
      [Self.refuser, "fallocate", error, "/usr/bin/env", "fallocate", "-l", "1", scratch.path + "/file"])
    #expect(result.code != 0, "\(result.text)")
  }
}
