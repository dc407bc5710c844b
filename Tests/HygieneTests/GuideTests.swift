import Foundation
import SyncTestSupport
import Testing

/// Checks that the code in the documents is compiled and run by the target `SnippetTests`.
@Suite struct GuideTests {
  static let catalogues = ["SyncStore", "SyncStoreFoundation", "Replication", "ObjectStorageS3"].map {
    "Sources/\($0)/\($0).docc"
  }
  static let pages = catalogues.flatMap { Repository.files(in: $0, ending: ".md") } + ["README.md"]
  static let programs = catalogues.flatMap { Repository.files(in: $0, ending: ".swift") }

  /// Swift code in fences; manifests are tested separately.
  private static func blocks(of page: String) throws -> [String] {
    try Repository.read(page).matches(of: /```swift\n([\s\S]*?)```/).map { String($0.1) }
  }

  private static func isManifest(_ code: String) -> Bool { code.hasPrefix("// swift-tools-version") }

  /// The compiled snippets: code between `// snippet` and `// end`.
  private static func tested() throws -> Set<String> {
    var found: Set<String> = []
    for path in Repository.files(in: "Tests/SnippetTests", ending: ".swift") {
      for match in try Repository.read(path).matches(of: /\/\/ snippet\n([\s\S]*?)\/\/ end/) {
        found.insert(normal(String(match.1)))
      }
    }
    return found
  }

  /// Normalizes code: without line breaks, imports and the paths of stores.
  private static func normal(_ code: String) -> String {
    code.split(separator: "\n").filter { !$0.hasPrefix("import ") && $0 != "@main" }
      .flatMap { $0.split(separator: " ") }.joined(separator: " ")
      .replacingOccurrences(of: "here + ", with: "")
  }

  @Test("each Swift block of a page is tested", arguments: GuideTests.pages)
  func blocksAreTested(page: String) throws {
    let tested = try Self.tested()
    for block in try Self.blocks(of: page) where !Self.isManifest(block) {
      #expect(tested.contains(Self.normal(block)), "\(page): not in Tests/SnippetTests:\n\(block)")
    }
  }

  @Test("each program of a tutorial is tested")
  func tutorials() throws {
    let tested = try Self.tested()
    #expect(Self.programs.count > 5)
    for path in Self.programs {
      let code = try Repository.read(path)
      guard !Self.isManifest(code) else { continue }
      #expect(tested.contains(Self.normal(code)), "\(path) is not in Tests/SnippetTests")
    }
  }

  @Test("each tested snippet is in a document")
  func leftOver() throws {
    let shown = try Set(
      Self.pages.flatMap(Self.blocks).map(Self.normal)
        + Self.programs.map { Self.normal(try Repository.read($0)) })
    for snippet in try Self.tested() {
      #expect(shown.contains(snippet), "in no document: \(snippet.prefix(80))")
    }
  }

  @Test("the manifests of the documents resolve next to a clone")
  func manifests() throws {
    let codes = try (Self.pages.flatMap(Self.blocks) + Self.programs.map(Repository.read)).filter(
      Self.isManifest)
    #expect(codes.count == 2)
    let folder = NSTemporaryDirectory() + "sync-store-manifest-" + UUID().uuidString
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try FileManager.default.createSymbolicLink(
      atPath: folder + "/sync-store", withDestinationPath: Repository.top)
    for (number, code) in codes.enumerated() {
      let package = folder + "/package-\(number)"
      let name = try #require(code.firstMatch(of: /name: "(\w+)"/)).1
      try FileManager.default.createDirectory(
        atPath: package + "/Sources/\(name)", withIntermediateDirectories: true)
      try Data(code.utf8).write(to: URL(fileURLWithPath: package + "/Package.swift"))
      try Data("print(1)\n".utf8).write(
        to: URL(fileURLWithPath: package + "/Sources/\(name)/main.swift"))
      let result = try ChildProcess.run(
        ["/usr/bin/env", "swift", "package", "--package-path", package, "show-dependencies"])
      #expect(result.code == 0, "\(code)\n\(result.text)")
    }
  }

  @Test(
    "the landing page of a library names all of its types",
    arguments: ["SyncStore", "Replication", "ObjectStorageS3"])
  func landing(module: String) throws {
    let page = try Repository.read("Sources/\(module)/\(module).docc/\(module).md")
    var count = 0
    for path in Repository.files(in: "Sources/\(module)", ending: ".swift") where !path.contains(".docc/") {
      for match in try Repository.read(path)
        .matches(of: /(?:^|\n)public (?:final )?(?:struct|class|enum|protocol) (\w+)/)
      {
        count += 1
        #expect(page.contains("- ``\(match.1)``"), "\(module).md does not name \(match.1)")
      }
    }
    #expect(count > 3)
  }
}
