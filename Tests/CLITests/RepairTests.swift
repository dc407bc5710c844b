import Foundation
import Testing

/// A virtual machine that was rolled back in place, with real processes.
@Suite("One dot with two contents, on the command line (F61)") struct RepairTests {
  /// Rolls the files back as a hypervisor does: same files and inodes, earlier bytes.
  private static func putBack(_ scratch: Scratch) throws {
    let result = try scratch.shell(
      """
      set -e
      (cd alpha; find . -type f) | while read -r file; do [ -e "image/$file" ] || rm "alpha/$file"; done
      (cd image; find . -type f) | while read -r file; do cat "image/$file" > "alpha/$file"; done
      """)
    #expect(result.code == 0, "\(result.out)")
  }

  /// Two copies that pulled from two forks of one machine.
  private static func forked() throws -> (beta: Tool, gamma: Tool) {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    for number in 0..<20 { try alpha.succeed("put", "same \(number)", "v") }
    var daemon = try Daemon(alpha)
    let beta = try daemon.join(scratch.tool("beta"))
    let gamma = try daemon.join(scratch.tool("gamma"))
    try daemon.end()
    #expect(try scratch.shell("cp -a alpha image").code == 0)
    for (tool, text) in [(beta, "one"), (gamma, "two")] {
      try alpha.succeed("put", "the key", text)
      daemon = try Daemon(alpha)
      try tool.succeed("peer", "add", "alpha", daemon.address)
      try tool.succeed("pull", "alpha")
      #expect(try tool.succeed("get", "the key").text == text)
      try daemon.end()
      try putBack(scratch)
    }
    return (beta, gamma)
  }

  @Test(
    "a sync finds it, names the key, keeps both values, repairs it and ends with 1; the next finds nothing"
  )
  func sync() throws {
    let (beta, gamma) = try Self.forked()
    let daemon = try Daemon(beta)
    try gamma.succeed("peer", "add", "beta", daemon.address)
    let found = try gamma.run("sync", "beta", "--json")
    #expect(found.code == 1, "\(found.err)")
    #expect(found.err.contains("\"the key\"") && found.err.contains("two contents"), "\(found.err)")
    let line = try #require(found.lines.first?.data(using: .utf8))
    let figures = try #require(try JSONSerialization.jsonObject(with: line) as? [String: Any])
    #expect(figures["repaired_keys"] as? Int == 1)
    #expect((figures["repaired"] as? [[String: String]])?.first?["key"] == "the key")
    let again = try gamma.run("sync", "beta", "--json")
    #expect(again.code == 0 && !again.text.contains("repaired"), "\(again.text) \(again.err)")
    let digest = try gamma.succeed("digest").text
    #expect(try beta.succeed("digest").text == digest)
    for copy in [beta, gamma] { #expect(try copy.succeed("get", "the key").text == "two") }
    #expect(try beta.succeed("conflicts", "list").text.contains("\"one\""))
    #expect(try beta.succeed("why", "the key").text.contains("beat   \"one\""))
    try daemon.end()
    #expect(daemon.running.err.contains("\"the key\""), "\(daemon.running.err)")
  }

  @Test(
    "a push or a pull finds it between copies that are otherwise in sync", arguments: ["push", "pull"])
  func oneDirection(command: String) throws {
    let (beta, gamma) = try Self.forked()
    let daemon = try Daemon(beta)
    try gamma.succeed("peer", "add", "beta", daemon.address)
    // Before any sync the cursors are not at each other's ends, so whether the copies are in step is unknown.
    var result = try gamma.run(command, "beta")
    for other in [command == "push" ? "pull" : "push", command] where result.code == 0 {
      result = try gamma.run(other, "beta")
    }
    #expect(result.code == 1 && result.err.contains("\"the key\""), "\(result.text) \(result.err)")
    try gamma.succeed("sync", "beta")
    #expect(try beta.succeed("digest").text == gamma.succeed("digest").text)
    #expect(try beta.succeed("get", "the key").text == "two")
    try daemon.end()
  }
}
