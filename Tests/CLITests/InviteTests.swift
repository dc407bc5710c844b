import Foundation
import Glibc
import Testing

/// Invitations at a terminal.
@Suite struct InviteTests {
  @Test("invite list shows open invitations, and invite revoke makes a token unusable")
  func listAndRevoke() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let alpha = daemon.tool
    #expect(try alpha.succeed("invite", "list").text == "")
    let token = try alpha.succeed("invite", "--read-only", "--ttl", "1h").text.trimmingCharacters(
      in: .newlines)
    let line = try alpha.succeed("invite", "list").text
    #expect(line.contains(" read-only, until ") && line.hasSuffix(", open\n"))
    let id = String(line.prefix(16))
    #expect(
      try alpha.succeed("invite", "list", "--json").text.contains("\"id\":\"\(id)\",\"right\":\"read-only\""))
    let unknown = try alpha.run("invite", "revoke", "0123456789abcdef")
    #expect(unknown.code == 1 && unknown.err.contains("\"sync-cli invite list\""))
    #expect(try alpha.succeed("invite", "revoke", id, "--json").text == "{\"withdrawn\":\"\(id)\"}\n")
    #expect(try alpha.run("invite", "revoke", id).code == 1)
    #expect(try scratch.tool("beta").run("join", token).code == 3)
    let beta = try daemon.join(scratch.tool("beta"))
    #expect(try beta.succeed("invite", "list").text == "")
    let redeemed = try alpha.succeed("invite", "list").text
    #expect(redeemed.contains("redeemed by "), "\(redeemed)")
    try daemon.end()
  }

  @Test("without a running daemon, invite needs an address, and says so", arguments: [SIGTERM, SIGKILL])
  func noDaemon(signal: Int32) throws {
    let alpha = try Scratch().store("alpha")
    let daemon = try Daemon(alpha)
    try alpha.succeed("invite")
    daemon.running.signal(signal)
    _ = daemon.running.finish()
    let refused = try alpha.run("invite")
    #expect(refused.code == 3 && refused.text.isEmpty)
    #expect(
      refused.err.contains("no node of this store is listening") && refused.err.contains("`serve`"),
      "\(refused.err)")
    try alpha.succeed("invite", "--address", "127.0.0.1:1")
    let again = try Daemon(alpha)
    _ = try again.join(alpha.scratch.tool("beta"))
    try again.end()
  }

  @Test("the help of invite states its limits")
  func help() throws {
    let text = try Scratch().tool("none").succeed("invite", "--help").text
    #expect(text.contains("256 invitations") && text.contains("30 days") && text.contains("invite revoke"))
  }
}
