import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// The JSON lines that the commands declare, for the manual pages and the site, and those that they print.
///
/// A new command or member is printed in one of the parts below; one that needs a rare situation is named in
/// `rare`.
@Suite("JSON lines of the commands", .timeLimit(.minutes(Patience.minutes(3))))
final class JSONReferenceTests {
  /// What is declared and not printed here, each with the situation that it needs: a member of any command,
  /// or "COMMAND: MEMBER".
  private static let rare: [String: String] = [
    "repaired_keys": "a machine that was rolled back in place: RepairTests",
    "repaired": "the same",
    "missing_blobs": "a large value that no member with it has published: RelayTests",
    "waiting_entries": "an object of a relay that was lost: RelayTests",
    "set_aside": "an object of a relay that was changed: RelayTests",
    "unknown_devices": "a member that this copy has yet to hear of: RelayTests",
    "relay status: cost": "a bucket with prices: RelayCostsTests",
    "status: daemon.relays[].last_success_ms": "a relay that cannot be reached any more: RelayTests",
    "status: daemon.identity_conflicts[].device": "two copies with one identity that displace each other",
    "status: daemon.identity_conflicts[].message": "the same",
    "status: members null": "damage in the list of members",
  ]

  private let print = JSONRecorder()
  private let scratch: Scratch
  private let alpha: Tool
  private let beta: Tool

  init() throws {
    scratch = try Scratch()
    (alpha, beta) = (scratch.tool("alpha"), scratch.tool("beta"))
  }

  @Test("what a command prints is declared, and what it declares is printed")
  func members() throws {
    try keys()
    try files()
    try wholeStore()
    try invitations()
    try sessions()
    try largeValues()
    try clocks()
    try daemons()
    print.check(rare: Set(Self.rare.keys))
  }

