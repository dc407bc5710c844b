import Foundation
import SyncTestSupport
import Testing

/// Checks that files, commands and links named in the documents exist.
@Suite struct DocumentTests {
  /// Files that every clone must have.
  @Test(
    "the files that newcomers look for exist",
    arguments: [
      "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile",
      ".ci/run",
      "docs/architecture.md", "docs/operations.md", "docs/faults.txt", "schemas/journal.md",
      "schemas/wire.md", "schemas/blobs.md",
      "schemas/catalogue.sql", "schemas/values.md", "schemas/config.md", "schemas/config.schema.json",
      "schemas/backup.md",
      "scripts/demo.sh",
      "scripts/acceptance.sh", "Examples/Package.swift", "Sources/SyncStore/SyncStore.docc/SyncStore.md",
    ])
  func present(path: String) {
    #expect(Repository.isFile(path))
  }

  @Test("the licence is Apache 2.0, complete")
  func licence() throws {
    let text = try Repository.read("LICENSE")
    #expect(text.contains("Apache License\n                           Version 2.0, January 2004"))
    #expect(text.contains("END OF TERMS AND CONDITIONS"))
  }

  @Test(
    "scripts are executable",
    arguments: [
      ".ci/run", "scripts/deps.sh", "scripts/demo.sh", "scripts/acceptance.sh", "scripts/sizing.sh",
      "scripts/faults.sh",
      "scripts/docs.sh", "scripts/api.sh", "scripts/examples.sh", "scripts/single-page.py",
      "scripts/link-page.py",
    ])
  func executable(path: String) {
    #expect(FileManager.default.isExecutableFile(atPath: Repository.top + "/" + path))
  }

  @Test(
    "each make target that a document names exists",
    arguments: Repository.documents + ["docs/architecture.md"])
  func targets(path: String) throws {
    let makefile = try Repository.read("Makefile")
    for match in try Repository.read(path).matches(of: /`?\bmake ([a-z-]+)/) where match.0.hasPrefix("`") {
      #expect(makefile.contains("\n\(match.1):"), "\(path) names \"\(match.0)\"")
    }
  }

  @Test(
    "each command that a document names exists", arguments: Repository.documents + ["docs/architecture.md"])
  func commands(path: String) throws {
    let known = try commandNames()
    for match in try Repository.read(path).matches(of: /sync-cli( --store \w+)? ([a-z]+)/) {
      #expect(known.contains(String(match.2)) || match.2 == "help", "\(path) names \"\(match.0)\"")
    }
  }

  @Test("the change log lists each command")
  func changes() throws {
    let text = try Repository.read("CHANGELOG.md")
    for name in try commandNames() { #expect(text.contains(name), "\(name)") }
  }

  /// The first words of all commands of the program.
  private func commandNames() throws -> Set<String> {
    let sources = Repository.files(in: "Sources/sync-cli", ending: ".swift")
    var names: Set<String> = []
    for path in sources {
      for match in try Repository.read(path).matches(of: /= [Cc]ommand\(\s*"([a-z]+)/) {
        names.insert(String(match.1))
      }
    }
    #expect(names.count > 15)
    return names
  }

  @Test("links between documents lead somewhere")
  func links() throws {
    for path in Repository.texts where path.hasSuffix(".md") {
      let folder = (path as NSString).deletingLastPathComponent
      for match in try Repository.read(path).matches(of: /\]\(([^)#:]+)\)/) {
        let target = Repository.top + "/" + (folder.isEmpty ? "" : folder + "/") + match.1
        #expect(FileManager.default.fileExists(atPath: target), "\(path) links to \(match.1)")
      }
    }
  }

  @Test("each fault has a unique number, and each number in a test is listed")
  func faults() throws {
    let numbers = try Repository.lines("docs/faults.txt").compactMap {
      $0.prefixMatch(of: /F\d+/).map { String($0.0) }
    }
    #expect(Set(numbers).count == numbers.count)
    #expect(numbers.count > 95)
    for path in Repository.files(in: "Tests", ending: ".swift") {
      for match in try Repository.read(path).matches(of: /\bF\d{1,3}\b/) {
        #expect(numbers.contains(String(match.0)), "\(path) names \(match.0)")
      }
    }
  }

  @Test("each fault is in the name of a test")
  func provenFaults() throws {
    let result = try ChildProcess.run([Repository.top + "/scripts/faults.sh", "--missing"])
    #expect(result.code == 0, "\(result.text)")
  }

  @Test("golden vectors are valid JSON")
  func vectors() throws {
    let files = Repository.files(in: "schemas/vectors", ending: ".json")
    #expect(!files.isEmpty)
    for path in files {
      let data = try Data(contentsOf: URL(fileURLWithPath: Repository.top + "/" + path))
      #expect(throws: Never.self, "\(path)") { try JSONSerialization.jsonObject(with: data) }
    }
  }
}
