import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

/// Messages to an operator about clocks, rights, daemons and peers.
@Suite(.timeLimit(.minutes(Patience.minutes(2)))) struct OperationTests {
  private static func until(_ isSo: () throws -> Bool) throws {
    while try !isSo() {
      try Task.checkCancellation()
      Thread.sleep(forTimeInterval: 0.05)
    }
  }

  @Test(
    "F49 writes stamped by a clock that ran ahead are withheld until restamped, and status and log say so"
  )
  func clockAhead() throws {
    let scratch = try Scratch()
    let alpha = try Daemon(scratch.store("alpha"))
    let beta = try alpha.join(scratch.tool("beta"))
    try beta.putAhead("ahead", "1")
    let put = try beta.run("put", "after", "2")
    #expect(put.code == 0 && put.err.contains("clock --restamp"), "\(put.err)")
    #expect(try beta.succeed("status").text.contains("\nahead  "))
    #expect(try beta.succeed("status", "--json").text.contains("\"clock_is_ahead\":true"))
    #expect(try beta.succeed("log").text.contains("stamped ahead: counts elsewhere from "))
    for words in [["push", "alpha"], ["sync", "alpha"]] {
      let result = try beta.start(words).finish()
      #expect(result.code == 3 && result.err.contains("clock --restamp"), "\(words): \(result.err)")
    }
    // Receiving does not need a correct clock.
    try alpha.tool.succeed("put", "theirs", "3")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("get", "theirs").text == "3")

    let daemon = try Daemon(beta)
    try Self.until { daemon.running.err.contains("clock --restamp") }
    try daemon.end()
    let restamped = try beta.succeed("clock", "--restamp").text
    #expect(
      restamped.contains("2 writes stamped up to") && restamped.contains("given the present time"),
      "\(restamped)")
    #expect(try beta.succeed("status", "--json").text.contains("\"clock_is_ahead\":true") == false)
    #expect(try beta.succeed("clock", "--restamp").text.contains("nothing is stamped ahead"))
    #expect(try beta.succeed("put", "after", "2").err.isEmpty)
    try beta.succeed("sync", "alpha")
    #expect(try alpha.tool.succeed("get", "ahead").text == "1")
    #expect(try alpha.tool.succeed("digest").text == beta.succeed("digest").text)
    try alpha.end()
  }

  @Test("status shows parked writes, and why shows until when they wait")
  func waiting() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    try daemon.end()
    try beta.putAhead("ahead", "1")
    // As an older program would have sent it.
    let (from, to) = (try Store.open(at: beta.store), try Store.open(at: alpha.store))
    try to.receive(from: from)
    try from.close()
    try to.close()
    let why = try alpha.succeed("why", "ahead").text
    #expect(why.contains("no value yet") && why.contains("waits  \"1\""), "\(why)")
    #expect(try alpha.succeed("why", "ahead", "--json").text.contains("\"counts_from_ms\":"))
    #expect(try alpha.succeed("status").text.contains("waiting    1 write of other members"))
    let again = try Daemon(alpha)
    try Self.until { again.running.err.contains("of other members, stamped ahead of this clock") }
    try again.end()
  }

  @Test("F81 a read-only member is refused every write until its right is changed")
  func readOnly() throws {
    let scratch = try Scratch()
    let alpha = try Daemon(scratch.store("alpha"))
    let beta = try alpha.join(scratch.tool("beta"))
    try beta.succeed("put", "kept", "1")
    try beta.succeed("sync", "alpha")
    try beta.succeed("put", "stranded", "1")
    #expect(
      try alpha.tool.succeed("peer", "set-right", "beta", "read-only").text.contains("beta is read-only"))
    #expect(try beta.run("sync", "alpha").code == 3)
    try beta.succeed("pull", "alpha")
    try scratch.write("files/a", [1])
    try scratch.write("lines", Array("{\"key\":\"a\",\"value\":\"x\"}\n".utf8))
    for words in [
      ["put", "new", "x"], ["delete", "kept"], ["import", scratch.path + "/files"],
      ["load", scratch.path + "/lines"],
    ] {
      let result = try beta.start(words).finish()
      #expect(result.code == 3 && result.err.contains("read-only"), "\(words): \(result.err)")
    }
    #expect(try beta.succeed("status").text.contains("read-only  writes are refused here"))
    #expect(try beta.succeed("status", "--json").text.contains("\"stranded_keys\":1"))
    #expect(try beta.succeed("unsent").text == "  stranded\n")
    #expect(try beta.succeed("unsent", "--json").text.contains("\"key\":\"stranded\",\"deleted\":false"))
    #expect(try alpha.tool.run("peer", "set-right", "beta", "admin").code == 2)
    #expect(try alpha.tool.run("peer", "set-right", "nobody", "read-only").code == 1)
    #expect(try alpha.tool.run("peer", "set-right", "alpha", "read-only").code == 3)
    #expect(try alpha.tool.succeed("peer", "set-right", "beta", "read-only").text.contains("already"))

    try alpha.tool.succeed("peer", "set-right", "beta", "read-write")
    try beta.succeed("pull", "alpha")
    try beta.succeed("put", "new", "x")
    try beta.succeed("sync", "alpha")
    #expect(
      try alpha.tool.succeed("get", "new").text == "x" && alpha.tool.succeed("get", "stranded").text == "1")
    try alpha.end()
  }

  @Test(
    "a read-only member discards its earlier unsent writes with `unsent --drop`, and gets the members' values"
  )
  func drops() throws {
    let scratch = try Scratch()
    let alpha = try Daemon(scratch.store("alpha"))
    let beta = try alpha.join(scratch.tool("beta"))
    try beta.succeed("put", "shared", "old")
    try beta.succeed("sync", "alpha")
    try beta.succeed("put", "shared", "stranded")
    try beta.succeed("put", "only here", "1")
    let early = try beta.run("unsent", "--drop")
    #expect(early.code == 3 && early.err.contains("leaves with the next sync"), "\(early.err)")
    try alpha.tool.succeed("peer", "set-right", "beta", "read-only")
    try beta.succeed("pull", "alpha")
    #expect(try beta.run("unsent", "--drop", "--limit", "1").code == 2)
    #expect(try beta.succeed("get", "shared").text == "stranded")
    let listed = try beta.succeed("unsent").text
    #expect(try listed == "  shared\n  only here\n" && beta.succeed("unsent", "--drop").text == listed)
    #expect(try beta.run("get", "shared").code == 1 && beta.succeed("unsent", "--drop").text.isEmpty)
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("get", "shared").text == "old" && beta.run("get", "only here").code == 1)
    #expect(try !beta.succeed("status", "--json").text.contains("\"stranded_keys\":2"))
    try alpha.end()
  }

  @Test("F81 a revoked member is notified, refuses writes, and its daemon reports it")
  func revoked() throws {
    let scratch = try Scratch()
    let alpha = try Daemon(scratch.store("alpha"))
    let beta = try alpha.join(scratch.tool("beta"))
    let daemon = try Daemon(beta)
    try beta.succeed("put", "live", "1")
    try Self.until { try alpha.tool.run("get", "live").code == 0 }
    try alpha.tool.succeed("peer", "revoke", "beta")
    try Self.until { daemon.running.err.contains("this copy was revoked") }
    #expect(!daemon.running.err.contains("shuts down"))
    try Self.until { try beta.run("put", "new", "x").code == 3 }
    let sync = try beta.run("sync", "alpha")
    #expect(sync.code == 3 && sync.err.contains("revoked"), "\(sync.err)")
    #expect(try beta.succeed("status").text.contains("revoked    writes of this copy reach no other copy"))
    #expect(try alpha.tool.run("peer", "set-right", "beta", "read-write").code == 3)
    try daemon.end()
    try alpha.end()
  }

  @Test("a second daemon on a store ends with 6, and names the first one")
  func secondDaemon() throws {
    let scratch = try Scratch()
    let tool = try scratch.store("alpha")
    let first = try Daemon(tool)
    let second = try tool.run("serve", "--listen", "127.0.0.1:0")
    #expect(second.code == 6)
    #expect(
      second.err.contains("process \(first.running.processID)") && second.err.contains(first.address),
      "\(second.err)")
    #expect(try tool.succeed("serve", "--check", "--listen", "127.0.0.1:0").code == 0)
    first.running.signal(SIGKILL)
    _ = first.running.finish()
    try Daemon(tool).end()
    // A store that a daemon has served can still be removed completely.
    try tool.succeed("destroy")
  }

  @Test("the daemon accepts only existing peers: --check and SIGHUP refuse unknown names")
  func unknownPeers() throws {
    let scratch = try Scratch()
    let tool = try scratch.store("alpha")
    try scratch.write("config", Array("{\"listen\": \"127.0.0.1:0\", \"peers\": [\"nosuch\"]}".utf8))
    let check = try tool.run("serve", "--check", "--config", scratch.path + "/config")
    #expect(check.code == 2 && check.err.contains("nosuch"), "\(check.err)")
    try scratch.write("config", Array("{\"listen\": \"127.0.0.1:0\", \"peers\": []}".utf8))
    let daemon = try tool.start(["serve", "--config", scratch.path + "/config"])
    _ = daemon.firstLine()
    try scratch.write("config", Array("{\"listen\": \"127.0.0.1:0\", \"peers\": [\"nosuch\"]}".utf8))
    daemon.signal(SIGHUP)
    try Self.until { daemon.err.contains("configuration kept as it was") && daemon.err.contains("nosuch") }
    daemon.signal(SIGTERM)
    #expect(daemon.finish().code == 0)
  }

  @Test(
    "status shows whether the daemon runs and its peer connections; the log has both state changes"
  )
  func daemonInStatus() throws {
    let scratch = try Scratch()
    let hub = try scratch.store("alpha")
    #expect(try hub.succeed("status").text.contains("daemon     none serves this store"))
    var alpha = try Daemon(hub)
    let port = String(try #require(alpha.address.split(separator: ":").last))
    let beta = try alpha.join(scratch.tool("beta"))
    let daemon = try Daemon(beta)
    func status() throws -> String { try beta.succeed("status").text }
    try Self.until { try status().contains("peer       alpha: live; last in step ") }
    #expect(try status().contains("process \(daemon.running.processID), listens on \(daemon.address)"))
    // Acknowledgements are recorded while the session is still open, so they survive a killed daemon.
    try beta.succeed("put", "k", "1")
    try Self.until { try status().contains("member     alpha: lacks nothing that is here") }
    try alpha.end()
    try Self.until { try status().contains(", the last: ") && status().contains("next try ") }
    alpha = try Daemon(hub, at: "127.0.0.1:" + port)
    try Self.until { try status().contains("peer       alpha: live") }
    let log = daemon.running.err
    #expect(log.contains("<5>alpha: reached again, after "), "\(log)")
    try Self.until { try hub.succeed("status").text.contains("connected  beta") }
    #expect(try hub.succeed("status", "--json").text.contains("\"connected\":[\"beta\"]"))
    daemon.running.signal(SIGKILL)
    _ = daemon.running.finish()
    #expect(try status().contains("daemon     none serves this store"))
    #expect(try status().contains("member     alpha: lacks nothing that is here"))
    try alpha.end()
  }

  @Test("two members invited by the same member find each other through it, and status reports the wait")
  func strangers() throws {
    let scratch = try Scratch()
    let hub = try Daemon(scratch.store("hub"))
    let beta = try hub.join(scratch.tool("beta"), "--no-pull")
    let gamma = try hub.join(scratch.tool("gamma"))
    let daemon = try Daemon(beta)
    try gamma.succeed("peer", "add", "beta", daemon.address)
    // Beta's daemon connects to the hub by itself and learns of gamma; at first neither may know the other.
    var told: [String] = []
    try Self.until {
      let result = try gamma.run("sync", "beta")
      if result.code != 0 { told.append(result.err) }
      return result.code == 0
    }
    #expect(told.allSatisfy { $0.contains("a member that knows both") }, "\(told)")
    try daemon.end()
    try hub.end()
    // Without a common member the error says what to do.
    let other = try Daemon(scratch.store("other"))
    let away = try other.join(scratch.tool("away"), "--no-pull")
    try other.end()
    let late = try Daemon(away)
    let refused = try gamma.run("sync", late.address)
    #expect(refused.code == 3 && refused.err.contains("a member that knows both"), "\(refused.err)")
    try late.end()
  }
}
