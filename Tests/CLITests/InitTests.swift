import Foundation
import SyncStore
import Testing

/// `init`, also when it is interrupted.
@Suite struct InitTests {
  @Test(
    "an init killed between its two steps is completed by the next one")
  func interrupted() throws {
    let scratch = try Scratch()
    let tool = scratch.tool()
    // After the first step the store exists without an identity.
    try Store.create(at: tool.store, name: "here").close()
    #expect(try tool.run("serve", "--check").code == 5)
    let finished = try tool.succeed("init", "--name", "here")
    #expect(finished.text == "created here in \(tool.store)\n")
    #expect(try tool.succeed("peer", "list").text == "here - (read-write, this copy)\n")
    try tool.succeed("serve", "--check")
    let again = try tool.run("init", "--name", "here")
    #expect(again.code == 2 && again.err.contains("there is a store already"), "\(again.err)")
  }

  @Test("init does not make a member of a copy that has joined, or that has lost its keys")
  func complete() throws {
    let scratch = try Scratch()
    let joined = scratch.tool("joined")
    // Like a copy that has joined and not pulled: it knows its inviter, but no member.
    try Store.create(at: joined.store, name: "joined").close()
    try joined.succeed("peer", "add", "inviter", "127.0.0.1:1")
    #expect(try joined.run("init").code == 2)
    let bare = try scratch.store("bare")
    try FileManager.default.removeItem(atPath: bare.store + "/keys")
    #expect(try bare.run("init").code == 2)
    for words in [
      ["serve", "--check"], ["peer", "list"], ["clock"], ["invite", "--address", "127.0.0.1:1"],
      ["sync", "h:1"],
    ] {
      let result = try bare.start(words).finish()
      #expect(result.code == 5 && result.err.contains("device.pem"), "\(words): \(result.err)")
    }
  }
}
