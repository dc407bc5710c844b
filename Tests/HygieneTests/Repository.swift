import Foundation
import SyncTestSupport

/// The files of the repository in the working tree.
enum Repository {
  /// The top directory.
  static let top = Checkout.top

  /// Paths of all files below `folder` with that ending, relative to the top, sorted. Build products are left
  /// out.
  static func files(in folder: String, ending: String = "") -> [String] {
    guard let walk = FileManager.default.enumerator(atPath: top + "/" + folder) else { return [] }
    return walk.compactMap { $0 as? String }
      .filter {
        !$0.hasPrefix(".build/") && !$0.contains("/.build/") && $0.hasSuffix(ending)
          && isFile(folder + "/" + $0)
      }
      .map { folder + "/" + $0 }.sorted()
  }

  /// All Swift files.
  static let swiftFiles = ["Sources", "Tests", "Benchmarks", "Fuzz", "Examples"].flatMap {
    files(in: $0, ending: ".swift")
  }

  /// All text files; the inputs of the fuzzers are binary.
  static let texts: [String] =
    ["Sources", "Tests", "Benchmarks", "Fuzz", "Examples", "scripts", "docs", "schemas", "packaging", ".ci"]
    .flatMap {
      files(in: $0)
    }
    .filter { !$0.hasPrefix("Fuzz/Corpus/") }
    + ["Makefile", "Package.swift", ".gitignore", ".swift-format"] + documents

  /// The documents in the top directory.
  static let documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "NOTICE"]

  static func isFile(_ path: String) -> Bool {
    let attributes = try? FileManager.default.attributesOfItem(atPath: top + "/" + path)
    return attributes?[.type] as? FileAttributeType == .typeRegular
  }

  static func read(_ path: String) throws -> String {
    try String(contentsOfFile: top + "/" + path, encoding: .utf8)
  }

  static func lines(_ path: String) throws -> [Substring] {
    try read(path).split(separator: "\n", omittingEmptySubsequences: false)
  }

  /// `path:line: text` of each line that the pattern matches, a Perl-compatible regular expression.
  ///
  /// Runs `grep`: `Regex` takes minutes for all lines of the repository in a debug build.
  static func matches(_ pattern: String, in paths: [String]) throws -> [String] {
    let (process, pipe) = (Process(), Pipe())
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["LC_ALL=C.UTF-8", "grep", "-anHP", "-e", pattern, "--"] + paths
    process.currentDirectoryURL = URL(filePath: top)
    process.standardOutput = pipe
    try process.run()
    let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    guard process.terminationStatus < 2 else { throw Unreadable(pattern: pattern) }
    return output.split(separator: "\n").map { line in
      let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      return "\(parts[0]):\(parts[1]): \(parts[2].prefix(100))"
    }
  }

  /// `grep` could not read the pattern or a file; its message is on standard error.
  struct Unreadable: Error { let pattern: String }
}
