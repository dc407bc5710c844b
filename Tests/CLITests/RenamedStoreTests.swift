import Foundation
import SyncTestSupport
import Testing

/// A store whose directory is renamed while programs have it open, or left without its name by a crash.
@Suite("A store renamed while in use")
struct RenamedStoreTests {
  private func content(_ path: String) -> [String: Data] {
    var found: [String: Data] = [:]
    for name in FileManager.default.subpaths(atPath: path) ?? [] {
      found[name] = FileManager.default.contents(atPath: path + "/" + name) ?? Data()
    }
    return found
  }

  @Test("a daemon follows its renamed store: received writes go into it, not into the copy at the old path")
  func daemon() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try alpha.succeed("put", "old", "v")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    #expect(try scratch.shell("mv alpha moved && cp -a moved alpha").code == 0)
    let before = content(alpha.store)
    var large = [UInt8](repeating: 3, count: 5_000_000)
    for index in 0..<1000 { large[index * 4999] = UInt8(index & 0xFF) }
    try scratch.write("large", large)
    try beta.succeed("put", "packed", "-", input: [UInt8](large[..<100_000]))
    try beta.succeed("put", "large", "--file", scratch.path + "/large")
    for number in 0..<20 { try beta.succeed("put", "k\(number)", "v") }
    try beta.succeed("sync", "alpha")
    // A write by another process under the new name is visible to the daemon.
    let moved = scratch.tool("moved")
    try moved.succeed("put", "beside", "v")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("get", "beside").text == "v")
    try daemon.end()
    #expect(content(alpha.store) == before)
    #expect(try moved.succeed("digest").text == beta.succeed("digest").text)
    #expect(try moved.run("get", "large").out == large && moved.succeed("verify").code == 0)
    #expect(try moved.run("get", "packed").out == [UInt8](large[..<100_000]))
    #expect(try alpha.succeed("list").lines == ["old"])
    try alpha.succeed("verify")
  }

  @Test("a restore killed midway, when no directory had the name, is completed by the next command")
  func withoutName() throws {
    let scratch = try Scratch()
    let tool = try scratch.store()
    try tool.succeed("put", "k", "old")
    try tool.succeed("backup", scratch.path + "/saved")
    let other = scratch.tool("other")
    try other.succeed("restore", scratch.path + "/saved")
    for command in [["get", "k"], ["put", "k", "old"], ["restore", scratch.path + "/saved", "--replace"]] {
      // The state after a crash between renaming the old store and the new one.
      let made = try scratch.shell("mv store store.exchanging && cp -a other store.restoring")
      #expect(made.code == 0)
      let result = try tool.start(command).finish()
      #expect(result.code == 0, "\(command): \(result.err)")
      #expect(try tool.succeed("get", "k").text == "old")
      #expect(try scratch.shell("rm -rf store.restoring; ls -d store.*").out.contains("store.e") == false)
    }
    // The state after a crash between both renames and the removal of the old store.
    #expect(try scratch.shell("cp -a store store.exchanging").code == 0)
    try tool.succeed("put", "k", "new")
    #expect(try tool.succeed("get", "k").text == "new")
    try tool.succeed("destroy")
    #expect(try scratch.shell("ls -d store*").code != 0)
    // A foreign directory of that name is neither used as a store nor removed.
    #expect(try scratch.shell("mkdir store.exchanging && touch store.exchanging/mine").code == 0)
    #expect(try tool.run("get", "k").code != 0)
    try tool.succeed("init")
    #expect(try tool.run("destroy").code != 0)
    #expect(try scratch.shell("ls store.exchanging").out == "mine\n")
  }

  @Test(
    "symbolic links planted in the blob tier are refused with and without openat2 (F84)",
    arguments: ["none", "openat2"], ["ENOSYS", "EPERM", "EINVAL"])
  func links(call: String, error: String) throws {
    let scratch = try Scratch()
    var tool = try scratch.store()
    try scratch.write("large", [UInt8](repeating: 7, count: 5 << 20))
    try tool.succeed("put", "large", "--file", scratch.path + "/large")
    tool.launcher = [RefusedCallTests.refuser, call, error]
    #expect(try tool.run("get", "large").code == 0)
    // Each directory of objects becomes a link to one outside that holds the same object.
    let planted = try scratch.shell(
      "mv store/blobs/objects outside && mkdir -m 700 store/blobs/objects && cd store/blobs/objects && "
        + "for shard in ../../../outside/*; do ln -s $shard .; done")
    #expect(planted.code == 0)
    let result = try tool.run("get", "large")
    #expect(result.code == 5, "\(result.code): \(result.err)")
    #expect(result.out.isEmpty)
  }
}
