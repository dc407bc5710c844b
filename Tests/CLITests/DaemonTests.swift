import Foundation
import SyncStore
import SyncTestSupport
import Testing

/// `serve` and its clients: two hosts, end to end.
@Suite struct DaemonTests {
  @Test("F65 two copies written offline converge, and the later write wins on both")
  func twoHosts() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try alpha.succeed("put", "large", "-", input: [UInt8](repeating: 3, count: 200_000))
    for index in 0..<50 { try alpha.succeed("put", "k\(index)", "alpha \(index)") }
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    #expect(try beta.succeed("digest").text == alpha.succeed("digest").text)

    try daemon.end()
    try alpha.writeApart(from: beta)
    #expect(try beta.succeed("digest").text != alpha.succeed("digest").text)

    let again = try Daemon(alpha)
    try beta.succeed("peer", "add", "alpha", again.address)
    let figures = try JSONFigures(beta.succeed("sync", "alpha", "--json"))
    #expect(figures["sent_records"] == 3)
    // A value that lost before it was sent is not sent; it is kept where it was written.
    #expect(try (1...3).contains(#require(figures["received_records"])))
    for copy in [alpha, beta] {
      #expect(try copy.succeed("get", "both").text == "later")
      #expect(try copy.run("get", "k1").code == 1)
      #expect(try copy.run("get", "k2").code == 1)
      #expect(try copy.succeed("get", "k3").text == "beta")
    }
    #expect(try alpha.succeed("why", "both").text.contains("beat   \"earlier\""))
    #expect(try alpha.succeed("conflicts", "list").text.contains("\"earlier\""))
    #expect(try beta.succeed("digest").text == alpha.succeed("digest").text)
    #expect(try figures.digest + "\n" == alpha.succeed("digest").text)
  }

  @Test("the command lines of the README work as described")
  func readme() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("other"))
    let port = try #require(daemon.address.split(separator: ":").last)
    try daemon.end()
    let readme = try String(contentsOf: Checkout.url("README.md"), encoding: .utf8)
    let lines = try #require(readme.firstMatch(of: /```sh\n(sync-cli[\s\S]*?)```/)).1.replacing(
      "7420", with: port)
    let result = try scratch.shell(
      "set -e; trap 'kill %1' EXIT; PATH=$(dirname \"$CLI\"):$PATH\n\(lines)\nkill %1; wait %1; trap - EXIT")
    #expect(result.code == 0, "\(result.out)")
    #expect(result.out.contains("joined here as there"))
    #expect(result.out.contains("greeting: \"hello\", received from another copy"))
    let (here, there) = (scratch.tool("here"), scratch.tool("there"))
    #expect(try here.succeed("digest").text == there.succeed("digest").text)
  }

  @Test("a push with nothing new takes two round trips and less than 8 KiB")
  func nothingNew() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    for index in 0..<20 { try beta.succeed("put", "k\(index)", "v") }
    try beta.succeed("push", "alpha")
    let figures = try JSONFigures(beta.succeed("push", "alpha", "--json"))
    #expect(figures["sent_records"] == 0)
    #expect(try #require(figures["round_trips"]) <= 2)
    #expect(try #require(figures["sent_bytes"]) + #require(figures["received_bytes"]) < 8192)
  }

  @Test(
    "every command works on a store that a running daemon has open",
    arguments: [
      ["put", "new", "v"], ["get", "old"], ["delete", "old"], ["list", "--long"], ["dump"],
      ["digest", "--long"], ["status"],
      ["log"], ["verify"], ["why", "old"], ["conflicts", "list"], ["peer", "list"],
      ["peer", "add", "x", "127.0.0.1:1"],
      ["invite"], ["import", "/etc/apt"], ["compact"],
    ])
  func whileDaemonRuns(words: [String]) throws {
    let alpha = try Scratch().store("alpha")
    try alpha.succeed("put", "old", "v")
    let daemon = try Daemon(alpha)
    let result = try alpha.start(words).finish()
    #expect(result.code == 0, "\(result.err)")
    let beta = try daemon.join(alpha.scratch.tool("beta"))
    #expect(try beta.succeed("digest").text == alpha.succeed("digest").text)
    try daemon.end()
  }

  @Test("a peer pulls a value written while the daemon runs")
  func freshness() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    for index in 0..<10 {
      try alpha.succeed("put", "k", "\(index)")
      try beta.succeed("pull", "alpha")
      #expect(try beta.succeed("get", "k").text == "\(index)")
    }
  }

  @Test("SIGTERM and SIGINT end the daemon cleanly, SIGHUP does not end it", arguments: [SIGTERM, SIGINT])
  func signals(number: Int32) throws {
    let alpha = try Scratch().store("alpha")
    let daemon = try Daemon(alpha)
    daemon.running.signal(SIGHUP)
    let beta = try daemon.join(alpha.scratch.tool("beta"))
    #expect(try beta.succeed("push", "alpha").err.isEmpty)
    try daemon.end(by: number)
    #expect(daemon.running.err.contains("configuration read again"))
    #expect(daemon.running.err.hasSuffix("<5>ended\n"))
    #expect(try alpha.succeed("verify").text.contains("all whole"))
  }

  @Test("F91 a killed daemon leaves an intact store with everything that was acknowledged")
  func killed() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    var daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    for round in 0..<3 {
      try beta.succeed("put", "k\(round)", "v")
      try beta.succeed("push", "alpha")
      daemon.running.signal(SIGKILL)
      _ = daemon.running.finish()
      #expect(try alpha.succeed("get", "k\(round)").text == "v")
      #expect(try alpha.succeed("verify").text.contains("all whole"))
      daemon = try Daemon(alpha)
      try beta.succeed("peer", "add", "alpha", daemon.address)
    }
    #expect(try beta.succeed("digest").text == alpha.succeed("digest").text)
  }

  @Test("F87 a token is the only output on standard output, and works once")
  func tokens() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    let printed = try alpha.succeed("invite").text
    #expect(printed.split(separator: "\n").count == 1)
    let token = printed.trimmingCharacters(in: .whitespacesAndNewlines)
    try scratch.tool("beta").succeed("join", token, "--name", "beta")
    let second = try scratch.tool("gamma").run("join", token, "--name", "gamma")
    #expect(second.code == 3)
    #expect(second.out.isEmpty)
    #expect(second.err.split(separator: "\n").count == 1)
    let damaged = try scratch.tool("gamma").run("join", String(token.dropLast()), "--name", "gamma")
    #expect(damaged.code == 3)
    let short = try alpha.succeed("invite", "--ttl", "1s").text
    try #require(try scratch.shell("sleep 1.1").code == 0)
    #expect(try scratch.tool("gamma").run("join", "-", "--name", "gamma", input: Array(short.utf8)).code == 3)
    let existing = try scratch.tool("beta").run("join", try alpha.succeed("invite").text)
    #expect(existing.code == 2, "\(existing.err)")
    try daemon.end()
  }

  @Test("a read-only member receives and cannot send")
  func readOnly() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    try alpha.succeed("put", "k", "v")
    let token = try alpha.succeed("invite", "--read-only").text.trimmingCharacters(in: .newlines)
    let beta = scratch.tool("beta")
    try beta.succeed("join", token, "--name", "beta")
    #expect(try beta.succeed("get", "k").text == "v")
    let unwritten = try beta.run("put", "mine", "v")
    #expect(unwritten.code == 3 && unwritten.out.isEmpty, "\(unwritten.err)")
    #expect(try beta.run("get", "mine").code == 1)
    let refused = try beta.run("push", "alpha")
    #expect(refused.code == 3, "\(refused.err)")
    for words in [["peer", "revoke", "alpha"], ["invite", "--address", "127.0.0.1:1"]] {
      let unheard = try beta.start(words).finish()
      #expect(unheard.code == 3 && unheard.out.isEmpty, "\(words): \(unheard.err)")
    }
    #expect(try alpha.run("get", "mine").code == 1)
    try daemon.end()
  }

  @Test(
    "a wrong peer argument ends with its exit code and one line",
    arguments: [
      (["push", "nobody"], 3), (["pull", "127.0.0.1:1"], 4), (["sync", ""], 3),
      (["peer", "remove", "nobody"], 1),
      (["peer", "add", "x"], 2), (["peer", "add", "x", "no address"], 2), (["push"], 2), (["join"], 2),
      (["join", "nonsense"], 3),
      (["invite"], 3), (["invite", "--ttl", "0s"], 2), (["invite", "--address", "::::"], 2),
      (["serve", "--listen", "::::"], 2),
      (["serve", "--listen", "192.0.2.1:1"], 4), (["serve", "--config", "/nonexistent"], 1),
      (["serve", "now"], 2),
      (["peer", "revoke", "x"], 3), (["peer", "revoke"], 2),
    ] as [([String], Int32)])
  func mistakes(words: [String], code: Int32) throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    // `join` needs a path without a store.
    let tool = words[0] == "join" ? scratch.tool("new") : alpha
    let digest = try alpha.succeed("digest").text
    let result = try tool.start(words).finish()
    #expect(result.code == code, "\(result.err)")
    #expect(result.out.isEmpty)
    #expect(result.err.hasPrefix("sync-cli: "))
    #expect(result.err.split(separator: "\n").count == 1, "\(result.err)")
    #expect(try alpha.succeed("digest").text == digest)
  }

  @Test("the configuration may contain comments")
  func configuration() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try scratch.write(
      "good", Array("// here\n{\"listen\": \"127.0.0.1:0\", /* all */ \"log\": \"json\"}".utf8))
    #expect(
      try alpha.succeed("serve", "--check", "--config", scratch.path + "/good").text.contains("127.0.0.1:0"))
    let running = try alpha.start(["serve", "--config", scratch.path + "/good"])
    #expect(running.firstLine()?.hasPrefix("listening on 127.0.0.1:") == true)
    running.signal(SIGTERM)
    #expect(running.finish().code == 0)
    #expect(running.err.split(separator: "\n").allSatisfy { $0.hasPrefix("{\"time\":") })
  }

  @Test("F95 a store that another process holds exclusively is busy")
  func busy() throws {
    let alpha = try Scratch().store("alpha")
    let store = try Store.open(at: alpha.store)
    for words in [["get", "a"], ["put", "a", "b"], ["serve"], ["status"]] {
      let result = try alpha.start(words).finish()
      #expect(result.code == 6, "\(words): \(result.err)")
    }
    try store.close()
    try alpha.succeed("put", "a", "b")
  }

  @Test("F99 a store that other users can write to is refused")
  func unsafeDirectory() throws {
    let alpha = try Scratch().store("alpha")
    _ = try alpha.scratch.shell("chmod go+w alpha")
    #expect(try alpha.run("get", "a").code == 3)
  }

  @Test("F17 F44 verify names damage, and repairs it from a peer")
  func repair() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    try alpha.succeed("put", "blob", "-", input: [UInt8](repeating: 5, count: 300_000))
    for index in 0..<20 { try alpha.succeed("put", "k\(index)", "value \(index)") }
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    let digest = try beta.succeed("digest").text
    let flipped = try scratch.shell(
      """
      blob=$(find beta/blobs/packs -type f | head -1); chmod u+w $blob
      printf X | dd of=$blob bs=1 seek=20000 conv=notrunc status=none
      at=$(grep -abo 'value 7' beta/journal/0000000000000001.segment | head -1 | cut -d: -f1)
      printf X | dd of=beta/journal/0000000000000001.segment bs=1 seek=$at conv=notrunc status=none
      """)
    #expect(flipped.code == 0, "\(flipped.out)")
    let damaged = try beta.run("verify")
    #expect(damaged.code == 5)
    #expect(damaged.lines.count >= 2, "\(damaged.text)")
    for key in ["blob", "k7"] {
      #expect(try beta.run("get", key).code != 0, "a wrong value of \(key) was given")
    }
    let repaired = try beta.run("verify", "--repair")
    #expect(repaired.code == 0, "\(repaired.text) \(repaired.err)")
    #expect(try beta.succeed("verify").text.contains("all whole"))
    #expect(try beta.succeed("digest").text == digest)
    #expect(try beta.succeed("get", "k7").text == "value 7")
  }
}

