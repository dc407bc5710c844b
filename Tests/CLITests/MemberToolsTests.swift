import Foundation
import Replication
import SyncStore
import Testing

/// Commands that show and manage members.
@Suite struct MemberToolsTests {
  @Test("a value put on one daemon's store can be read on the other's a moment later, without any command")
  func live() throws {
    let scratch = try Scratch()
    let alpha = try Daemon(scratch.store("alpha"))
    let beta = try alpha.join(scratch.tool("beta"))
    let other = try Daemon(beta)
    try beta.succeed("put", "from beta", "1")
    try alpha.tool.succeed("put", "from alpha", "2")
    while try alpha.tool.run("get", "from beta").code != 0 || beta.run("get", "from alpha").code != 0 {
      Thread.sleep(forTimeInterval: 0.01)
    }
    // One-shot commands work while the daemon runs.
    try beta.succeed("sync", "alpha")
    #expect(try beta.succeed("digest").text == alpha.tool.succeed("digest").text)
    try other.end()
    try alpha.end()
  }

  @Test("`why` names the sender of a write and the members not known to have it; `clock` shows clock offsets")
  func whyAndClock() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    try beta.succeed("put", "mine", "1")
    let name = try beta.succeed("peer", "list").text.split(separator: "\n").first {
      !$0.contains("this copy")
    }
    let alpha = try #require(name?.split(separator: " ").first.map(String.init))
    #expect(try beta.succeed("why", "mine").text.contains("not known to have it: \(alpha)"))
    try beta.succeed("push", alpha)
    #expect(try !beta.succeed("why", "mine").text.contains("not known"))
    try daemon.tool.succeed("put", "theirs", "2")
    try beta.succeed("pull", alpha)
    #expect(try beta.succeed("why", "theirs").text.contains("from   \(alpha)"))
    #expect(try beta.succeed("clock").text.contains("\(alpha)  "))
    #expect(try beta.succeed("clock", "--restamp").text.contains("nothing is stamped ahead"))
    let absent = try beta.run("why", "nothing")
    #expect(absent.code == 1)
    try daemon.end()
  }

  @Test(
    "status shows for each member its unacknowledged writes, its clock offset and its last receipt"
  )
  func membersInStatus() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    func member() throws -> String {
      let line = try beta.succeed("status").text.split(separator: "\n").first { $0.hasPrefix("member ") }
      return String(try #require(line))
    }
    #expect(try member().contains(": lacks nothing that is here, clock "))
    for key in ["a", "b"] { try beta.succeed("put", key, "1") }
    try beta.succeed("delete", "b")
    #expect(try member().contains(": not known to have 2 keys, clock "))
    #expect(try beta.succeed("status", "--json").text.contains("\"lacking\":2,\"lacking_is_bounded\":false"))
    // Records received from a member are known to it, also those of another author.
    let gamma = try daemon.join(scratch.tool("gamma"))
    try gamma.succeed("put", "c", "1")
    try gamma.succeed("sync", "alpha")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("get", "c").text == "1")
    #expect(try member().contains(": not known to have 2 keys, clock "))
    try beta.succeed("push", "alpha")
    let told = try member()
    #expect(told.contains(": lacks nothing that is here, clock ") && told.contains("receipt up to position "))
    try daemon.end()
  }

  @Test("status lists a member that has never connected, without scanning a large store for it")
  func unknownMember() throws {
    let tool = try Scratch().store()
    let store = try Store.open(at: tool.store)
    try store.transaction { transaction in
      for number in 0..<10_001 { try transaction.put(Key("\(number)"), [1]) }
    }
    let device = try #require(DeviceID(bytes: [UInt8](repeating: 7, count: 32)))
    try Membership(store).put(
      Member(device: device, name: "away", right: .readWrite, addresses: [], joined: 0))
    try store.close()
    #expect(
      try tool.succeed("status").text.contains(
        "member     away: not known to have more than 10000 keys, not met yet"))
    #expect(
      try tool.succeed("status", "--json").text.contains("\"lacking\":10000,\"lacking_is_bounded\":true"))
  }

  @Test("F81 a revoked member is refused, and the others continue under a new group key")
  func revoke() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let (beta, gamma) = (try daemon.join(scratch.tool("beta")), try daemon.join(scratch.tool("gamma")))
    let members = try daemon.tool.succeed("peer", "list").text.split(separator: "\n").map(String.init)
    let others = members.filter { !$0.contains("this copy") }.compactMap { $0.split(separator: " ").first }
    #expect(others.count == 2)
    let server = try #require(members.first { $0.contains("this copy") }?.split(separator: " ").first)
    try daemon.tool.succeed("peer", "revoke", String(others[0]))
    try daemon.tool.succeed("put", "after", "x")
    let results = try [beta, gamma].map { try $0.run("sync", String(server)).code }
    #expect(results.sorted() == [0, 3])
    let kept = results[0] == 0 ? beta : gamma
    #expect(try kept.succeed("get", "after").text == "x")
    let keys = try [daemon.tool, kept].map {
      try String(contentsOfFile: $0.store + "/keys/group", encoding: .utf8)
    }
    #expect(keys[0] == keys[1] && keys[0].split(separator: "\n").count { $0.hasPrefix("epoch") } == 2)
    try daemon.end()
  }

  @Test("peer rename gives a member another name on every copy, and peers go on by either")
  func rename() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    let beta = try daemon.join(scratch.tool("beta"))
    #expect(try daemon.tool.succeed("peer", "rename", "beta", "boat").text == "beta is boat from now on\n")
    #expect(
      try daemon.tool.succeed("peer", "rename", "boat", "boat", "--json").text
        == "{\"name\":\"boat\",\"before\":\"boat\",\"changed\":false}\n")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("peer", "list").text.contains("boat - (read-write, this copy)"))
    // beta knows alpha as its peer: both names change.
    try beta.succeed("peer", "rename", "alpha", "hub")
    try beta.succeed("sync", "hub")
    #expect(try daemon.tool.succeed("peer", "list").text.contains("hub "))
    #expect(try beta.run("sync", "alpha").code == 3)
    #expect(try beta.run("peer", "rename", "nobody", "x").code == 1)
    #expect(try beta.run("peer", "rename", "hub", "boat").code == 3)
    #expect(try beta.run("peer", "rename", "hub", "a b").code == 2)
    #expect(try beta.run("peer", "rename", "hub").code == 2)
    try daemon.end()
  }

  @Test("a losing value is shown with the winner, and can be restored")
  func conflicts() throws {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    try daemon.end()
    try alpha.succeed("put", "both", "earlier")
    Thread.sleep(forTimeInterval: 0.01)
    try beta.succeed("put", "both", "later")
    let again = try Daemon(alpha)
    try beta.succeed("peer", "add", "alpha", again.address)
    // A two-way sync may deliver the later value before the earlier one is sent; the earlier one is then kept
    // only there.
    try beta.succeed("pull", "alpha")
    let shown = try beta.succeed("conflicts", "show", "both").text.split(separator: "\n")
    #expect(shown.count == 2 && shown[0].hasPrefix("now  \"later\"") && shown[1].hasPrefix("1  \"earlier\""))
    let json = try beta.succeed("conflicts", "show", "both", "--json").text
    #expect(json.contains("\"value\":\"later\"") && json.contains("\"value\":\"earlier\""), "\(json)")
    #expect(try beta.succeed("conflicts", "list", "--json").text.contains("\"value\":\"earlier\""))
    let why = try beta.succeed("why", "both", "--json").text
    #expect(why.contains("\"value\":\"later\"") && why.contains("\"value\":\"earlier\""), "\(why)")
    let peers = try beta.succeed("peer", "list", "--json").text.split(separator: "\n")
    #expect(peers.count { $0.contains("\"right\":\"read-write\",\"self\":true") } == 1, "\(peers)")
    #expect(peers.count { $0.contains("\"right\":\"read-write\",\"self\":false") } == 1, "\(peers)")
    try beta.succeed("conflicts", "restore", "both")
    #expect(try beta.succeed("get", "both").text == "earlier")
    try beta.succeed("push", "alpha")
    #expect(try alpha.succeed("get", "both").text == "earlier")
    #expect(try beta.run("conflicts", "restore", "both", "--number", "9").code == 1)
    try again.end()
  }

  @Test("a copy that was revoked reports it")
  func revokedHere() throws {
    let tool = try Scratch().store()
    #expect(try tool.succeed("status", "--json").text.contains("\"revoked\":false"))
    let store = try Store.open(at: tool.store)
    let membership = Membership(store)
    var own = try #require(try membership.own())
    own.right = .revoked
    try membership.put(own)
    try store.close()
    #expect(try tool.succeed("status").text.contains("revoked    writes of this copy reach no other copy"))
    #expect(try tool.succeed("status", "--json").text.contains("\"revoked\":true"))
  }

  @Test("a join whose pull fails reports that it has joined, and how to continue")
  func joinedOnly() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    try daemon.tool.succeed("put", "large", "-", input: [UInt8](repeating: 7, count: 3 << 20))
    let token = try daemon.tool.succeed("invite").text.trimmingCharacters(in: .newlines)
    let result = try scratch.shell("ulimit -f 1024; $CLI --store beta join '\(token)' --name beta 2> err")
    #expect(result.code == 7 && result.out.hasPrefix("joined alpha as beta in "), "\(result.out)")
    let told = String(decoding: try scratch.read("err"), as: UTF8.self)
    #expect(told.contains("run \"sync-cli pull alpha\""), "\(told)")
    let beta = scratch.tool("beta")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("digest").text == daemon.tool.succeed("digest").text)
    try daemon.end()
  }
}
