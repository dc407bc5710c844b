import Foundation
import SyncTestSupport
import Testing

/// Relays through the commands: members that are never online together.
@Suite(.timeLimit(.minutes(Patience.minutes(3)))) struct RelayTests {
  /// Two members that have met once, and the directory of a relay that both call "stick".
  private struct Fleet {
    let scratch: Scratch
    let alpha: Tool
    let beta: Tool
    let place: String

    init() throws {
      scratch = try Scratch()
      let daemon = try Daemon(scratch.store("alpha"))
      (alpha, beta) = (daemon.tool, try daemon.join(scratch.tool("beta")))
      try daemon.end()
      place = scratch.path + "/stick"
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
      for tool in [alpha, beta] { try tool.succeed("peer", "add", "stick", "dir:" + place) }
    }
  }

  @Test func `a write goes through a directory to a member that never meets the writer`() throws {
    let fleet = try Fleet()
    try fleet.alpha.succeed("put", "a", "one")
    let pushed = try fleet.alpha.succeed("push", "stick", "--json").text
    #expect(pushed.contains("\"delivered\":\"relay\"") && pushed.contains("\"sent_records\":1"))
    let pulled = try fleet.beta.succeed("pull", "stick", "--json").text
    #expect(!pulled.contains("delivered") && pulled.contains("\"received_records\":1"))
    #expect(try fleet.beta.succeed("get", "a").text == "one")
    try fleet.beta.succeed("delete", "a")
    #expect(try fleet.beta.succeed("sync", "stick").text.hasPrefix("stick: published 1 record, "))
    try fleet.alpha.succeed("sync", "stick")
    #expect(try fleet.alpha.run("get", "a").code == 1)
    #expect(try fleet.alpha.succeed("digest").text == fleet.beta.succeed("digest").text)
  }

  @Test func `a relay is listed with the peers, shown, checked, collected and forgotten`() throws {
    let fleet = try Fleet()
    #expect(try fleet.alpha.succeed("peer", "list").text.contains("stick dir:\(fleet.place) (relay)"))
    let empty = try fleet.alpha.succeed("relay", "status", "stick").text
    #expect(empty.contains("empty"))
    let checks = try fleet.alpha.succeed("relay", "check", "stick").text.split(separator: "\n")
    #expect(checks.count == 9 && checks.allSatisfy { $0.hasPrefix("ok ") })
    try fleet.alpha.succeed("put", "a", "one")
    try fleet.alpha.succeed("push", "stick")
    let before = try fleet.alpha.succeed("relay", "status", "stick").text
    #expect(before.contains("beta: never seen there"))
    try fleet.beta.succeed("sync", "stick")
    let after = try fleet.alpha.succeed("relay", "status", "stick").text
    #expect(after.contains("has read all of this copy"))
    #expect(after.contains(" writes and listings, ") && !after.contains(" cost "))
    #expect(try fleet.alpha.succeed("relay", "status", "stick", "--json").text.contains("\"has_all\":true"))
    #expect(try fleet.alpha.succeed("relay", "gc", "stick").text.hasPrefix("stick: deleted 0 objects"))
    #expect(
      try fleet.alpha.succeed("relay", "gc", "stick", "--dry-run", "--json").text.contains("\"dry_run\":true")
    )
    try fleet.alpha.succeed("peer", "remove", "stick")
    #expect(try fleet.alpha.run("push", "stick").code == 3)
    #expect(try fleet.alpha.run("peer", "remove", "stick").code == 1)
    for command in ["check", "status", "gc"] {
      let result = try fleet.alpha.run("relay", command, "stick")
      #expect(result.code == 3 && result.err.contains("no relay is called stick"))
    }
  }

  @Test func `what is no relay is refused with a reason, and nothing is named`() throws {
    let fleet = try Fleet()
    let missing = try fleet.alpha.run("peer", "add", "other", "dir:" + fleet.scratch.path + "/none")
    #expect(missing.code == 1 && missing.err.contains("no such directory: mount it"))
    #expect(try fleet.alpha.run("peer", "add", "other", "dir:").code == 1)
    #expect(try fleet.alpha.run("peer", "add", "other", "s3://").code == 2)
    #expect(try fleet.alpha.run("peer", "add", "other", "dir:/tmp", "--region", "r").code == 2)
    #expect(try fleet.alpha.run("peer", "add", "other", "127.0.0.1:1", "--endpoint", "u").code == 2)
    #expect(try fleet.alpha.run("peer", "add", "other", "dir:/tmp", "--prices", "EUR reads=1").code == 2)
    let prices = try fleet.alpha.run("peer", "add", "other", "s3://bucket", "--prices", "EUR 0.005")
    #expect(prices.code == 2 && prices.err.contains("no list of prices: write \"EUR writes=0.005"))
    #expect(try fleet.alpha.run("peer", "add", "beta", "dir:/tmp").code == 3)
    #expect(try fleet.alpha.run("peer", "add", "stick", "127.0.0.1:1").code == 3)
    #expect(try !fleet.alpha.succeed("peer", "list").text.contains("other"))
    try FileManager.default.removeItem(atPath: fleet.place)
    let gone = try fleet.alpha.run("push", "stick")
    #expect(gone.code == 4 && gone.err.contains("does not exist: mount it"))
  }

  @Test func `an object of the relay that was changed is named, and the rest goes through`() throws {
    let fleet = try Fleet()
    try fleet.alpha.succeed("put", "a", "one")
    try fleet.alpha.succeed("push", "stick")
    let heads = try FileManager.default.contentsOfDirectory(atPath: fleet.place + "/h")
    let head = fleet.place + "/h/" + (try #require(heads.first))
    var bytes = try #require(FileManager.default.contents(atPath: head))
    bytes[bytes.count / 2] ^= 1
    try bytes.write(to: URL(fileURLWithPath: head))
    let pulled = try fleet.beta.succeed("pull", "stick", "--json").text
    #expect(pulled.contains("\"set_aside\":[{\"object\":\"h/"))
    try fleet.beta.succeed("put", "b", "two")
    try fleet.beta.succeed("push", "stick")
    // The head's owner finds it changed, and publishes anew.
    try fleet.alpha.succeed("sync", "stick")
    try fleet.beta.succeed("sync", "stick")
    try fleet.alpha.succeed("sync", "stick")
    #expect(try fleet.alpha.succeed("digest").text == fleet.beta.succeed("digest").text)
  }

  @Test func `daemons that never meet stay in step through a relay, and status shows it`() throws {
    let fleet = try Fleet()
    let file = fleet.scratch.path + "/config"
    try Data(#"{"peers": ["stick"], "publish_seconds": 1, "poll_seconds": 1}"#.utf8)
      .write(to: URL(fileURLWithPath: file))
    let (first, second) = (
      try Daemon(fleet.alpha, more: ["--config", file]), try Daemon(fleet.beta, more: ["--config", file])
    )
    try fleet.alpha.succeed("put", "a", "one")
    try until { try fleet.beta.run("get", "a").text == "one" }
    try fleet.beta.succeed("put", "b", "two")
    try until { try fleet.alpha.run("get", "b").text == "two" }
    let line = "relay      stick: dir:\(fleet.place); in step"
    try until { try fleet.alpha.succeed("status").text.contains(line) }
    try FileManager.default.moveItem(atPath: fleet.place, toPath: fleet.place + "-away")
    try until { try fleet.alpha.run("status", "--check").text.contains("relay: stick: ") }
    try FileManager.default.moveItem(atPath: fleet.place + "-away", toPath: fleet.place)
    try until { try !fleet.alpha.run("status", "--check").text.contains("relay: stick: ") }
    try first.end()
    try second.end()
  }

  @Test func `a member joins through a relay, whose request a daemon answers by itself`() throws {
    let fleet = try Fleet()
    try fleet.alpha.succeed("put", "a", "one")
    try fleet.alpha.succeed("push", "stick")
    let token = try fleet.alpha.succeed("invite", "--relay", "stick").text
      .trimmingCharacters(in: .newlines)
    #expect(try fleet.alpha.succeed("invite", "list").text.contains("open, through stick"))
    #expect(try fleet.alpha.run("invite", "--relay", "stick", "--address", "127.0.0.1:1").code == 2)
    #expect(try fleet.alpha.run("invite", "--relay", "none").code == 3)
    let gamma = fleet.scratch.tool("gamma")
    let waits = try gamma.run("join", token, "--name", "gamma", "--timeout", "1s")
    #expect(waits.code == 4 && waits.err.contains("the request waits there"))
    // Not the inviter: it is off.
    let daemon = try Daemon(fleet.beta)
    #expect(
      try gamma.succeed("join", token, "--name", "gamma").text.hasPrefix("joined beta as gamma in "))
    #expect(try gamma.succeed("get", "a").text == "one")
    try daemon.end()
    try gamma.succeed("put", "b", "two")
    try gamma.succeed("sync", "stick")
    try fleet.alpha.succeed("sync", "stick")
    #expect(try fleet.alpha.succeed("get", "b").text == "two")
    #expect(try fleet.alpha.succeed("digest").text == gamma.succeed("digest").text)
    #expect(try fleet.scratch.tool("late").run("join", token).code == 3)
  }

  @Test func `an invitation that is withdrawn is withdrawn in the relay`() throws {
    let fleet = try Fleet()
    let token = try fleet.alpha.succeed("invite", "--relay", "stick", "--ttl", "1h").text
      .trimmingCharacters(in: .newlines)
    // The other one was redeemed by beta.
    let list = try fleet.alpha.succeed("invite", "list").text.split(separator: "\n")
    let id = try String(#require(list.first { $0.contains("open") }).prefix { $0 != " " })
    try fleet.alpha.succeed("invite", "revoke", id)
    #expect(try fleet.alpha.run("invite", "revoke", id).code == 1)
    let refused = try fleet.scratch.tool("gamma").run("join", token)
    #expect(refused.code == 3 && refused.err.contains("it was used or withdrawn"))
    // The place of the relay is one thing, where the token says it is another.
    let wrong = try fleet.scratch.tool("gamma").run("join", token, "--relay", "dir:" + fleet.scratch.path)
    #expect(wrong.code == 4 && wrong.err.contains("no relay is there"))
  }

  @Test
  func `S3 credentials come from the relay's file, the environment, the service manager, the shared file`()
    throws
  {
    let fleet = try Fleet()
    let (alpha, top) = (fleet.alpha, fleet.scratch.path)
    let home = alpha.store + ".home"
    for directory in [top + "/service", home + "/.aws"] {
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    }
    // Each is cut short, so that the message names the one that counts.
    let (own, service, shared) = (top + "/own", top + "/service/s3-credentials", home + "/.aws/credentials")
    for file in [own, service, shared] {
      try Data("[default]\naws_access_key_id = a\n".utf8).write(to: URL(fileURLWithPath: file))
    }
    let bucket = ["s3://bucket/boats", "--endpoint", "http://127.0.0.1:1"]
    func add(_ more: String...) throws {
      let added = try alpha.start(["peer", "add", "fleet"] + bucket + more).finish()
      #expect(added.code == 0, "\(added.err)")
    }
    func expect(_ text: String, _ environment: [String: String]) throws {
      let result = try alpha.run("pull", "fleet", environment: environment)
      #expect(result.code == 3 && result.err.contains(text), "\(text): \(result.err)")
    }
    let unit = ["CREDENTIALS_DIRECTORY": top + "/service"]
    let all = unit.merging(["AWS_ACCESS_KEY_ID": "a"]) { $1 }
    try add("--credentials-file", own)
    try expect("\(own) lacks", all)
    try add()
    try expect("AWS_SECRET_ACCESS_KEY is not: set both", all)
    try expect("\(service) lacks", unit)
    // What a unit declares for a service without a bucket.
    try Data("\n".utf8).write(to: URL(fileURLWithPath: service))
    try expect("\(shared) lacks", unit)
    try FileManager.default.removeItem(atPath: shared)
    try expect("there are none", unit)
    let reached = try alpha.run(
      "pull", "fleet", environment: ["AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"])
    #expect(reached.code == 4, "\(reached.err)")
  }

  private static let rclone = Checkout.top + "/.build/s3-servers/bin/rclone"

  @Test(
    .enabled(
      if: FileManager.default.isExecutableFile(atPath: rclone),
      "no S3 server is installed: scripts/s3-servers.sh"))
  func `a write goes through a bucket, with credentials from a file`() throws {
    let fleet = try Fleet()
    let served = fleet.scratch.path + "/served"
    try FileManager.default.createDirectory(atPath: served + "/bucket", withIntermediateDirectories: true)
    let port = try TutorialTests.freePort()
    let server = try ChildProcess(
      [
        Self.rclone, "serve", "s3", served, "--auth-key", "test-key,test-secret", "--addr",
        "127.0.0.1:\(port)",
        "--config", served + "/none",
      ], environment: ["PATH": "/usr/bin:/bin", "HOME": served])
    defer { withExtendedLifetime(server) {} }
    let file = fleet.scratch.path + "/credentials"
    try Data("aws_access_key_id = test-key\naws_secret_access_key = test-secret\n".utf8)
      .write(to: URL(fileURLWithPath: file))
    for tool in [fleet.alpha, fleet.beta] {
      try tool.succeed(
        "peer", "add", "fleet", "s3://bucket/boats", "--endpoint", "http://127.0.0.1:\(port)",
        "--credentials-file", file, "--prices", "EUR writes=5 reads=0.4 stored=23")
    }
    try until { try fleet.alpha.run("relay", "check", "fleet").code == 0 }
    try fleet.alpha.succeed("put", "a", "one")
    try fleet.alpha.succeed("put", "large", "-", input: [UInt8](repeating: 7, count: 100_000))
    #expect(try fleet.alpha.succeed("push", "fleet", "--json").text.contains("\"delivered\":\"relay\""))
    try fleet.beta.succeed("sync", "fleet")
    #expect(try fleet.beta.succeed("get", "large").out.count == 100_000)
    #expect(try fleet.alpha.succeed("digest").text == fleet.beta.succeed("digest").text)
    #expect(try fleet.alpha.succeed("relay", "status", "fleet").text.contains("s3://bucket/boats"))
    let status = try fleet.alpha.succeed("relay", "status", "fleet", "--json").text
    #expect(status.contains("\"cost\":{\"currency\":\"EUR\",\"requests\":0."), "\(status)")
    // Wrong credentials are told apart from a network that is down.
    try Data("aws_access_key_id = test-key\naws_secret_access_key = wrong\n".utf8)
      .write(to: URL(fileURLWithPath: file))
    let refused = try fleet.alpha.run("pull", "fleet")
    #expect(refused.code == 3 && !refused.err.contains("wrong\n"))
  }

  private func until(_ isSo: () throws -> Bool) throws {
    while try !isSo() {
      try Task.checkCancellation()
      Thread.sleep(forTimeInterval: 0.1)
    }
  }
}
