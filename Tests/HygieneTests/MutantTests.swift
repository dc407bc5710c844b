import Foundation
import Testing

/// Checks the faults that the mutation check plants, since its long run does not happen every day.
@Suite("Mutants")
struct MutantTests {
  @Test("each mutant applies at one place in the sources, and names existing suites that must fail")
  func apply() throws {
    let mutants = Repository.texts.filter { $0.hasPrefix("scripts/mutants/") && $0.hasSuffix(".mutant") }
    #expect(mutants.count > 50)
    // A test filter matches the name of a file or of a type.
    let files = Repository.swiftFiles.filter { $0.hasPrefix("Tests/") }
    let tests = Data(try files.map(Repository.read).joined().utf8)
    for path in mutants {
      let text = try Repository.read(path)
      let form = try #/what: [^\n]+\nfile: ([^\n]+)\ntests: ([^\n]+)\nfind:\n((?s).*?)\nput:\n((?s).*?)\n?/#
        .wholeMatch(in: text)
      let (_, source, suites, found, put) = try #require(form?.output, "\(path)")
      let places = try Repository.read(String(source)).split(
        separator: found, omittingEmptySubsequences: false)
      #expect(places.count == 2, "\(path): what it looks for is \(places.count - 1) times in \(source)")
      #expect(put.contains("MUTANT"), "\(path)")
      for suite in suites.split(separator: "|") {
        let isThere =
          files.contains { $0.hasSuffix("/\(suite).swift") }
          || tests.range(of: Data("struct \(suite)".utf8)) != nil
        #expect(isThere, "\(path): there is no suite \(suite)")
      }
    }
  }
}