/// A daemon of a test: killed with its last reference.
final class Daemon: Sendable {
  let running: Running
  let address: String
  let tool: Tool

  init(_ tool: Tool, at place: String = "127.0.0.1:0", more: [String] = []) throws {
    self.tool = tool
    running = try tool.start(["serve", "--listen", place] + more)
    let line = try #require(running.firstLine(), "\(running.err)")
    address = String(try #require(line.wholeMatch(of: /listening on (\d+\.\d+\.\d+\.\d+:\d+)/)).1)
  }

  /// Makes `tool` a member, with everything pulled, under the name of its directory.
  func join(_ tool: Tool, _ more: String...) throws -> Tool {
    let token = try self.tool.succeed("invite").text.trimmingCharacters(in: .newlines)
    let name = (tool.store as NSString).lastPathComponent
    let result = try tool.start(["join", token, "--name", name] + more).finish()
    #expect(result.code == 0, "\(result.err)")
    return tool
  }

  /// Ends the daemon by a signal; it must exit with 0.
  func end(by number: Int32 = SIGTERM) throws {
    running.signal(number)
    let result = running.finish()
    #expect(result.code == 0, "\(result.err)")
  }
}

/// The JSON figures that a session prints.
struct JSONFigures {
  private let values: [String: Any]

  init(_ result: Tool.Result) throws {
    values = try #require(try JSONSerialization.jsonObject(with: Data(result.out)) as? [String: Any])
  }

  subscript(name: String) -> Int? { values[name] as? Int }
  var digest: String { values["digest"] as? String ?? "" }
}
