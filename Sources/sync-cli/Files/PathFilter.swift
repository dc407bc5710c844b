/// Which entries of a directory tree are excluded, by patterns like those of .gitignore.
///
/// A pattern without a slash, except one at its end, matches the name of an entry anywhere; one with a slash
/// matches the path below the directory. A slash at the end restricts it to directories. What lies below an
/// excluded directory is excluded.
struct PathFilter: Sendable {
  private struct Rule: Sendable {
    let glob: Glob
    let matchesPath: Bool
    let onlyDirectories: Bool
  }

  private static let slash = UInt8(ascii: "/")
  private let rules: [Rule]

  /// Excludes nothing.
  init() { rules = [] }

  init(_ patterns: [[UInt8]]) throws(Reason) {
    var rules: [Rule] = []
    for pattern in patterns {
      var rest = pattern[...]
      let onlyDirectories = rest.last == Self.slash
      while rest.last == Self.slash { rest.removeLast() }
      let matchesPath = rest.contains(Self.slash)
      if rest.first == Self.slash { rest.removeFirst() }
      guard !rest.isEmpty else { throw Reason("it names nothing below the directory") }
      rules.append(
        Rule(glob: try Glob(Array(rest)), matchesPath: matchesPath, onlyDirectories: onlyDirectories))
    }
    self.rules = rules
  }

  /// Whether the entry at `path` is excluded itself.
  func excludes(_ path: [UInt8], isDirectory: Bool) -> Bool {
    rules.contains { rule in
      guard isDirectory || !rule.onlyDirectories else { return false }
      if rule.matchesPath { return rule.glob.matches(path) }
      return rule.glob.matches(Array(path[(path.lastIndex(of: Self.slash).map { $0 + 1 } ?? 0)...]))
    }
  }

  /// Whether a file at `path` is excluded, or a directory that it lies in.
  func excludesFile(_ path: [UInt8]) -> Bool {
    guard !rules.isEmpty else { return false }
    return excludes(path, isDirectory: false)
      || path.indices.contains { path[$0] == Self.slash && excludes(Array(path[..<$0]), isDirectory: true) }
  }
}