  @Test(
    "a line with a member that is not declared, of another kind or missing is found",
    arguments: [
      (#"{"name":"n","open":true,"left":null,"of":[{"size":1}]}"#, ""),
      (#"{"name":"n","open":true,"left":3,"of":[],"more":"m"}"#, ""),
      (#"{"name":"n","open":true,"left":3,"of":[],"other":1}"#, "other is not declared"),
      (#"{"name":"n","open":1,"left":3,"of":[]}"#, "open is not true or false"),
      (#"{"name":"n","open":true,"left":1.5,"of":[]}"#, "left is not whole number"),
      (#"{"name":null,"open":true,"left":1,"of":[]}"#, "name is not text"),
      (#"{"name":"n","open":true,"left":1,"of":[{"size":-1}]}"#, "of[].size is not bytes"),
      (#"{"name":"n","open":true,"left":1,"of":[{}]}"#, "of[].size is missing"),
      (#"{"name":"n","open":true,"of":[]}"#, "left is missing"), (#"[]"#, "the line is no object"),
    ])
  func differences(text: String, objection: String) throws {
    let line = JSONLine(
      "each",
      [
        JSONMember("name", .text, "a"), JSONMember("open", .flag, "b"),
        JSONMember("left", .whole, "c", null: "if d"),
        JSONMember("of", .list(.object([JSONMember("size", .bytes, "e")])), "f"),
        JSONMember("more", .text, "g", absent: "if h"),
      ])
    switch line.match(try JSONParser.parse(Array(text.utf8), comments: false)) {
    case .success(let paths):
      #expect(objection.isEmpty)
      #expect(paths.prefix(2) == ["name", "open"] && paths.contains("of"), "\(paths)")
    case .failure(let reason): #expect(reason.text == objection)
    }
  }

  private func keys() throws {
    try print(alpha, "init", "--name", "alpha")
    let large = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* ($0 >> 8)) }
    try print(alpha, "put", "greeting", "hello")
    for key in ["k1", "k2", "k3"] { try alpha.succeed("put", key, "v") }
    try print(alpha, "put", "large", "-", input: large)
    // A key that is not UTF-8, and an object that JSON cannot hold exactly.
    let object = try EncodedValue(["part": Float(0.5)])
    let lines = [
      #"{"key_base64":"/w==","value":"v","expires":4000000000000}"#,
      #"{"key":"object","type":"cbor","base64":"\#(Base64.encode(object.bytes))"}"#,
    ]
    try print(alpha, "load", "-", input: Array(lines.joined(separator: "\n").utf8))
    try print(alpha, "list")
    try print(alpha, "get", "--prefix", "")
    try print(alpha, "dump")
    try print(alpha, "count", "gr")
    try print(alpha, "du", "--depth", "1")
    try print(alpha, "expire", "greeting", "1h")
    try print(alpha, "ttl", "greeting")
    try print(alpha, "ttl", "large")
    try print(alpha, "expire", "greeting", "--never")
    try print(alpha, "cp", "greeting", "copy")
    try print(alpha, "mv", "copy", "moved")
    try print(alpha, "edit", "moved", environment: ["EDITOR": "true"])
    try print(alpha, "delete", "--prefix", "mo", "--dry-run")
    try print(alpha, "delete", "moved")
    try print(alpha, "log")
    try print(alpha, "digest")
    try print(alpha, "digest", "--long")
  }

  private func files() throws {
    let folder = scratch.path + "/files"
    try scratch.write("files/one", [1])
    try print(alpha, "import", folder, "--prefix", "f/", "--delete", "--dry-run")
    try print(alpha, "import", folder, "--prefix", "f/")
    try print(alpha, "export", scratch.path + "/out", "--prefix", "f/")
    try print(alpha, "manual", scratch.path + "/man")
    // Its lines are those of the commands in it.
    try print(alpha, "shell", input: [])
    let watch = try alpha.start(["watch", "--json", "--initial", "--once"])
    while watch.isRunning, !String(decoding: watch.out, as: UTF8.self).contains("\"ready\"") {
      Thread.sleep(forTimeInterval: 0.01)
    }
    try alpha.succeed("put", "watched", "v")
    print.record(["watch"], watch.finish().out)
  }

  private func wholeStore() throws {
    let file = scratch.path + "/backup"
    try print(alpha, "backup", file)
    try print(alpha, "backup", file, "--list")
    try alpha.succeed("put", "k4", "v")
    try print(alpha, "restore", file, "--prefix", "k", "--delete", "--dry-run")
    try print(alpha, "restore", file, "--prefix", "k", "--delete")
    let restored = scratch.tool("restored")
    try print(restored, "restore", file, "--dry-run")
    try print(restored, "restore", file)
    try print(restored, "rekey", "--encrypt", environment: ["SYNC_NEW_PASSPHRASE": "correct horse"])
    try print(restored, "destroy", "--yes")
    try print(alpha, "bundle", scratch.path + "/bundle.tar.gz")
    try print(alpha, "bundle", "--list", "--log", scratch.path + "/nonexistent")
    try print(alpha, "verify")
    try print(alpha, "compact")
    try print(alpha, "status")
    try print(alpha, "status", "--check")
    // A store that a program created for itself alone has no members.
    let own = scratch.tool("own")
    try Store.create(at: own.store).close()
    try print(own, "status")
  }

  private func invitations() throws {
    try print(alpha, "serve", "--check")
    try scratch.write("mistakes", Array(#"{"lisen":1,}"#.utf8))
    try print(alpha, "serve", "--check", scratch.path + "/mistakes", code: 2)
    let daemon = try Daemon(alpha)
    try print(alpha, "invite")
    try print(alpha, "invite", "list")
    let list = try alpha.succeed("invite", "list").text
    try print(alpha, "invite", "revoke", String(list.prefix { $0 != " " }))
    let token = try alpha.succeed("invite").text.trimmingCharacters(in: .newlines)
    try print(beta, "join", token, "--name", "beta")
    // Redeemed, and a copy that holds only some keys.
    try print(alpha, "invite", "list")
    let gamma = scratch.tool("gamma")
    let other = try alpha.succeed("invite").text.trimmingCharacters(in: .newlines)
    try print(gamma, "join", other, "--name", "gamma", "--no-pull", "--prefix", "f/")
    try print(gamma, "status")
    try print(alpha, "peer", "add", "nowhere", "127.0.0.1:1")
    try print(alpha, "peer", "list")
    try print(alpha, "peer", "rename", "nowhere", "elsewhere")
    try print(alpha, "peer", "set-right", "gamma", "read-only")
    try print(alpha, "peer", "revoke", "gamma", "--yes")
    try daemon.end()
  }

  private func relays() throws {
    try FileManager.default.createDirectory(
      atPath: scratch.path + "/stick", withIntermediateDirectories: false)
    try beta.succeed("peer", "add", "stick", "dir:" + scratch.path + "/stick")
    try print(beta, "relay", "check", "stick")
    try print(beta, "push", "stick")
    for command in ["pull", "sync"] { try print(beta, command, "stick") }
    try print(beta, "relay", "status", "stick")
    try print(beta, "relay", "gc", "stick")
    try print(beta, "relay", "gc", "stick", "--dry-run")
    let token = try beta.succeed("invite", "--relay", "stick").text.trimmingCharacters(in: .newlines)
    try print(beta, "invite", "list")
    let delta = scratch.tool("delta")
    #expect(try delta.run("join", token, "--timeout", "1s").code == 4)
    try beta.succeed("push", "stick")
    try print(delta, "join", token, "--name", "delta")
  }

  private func sessions() throws {
    let daemon = try Daemon(alpha)
    try beta.succeed("peer", "add", "alpha", daemon.address)
    try alpha.writeApart(from: beta)
    for (copy, byte) in [(alpha, 0xFE), (beta, 0xFF)] as [(Tool, UInt8)] {
      try copy.succeed("put", "no text", "-", input: [byte])
    }
    try print(beta, "unsent")
    try print(beta, "status", "--check", "--max-lag", "1ms", code: 1)
    try alpha.succeed("delete", "watched")
    try beta.succeed("expire", "greeting", "1h")
    try beta.succeed("put", "new", "v")
    try alpha.succeed("load", "-", input: Array(#"{"key_base64":"/g==","value":"v"}"#.utf8))
    try print(beta, "diff", "alpha", code: 1)
    try print(beta, "diff", "alpha", "--summary", code: 1)
    for command in ["push", "pull", "sync"] { try print(beta, command, "alpha", "--dry-run", "--verbose") }
    for command in ["push", "pull", "sync"] { try print(beta, command, "alpha") }
    try relays()
    try print(beta, "status")
    try print(beta, "clock")
    try print(alpha, "conflicts", "list")
    for key in ["both", "no text"] {
      try print(alpha, "why", key)
      try print(alpha, "conflicts", "show", key)
    }
    try print(alpha, "conflicts", "restore", "both")
    try daemon.end()
  }

  /// Copies that leave large values out, and limits for them.
  private func largeValues() throws {
    try print(alpha, "policy")
    try print(alpha, "policy", "lazy", "--eager-prefix", "e/", "--max-bytes", "1G", "--max-count", "9")
    try print(alpha, "policy", "--max-age", "30d")
    let daemon = try Daemon(alpha)
    try beta.succeed("peer", "add", "alpha", daemon.address)
    try beta.succeed("put", "left out", "-", input: [UInt8](repeating: 7, count: 100_000))
    try print(beta, "push", "alpha")
    let watch = try alpha.start(["watch", "--json", "--from", "0"])
    while watch.isRunning, !String(decoding: watch.out, as: UTF8.self).contains("\"left out\"") {
      Thread.sleep(forTimeInterval: 0.01)
    }
    watch.signal(SIGTERM)
    print.record(["watch"], watch.finish().out)
    try print(beta, "trim")
    try print(beta, "trim", "--dry-run")
    try print(beta, "trim", "--max-count", "0", code: 1)
    try print(beta, "status")
    try daemon.end()
  }

  /// Writes that are stamped ahead, and wait for their time at another copy.
  private func clocks() throws {
    try print(beta, "clock", "--restamp")
    for key in ["greeting", "ahead"] { try beta.putAhead(key, "1") }
    let (from, to) = (try Store.open(at: beta.store), try Store.open(at: alpha.store))
    try to.receive(from: from)
    try from.close()
    try to.close()
    try print(alpha, "why", "greeting")
    try print(alpha, "why", "ahead")
    try print(alpha, "status")
  }

  /// Two daemons: one keeps the other in step, and each knows a peer that it does not reach.
  private func daemons() throws {
    // The watchdog has the daemon write its report down more often.
    func start(_ tool: Tool) throws -> Running {
      try tool.start(
        ["serve", "--listen", "127.0.0.1:0", "--json"], environment: ["WATCHDOG_USEC": "200000"])
    }
    let first = try start(alpha)
    let line = try #require(first.firstLine(), "\(first.err)")
    print.record(["serve"], Array(line.utf8))
    let address = try #require(JSONParser.parse(Array(line.utf8), comments: false)["listening"]?.text)
    try beta.succeed("peer", "add", "alpha", address)
    try print(beta, "peer", "add", "nowhere", "127.0.0.1:1")
    let second = try start(beta)
    while second.isRunning {
      let status = try beta.succeed("status", "--json").text
      if status.contains("last_success_ms"), status.contains("last_error"),
        status.contains("\"connected\":[\"")
      {
        break
      }
      Thread.sleep(forTimeInterval: 0.05)
    }
    try print(beta, "status")
    try print(beta, "peer", "remove", "nowhere")
    for running in [second, first] {
      running.signal(SIGTERM)
      #expect(running.finish().code == 0)
    }
  }
}
