import Foundation
import Testing

/// Large values that only other copies hold, with real processes.
@Suite("Large values held by other members, on the command line")
struct TierTests {
  private func pair() throws -> (alpha: Tool, beta: Tool, daemon: Daemon) {
    let scratch = try Scratch()
    let alpha = try scratch.store("alpha")
    let daemon = try Daemon(alpha)
    return (alpha, try daemon.join(scratch.tool("beta")), daemon)
  }

  private static func bytes(_ number: UInt8, _ count: Int = 100_000) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* ($0 >> 8 &+ Int(number))) }
  }

  @Test("a lazy copy fetches large values only when read, and the pusher is told")
  func lazy() throws {
    let (alpha, beta, daemon) = try pair()
    for number in 0..<3 as Range<UInt8> {
      try alpha.succeed("put", "large\(number)", "-", input: Self.bytes(number))
    }
    #expect(try beta.succeed("policy", "lazy").text.hasPrefix("takes no large values"))
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("status").text.contains("elsewhere  3 left out by the policy"))
    #expect(try beta.succeed("get", "large1").out == Self.bytes(1))
    let status = try JSONSerialization.jsonObject(with: Data(beta.succeed("status", "--json").out))
    #expect((status as? [String: Any])?["left_out_blobs"] as? Int == 2)
    #expect(
      try beta.succeed("verify").text.contains(
        "2 blobs elsewhere on purpose (2 left out by the policy): all whole"))
    #expect(
      try beta.succeed("policy", "--eager-prefix", "large2", "--max-bytes", "1M").text.contains("1.0 MiB"))
    try beta.succeed("pull", "alpha")
    try daemon.end()
    #expect(try beta.succeed("get", "large2").out == Self.bytes(2))
    let failed = try beta.run("get", "large0")
    #expect(failed.code == 4 && failed.out.isEmpty)
    #expect(failed.err.contains("was left out of this copy by its policy") && failed.err.contains("peer add"))
  }

  @Test("dump and export fetch remote values, name those they cannot get, and output all the rest")
  func whole() throws {
    let (alpha, beta, daemon) = try pair()
    for number in 0..<3 as Range<UInt8> {
      try alpha.succeed("put", "\(number)/large", "-", input: Self.bytes(number))
    }
    try beta.succeed("policy", "lazy")
    try beta.succeed("pull", "alpha")
    #expect(try beta.succeed("dump", "0/").text == alpha.succeed("dump", "0/").text)
    try beta.succeed("export", beta.scratch.path + "/out", "--prefix", "1/")
    #expect(try beta.succeed("status").text.contains("elsewhere  1 left out"))
    try daemon.end()
    // The journal has a key after the one whose value is unavailable.
    try beta.succeed("put", "3/small", "v")
    for words in [["dump"], ["export", beta.scratch.path + "/more"]] {
      let failed = try beta.start(words).finish()
      #expect(
        failed.code == 4 && failed.err.contains("2/large") && failed.err.contains("start the daemon"),
        "\(failed.err)")
      #expect(words != ["dump"] || failed.lines.count == 3, "\(failed.text.count)")
      let strict = try beta.start(words + ["--strict"]).finish()
      #expect(strict.code == 4 && strict.err.contains("2/large"), "\(strict.err)")
    }
    #expect(try beta.scratch.read("more/3/small") == Array("v".utf8))
  }

  @Test("trim evicts large values that a peer holds, and get fetches them again")
  func trim() throws {
    let (alpha, beta, daemon) = try pair()
    for number in 0..<5 as Range<UInt8> {
      try beta.succeed("put", "large\(number)", "-", input: Self.bytes(number))
    }
    let refused = try beta.run("trim", "--max-count", "2")
    #expect(refused.code == 1 && refused.text.contains("5 stayed"))
    try beta.succeed("sync", "alpha")
    let result = try beta.succeed("trim", "--max-count", "2")
    #expect(result.text.contains("3 large values left"))
    #expect(try beta.succeed("status").text.contains("elsewhere  3 left to keep the limits"))
    #expect(
      try beta.succeed("verify").text.contains(
        "3 blobs elsewhere on purpose (3 left to keep the limits): all whole"))
    for number in 0..<5 as Range<UInt8> {
      #expect(try beta.succeed("get", "large\(number)").out == Self.bytes(number))
    }
    // While the daemon runs: it holds the values for beta, and no other member has them.
    let alone = try alpha.run("trim", "--max-count", "0", "--copies", "2")
    #expect(alone.code == 1 && alone.text.contains("too few members"))
    try daemon.end()
  }

  @Test("the daemon's configuration sets policy and limits, and is validated")
  func configuration() throws {
    let scratch = try Scratch()
    let tool = try scratch.store("alpha")
    let path = scratch.path + "/config"
    func check(_ text: String) throws -> Tool.Result {
      try Data(text.utf8).write(to: URL(fileURLWithPath: path))
      return try tool.run("serve", "--check", "--config", path)
    }
    for bad in [
      #"{"blobs": 1}"#, #"{"blobs": {"take": "some"}}"#, #"{"blobs": {"copies": 0}}"#,
      #"{"blobs": {"max_bytes": -1}}"#, #"{"blobs": {"eager_prefixes": [1]}}"#,
      #"{"blobs": {"eager_prefixes": ["a"]}}"#, #"{"blobs": {"keep": 1}}"#,
    ] {
      let result = try check(bad)
      #expect(result.code == 2 && result.err.contains("blobs"), "\(bad)")
    }
    let good = #"{"blobs": {"take": 1000, "eager_prefixes": ["a/"], "max_bytes": 5000000, "copies": 2}}"#
    #expect(try check(good).code == 0)
    let daemon = try tool.start(["serve", "--listen", "127.0.0.1:0", "--config", path])
    _ = daemon.firstLine()
    let shown = try JSONSerialization.jsonObject(with: Data(tool.succeed("policy", "--json").out))
    let settings = try #require(shown as? [String: Any])
    #expect(settings["eager_bytes"] as? Int == 1000 && settings["copies"] as? Int == 2)
    daemon.signal(SIGTERM)
    #expect(daemon.finish().code == 0)
    let usage = try tool.run("policy", "sometimes")
    #expect(usage.code == 2 && usage.err.contains("eager, lazy"))
  }
}
