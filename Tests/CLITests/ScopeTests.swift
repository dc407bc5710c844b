import Foundation
import Testing

/// Commands on copies with a scope.
@Suite("A copy with a key scope, on the command line") struct ScopeTests {
  @Test("a copy holds the keys with its prefixes, shows its scope, and can expand it")
  func prefixes() throws {
    let scratch = try Scratch()
    let daemon = try Daemon(scratch.store("alpha"))
    for (key, value) in [("boats/1", "b"), ("crew/1", "c"), ("docks/1", "d")] {
      try daemon.tool.succeed("put", key, value)
    }
    let address = daemon.address
    let beta = try daemon.join(scratch.tool("beta"), "--prefix", "boats/", "--prefix", "crew/")
    #expect(try beta.succeed("list").text == "boats/1\ncrew/1\n")
    #expect(try beta.succeed("status").text.contains("only keys that begin with boats/, crew/"))
    let refused = try beta.run("put", "docks/2", "x")
    #expect(refused.code == 2)
    #expect(refused.err.contains("this copy holds only what begins with boats/, crew/"))
    let why = try beta.run("why", "docks/1")
    #expect(why.code == 1 && why.err.contains("another one may have it"))
    try beta.succeed("put", "crew/2", "written here")
    try beta.succeed("push", address)
    #expect(try daemon.tool.succeed("get", "crew/2").text == "written here")
    try beta.succeed("pull", address, "--prefix", "docks/")
    #expect(try beta.succeed("get", "docks/1").text == "d")
    try beta.succeed("pull", address, "--prefix", "")
    #expect(try !beta.succeed("status").text.contains("only keys"))
    #expect(try beta.run("pull", address, "--prefix", "x").code == 2)
    try beta.succeed("sync", address)
    #expect(try beta.succeed("digest").text == daemon.tool.succeed("digest").text)
    try daemon.end()
  }
}
