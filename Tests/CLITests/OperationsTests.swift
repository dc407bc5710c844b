import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// The guide for operators: its commands are run in order, as a reader would.
@Suite("guide for operators", .timeLimit(.minutes(Patience.minutes(3)))) struct OperationsTests {
  private static let page = "docs/operations.md"

  /// A fenced block: `sh`, followed by how it is run.
  private struct Block {
    enum Way: String { case foreground = "", background, fails, root }
    let way: Way
    let lines: String
  }

  private static func text() throws -> String {
    try String(contentsOf: Checkout.url(page), encoding: .utf8)
  }

  private static func blocks() throws -> [Block] {
    try text().matches(of: /```sh ?([a-z]*)\n([\s\S]*?)```/).map { match in
      Block(way: try #require(Block.Way(rawValue: String(match.1)), "\(match.0)"), lines: String(match.2))
    }
  }

  @Test("the commands of the guide work in their order")
  func commands() throws {
    let scratch = try Scratch()
    let blocks = try Self.blocks()
    #expect(blocks.count > 15)
    var script = """
      set -eu -o pipefail; mkdir bin; ln -s "$CLI" bin/sync-cli; export PATH=$PWD/bin:$PATH HOME=$PWD

      """
    // Namespaces need the rights of the superuser, and a kernel that grants them.
    let hasNamespaces = try scratch.shell("unshare --pid --fork --mount-proc true").code == 0
    for block in blocks {
      script += "echo \(Self.quoted("== " + (block.lines.split(separator: "\n").first ?? "")))\n"
      switch block.way {
      case .foreground: script += block.lines
      case .root: script += hasNamespaces ? block.lines : ""
      case .fails: script += "if { \(block.lines)}; then exit 99; fi\n"
      case .background:
        // The port of the guide may be in use, and the others need to know the one that was chosen.
        script += """
          \(block.lines.dropLast()) > daemon.out 2> daemon.err &
          server=$!
          trap 'kill $server; wait $server || true' EXIT
          for try in $(seq 600); do grep -q 'listening on' daemon.out && break; sleep 0.05; done

          """
      }
    }
    let result = try scratch.shell(script.replacing("127.0.0.1:7420", with: "127.0.0.1:0"))
    #expect(result.code == 0, "\(result.out)")
    for words in [
      "joined hub as edge", "3 apples", "all whole", "ok\n", "bundle/status.json", "segments.json  ",
    ] { #expect(result.out.contains(words), "\(words): \(result.out)") }
    let report = try scratch.shell("tar -xzOf report.tar.gz | grep -aE 'apples|greeting|plums' | wc -l")
    #expect(report.out == "0\n", "\(report.out)")
  }

  private static func quoted(_ text: String) -> String { "'" + text.replacing("'", with: "'\\''") + "'" }

  @Test("each command and option that the guide names exists")
  func names() throws {
    let parser = ArgumentParser(
      commands: Program.commands, globals: Help.globals, hidden: [], alone: ["conflicts": "conflicts list"])
    var count = 0
    for match in try Self.text().matches(of: /sync-cli ([a-z-][^`\n|>)"']*)/) {
      let words = match.1.split(separator: " ").map { Argument(String($0)) }
      do { _ = try parser.parse(words) } catch {
        #expect(Failure(error).message.contains("is missing"), "\(match.0): \(Failure(error).message)")
      }
      count += 1
    }
    #expect(count > 40)
  }

  @Test("each section that the guide leads to is in it")
  func sections() throws {
    let text = try Self.text()
    let titles = Set(
      text.matches(of: /\n##+ (.+)/).map {
        $0.1.lowercased().filter { $0.isLetter || $0 == " " }.replacing(" ", with: "-")
      })
    for match in text.matches(of: /\]\(#([^)]+)\)/) {
      #expect(titles.contains(String(match.1)), "\(match.1)")
    }
    for title in ["install", "sizing", "monitoring", "containers", "clock-trouble", "the-disk-is-full"] {
      #expect(titles.contains(title), "\(title)")
    }
  }
}
