import Foundation
import Testing

/// Checks that the names in the documents on rules, terms and decisions exist.
@Suite struct RuleTests {
  /// The rules that `docs/rules.md` explains, in its order.
  private static func rules() throws -> [String] {
    try Repository.read("docs/rules.md").matches(of: #/(?m)^### ([A-Z][0-9]+)\. /#).map { String($0.1) }
  }

  @Test("each cited rule is explained, with the tests that prove it")
  func cited() throws {
    let rules = try Self.rules()
    #expect(rules == (1...10).map { "R\($0)" } + (1...12).map { "L\($0)" })
    let texts = Repository.texts.filter { !$0.hasSuffix(".svg") }
    let others = try Repository.matches(
      #"\b(R(0|1[1-9]|[2-9][0-9])|L(0|1[3-9]|[2-9][0-9]))\b"#, in: texts)
    #expect(others.isEmpty, "cited, but not in docs/rules.md: \(others)")
    let text = try Repository.read("docs/rules.md")
    for part in ["Why", "Without it", "Tests"] {
      #expect(text.components(separatedBy: "\n- **\(part):**").count == rules.count + 1, "\(part)")
    }
  }

  @Test("each switch of the relay's model that the rules name exists")
  func switches() throws {
    let model = try Repository.read("Tests/SimulationTests/Model/ModelRelayRules.swift")
    let switches = Set(model.matches(of: #/name: "([a-z-]+)"/#).map { $0.1 })
    #expect(switches.count > 10)
    let relay = try #require(
      try Repository.read("docs/rules.md").components(separatedBy: "\n## Relays\n").last)
    let named = Set(relay.matches(of: #/`([a-z]+(?:-[a-z]+)*)`/#).map { $0.1 })
    #expect(named == switches)
  }

  @Test("each suite that the rules name exists")
  func suites() throws {
    let tests = try Repository.swiftFiles.filter { $0.hasPrefix("Tests/") }.map(Repository.read)
    let named = Set(try Repository.read("docs/rules.md").matches(of: #/`([A-Za-z]+Tests)`/#).map { $0.1 })
    #expect(named.count > 30)
    for suite in named {
      let isThere = tests.contains { $0.contains("struct \(suite) ") || $0.contains("final class \(suite) ") }
      #expect(isThere, "docs/rules.md names \(suite), which does not exist")
    }
  }

  @Test("each type that the glossary names exists")
  func terms() throws {
    let sources = Repository.swiftFiles.filter { $0.hasPrefix("Sources/") }
    let text = try sources.map(Repository.read).joined(separator: "\n")
    let types = Set(
      ["struct ", "class ", "enum ", "typealias ", "protocol "].flatMap { kind in
        text.components(separatedBy: kind).map { String($0.prefix { $0.isLetter || $0.isNumber }) }
      })
    let rows = try Repository.read("docs/glossary.md").split(separator: "\n").filter { $0.hasPrefix("| ") }
    #expect(rows.count > 60)
    for row in rows {
      for match in row.matches(of: #/`([A-Z][A-Za-z]+)(\.[a-zA-Z(:)]+)?`/#) where match.2 != ".swift" {
        let isThere = types.contains(String(match.1))
        #expect(isThere, "docs/glossary.md names \(match.1), which does not exist")
      }
      for match in row.matches(of: #/`([A-Za-z\/+]+\.swift)`/#) {
        #expect(sources.contains { $0.hasSuffix("/" + match.1) }, "docs/glossary.md names \(match.1)")
      }
    }
  }

  @Test("each decision has its line in the index")
  func decisions() throws {
    let index = try Repository.read("docs/decisions/README.md")
    let linked = Set(index.matches(of: #/\(([0-9]{4}-[a-z0-9-]+\.md)\)/#).map { String($0.1) })
    let there = try FileManager.default.contentsOfDirectory(atPath: Repository.top + "/docs/decisions")
      .filter { $0 != "README.md" }
    #expect(linked == Set(there))
  }
}
