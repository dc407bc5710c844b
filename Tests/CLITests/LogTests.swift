import Foundation
import Testing

/// `log` in both directions, on a terminal, and as records are written.
@Suite struct LogTests {
  private static func filled(_ scratch: Scratch) throws -> Tool {
    let tool = try scratch.store()
    let lines = (1...25).map { "{\"key\":\"k\($0)\",\"value\":\"v\"}\n" }
    try tool.succeed("load", "-", "--quiet", input: Array(lines.joined().utf8))
    return tool
  }

  /// The keys of the lines of a log.
  private static func keys(_ text: String) -> [String] {
    text.split { $0 == "\n" || $0 == "\r\n" }.compactMap { line in
      line.split(separator: " ").first { $0.first == "k" }.map(String.init)
    }
  }

  @Test("--reverse shows the newest first, from the end or a position, up to a limit")
  func reverse() throws {
    let tool = try Self.filled(Scratch())
    let forwards = try tool.succeed("log").lines
    #expect(try tool.succeed("log", "--reverse").lines == forwards.reversed())
    #expect(try Self.keys(tool.succeed("log", "--reverse", "--limit", "2").text) == ["k25", "k24"])
    let position = try #require(forwards.dropLast(2).last?.split(separator: " ").first.map(String.init))
    #expect(
      try Self.keys(tool.succeed("log", "--reverse", "--from", position, "--limit", "1").text) == ["k23"])
    #expect(try tool.run("log", "--reverse", "--follow").code == 2)
  }

  @Test("a terminal gets the last ten, unless it is told from where or how many")
  func terminal() throws {
    let scratch = try Scratch()
    _ = try Self.filled(scratch)
    let result = try scratch.shell(
      """
      export SYNC_STORE=store SHELL=/bin/sh
      for options in '' '--reverse' '--limit 3' '--from 0'; do
        script -qec "$CLI log $options" /dev/null < /dev/null; echo end
      done
      """)
    let parts = result.out.components(separatedBy: "end\n").map(Self.keys)
    #expect(parts[0] == (16...25).map { "k\($0)" } && parts[1] == parts[0].reversed(), "\(result.out)")
    #expect(parts[2] == ["k1", "k2"] && parts[3].count == 25)
    #expect(try Self.keys(scratch.tool().succeed("log").text).count == 25)
  }

  @Test("--follow shows what another process writes, and a signal ends it with 0", .timeLimit(.minutes(1)))
  func follow() throws {
    let tool = try Self.filled(Scratch())
    let running = try tool.start(["log", "--follow", "--json", "--from", "1"])
    _ = running.firstLine()
    try tool.succeed("put", "later", "v")
    while running.isRunning, !String(decoding: running.out, as: UTF8.self).contains(#""key":"later""#) {
      Thread.sleep(forTimeInterval: 0.02)
    }
    running.signal(SIGINT)
    let result = running.finish()
    #expect(result.code == 0 && result.lines.count == 27 && result.err.isEmpty, "\(result.err)")
  }

  @Test("--follow ends after its limit, and with the reader of its pipe", .timeLimit(.minutes(1)))
  func followEnds() throws {
    let scratch = try Scratch()
    _ = try Self.filled(scratch)
    let result = try scratch.shell(
      """
      export SYNC_STORE=store
      ($CLI log --follow --from 24 --limit 4 > log; echo $? >> log) &
      until [ -s log ]; do sleep 0.02; done
      $CLI put k26 v; $CLI put k27 v; wait; cat log
      $CLI log --follow | head -n 1 > first; echo ${PIPESTATUS[0]}
      """)
    #expect(result.out.hasSuffix("\n0\n141\n"), "\(result.out)")
    #expect(Self.keys(result.out).last == "k27" || Self.keys(result.out).count == 4, "\(result.out)")
  }
}
