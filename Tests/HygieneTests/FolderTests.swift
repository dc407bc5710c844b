import Testing

/// The walls between the folders of `SyncStore`, until each is a target that the compiler holds apart.
///
/// An edge from one folder to another exists if a file of the first names a type that the second declares.
@Suite struct FolderTests {
  /// The folders, from the bottom to the top: each may use those before it.
  private static let folders = [
    "Core", "Platform", "Crypto", "Merge", "Engine/Journal", "Engine/Index", "Engine/Compaction", "Blobs",
    "Engine/State", "Store", "Cache", "Backup", "Migration",
  ]

  /// The number of edges. It may only shrink.
  private static let mostEdges = 54

  private struct Source {
    let path, folder: String
    /// Types declared at the top level, except private ones.
    var declared: Set<String> = []
    /// Types declared anywhere in it, and generic parameters: these names do not mean those of other folders.
    var local: Set<String> = []
    /// Capitalised words outside of comments and strings.
    var named: Set<String> = []
  }

  /// A source without its comments and strings.
  private static func code(_ path: String) throws -> String {
    try Repository.lines(path).map { line in
      String(line).replacing(#/"(\\.|[^"\\])*"/#, with: "").replacing(#/\/\/.*/#, with: "")
    }.joined(separator: "\n")
  }

  private static func read(_ path: String) throws -> Source? {
    let place = path.dropFirst("Sources/SyncStore/".count)
    guard let folder = folders.first(where: { place.hasPrefix($0 + "/") }) else {
      Issue.record("\(path) is in no folder that this test knows: move it, or extend `folders`")
      return nil
    }
    var source = Source(path: path, folder: folder)
    let code = try code(path)
    let declaration =
      #/^(?<indent> *)(?<prefix>[^"\n]*?)\b(?:class|struct|enum|actor|protocol|typealias) (?<name>[A-Z]\w*)/#
      .anchorsMatchLineEndings()
    for match in code.matches(of: declaration) {
      let name = String(match.name)
      source.local.insert(name)
      if match.indent.isEmpty, !match.prefix.contains("private") { source.declared.insert(name) }
    }
    for match in code.matches(of: #/<([A-Z]\w*)[:>]/#) { source.local.insert(String(match.1)) }
    source.named = Set(code.matches(of: #/\b[A-Z]\w+/#).map { String($0.0) })
    return source
  }

  /// The edges, each as "from > to", with a sentence for each file and type that makes it.
  private static let edges = Result { try findEdges() }

  private static func findEdges() throws -> [String: [String]] {
    let sources = try Repository.files(in: "Sources/SyncStore", ending: ".swift")
      .filter { !$0.contains(".docc/") }.compactMap(read)
    var declaring: [String: Set<String>] = [:]
    for source in sources {
      for name in source.declared { declaring[name, default: []].insert(source.folder) }
    }
    var edges: [String: [String]] = [:]
    for source in sources {
      for name in source.named.subtracting(source.local).sorted() {
        guard let folders = declaring[name], !folders.contains(source.folder) else { continue }
        for folder in folders {
          edges["\(source.folder) > \(folder)", default: []].append("\(source.path) names \(name)")
        }
      }
    }
    return edges
  }

  private static func leadsUp(_ edge: String) -> Bool {
    let ends = edge.split(separator: " > ").map { end in folders.firstIndex { $0 == end } ?? folders.count }
    return ends[0] < ends[1]
  }

  @Test("folders use only folders below them")
  func upwards() throws {
    let edges = try Self.edges.get()
    for (edge, users) in edges where Self.leadsUp(edge) {
      Issue.record("\(edge) leads upwards: \(users.joined(separator: ", "))")
    }
  }

  @Test("the number of edges between folders only shrinks")
  func number() throws {
    let edges = try Self.edges.get()
    #expect(edges.count <= Self.mostEdges, "\(edges.keys.sorted())")
    #expect(edges.count >= Self.mostEdges, "fewer edges: lower `mostEdges` to \(edges.count)")
  }

  @Test("the table of the architecture says which folder uses which")
  func table() throws {
    let edges = try Self.edges.get()
    let rows = try Repository.lines("docs/architecture.md").compactMap { line in
      try #/\| `(?<folder>[^`]+)` \| [^|]+ \| (?<uses>[^|]+) \|/#.wholeMatch(in: line)
    }.filter { Self.folders.contains(String($0.folder)) }
    #expect(rows.map { String($0.folder) } == Self.folders)
    for row in rows {
      let used = Self.folders.filter { edges["\(row.folder) > \($0)"] != nil }.map { "`\($0)`" }
      let wanted = used.isEmpty ? "nothing" : used.joined(separator: ", ")
      #expect(row.uses == wanted, "docs/architecture.md: \(row.folder) uses \(wanted)")
    }
  }
}
