import Testing

/// Bounds on the number of stored properties of a type.
@Suite struct PropertyTests {
  /// Bounds of types that are not bound by `most`.
  private static let bounds = ["Store": 12, "Engine": 20]
  private static let most = 15

  /// The number of stored properties of each class, struct and actor in a source, by its name.
  ///
  /// Relies on the formatter: a declaration begins its line, and members are indented by two columns more.
  private static func counts(_ path: String) throws -> [String: Int] {
    let type =
      #/^(?<indent> *)(?:[\w@()]+ )*(?<kind>class|struct|actor|enum|extension|protocol) (?<name>[A-Z]\w*)/#
    let property = #/^(?<indent> *)(?:[\w@()]+ )*(?<kind>let|var) (?<rest>\w.*)/#
    let lines = try Repository.lines(path).map { String($0).replacing(#/\/\/.*/#, with: "") }
    var open: [(name: String, indent: Int, counts: Bool)] = []
    var counts: [String: Int] = [:]
    for (number, line) in lines.enumerated() {
      let indent = line.prefix { $0 == " " }.count
      guard indent < line.count else { continue }
      while let last = open.last, indent <= last.indent, line.prefixMatch(of: #/ *[})\]{]/#) == nil {
        open.removeLast()
      }
      if let found = line.prefixMatch(of: type), !line.contains("func ") {
        let holdsState = ["class", "struct", "actor"].contains(found.kind)
        open.append((String(found.name), indent, holdsState))
        continue
      }
      guard let owner = open.last, owner.counts, indent == owner.indent + 2, !line.contains(" static "),
        !line.hasPrefix(String(repeating: " ", count: indent) + "static "),
        let found = line.prefixMatch(of: property)
      else { continue }
      let next = number + 1 < lines.count ? lines[number + 1] : ""
      if found.kind == "var", isComputed(String(found.rest), next) { continue }
      let several = found.rest.firstMatch(of: #/^\w+(, \w+)+: /#).map { $0.0.count { $0 == "," } } ?? 0
      counts[owner.name, default: 0] += 1 + several
    }
    return counts
  }

  /// Whether a variable has a body that computes it, rather than observers or an initial value.
  private static func isComputed(_ declaration: String, _ next: String) -> Bool {
    guard let brace = declaration.firstIndex(of: "{") else { return false }
    if declaration[..<brace].contains("=") { return false }
    let body = declaration[declaration.index(after: brace)...] + next
    return !body.contains("didSet") && !body.contains("willSet")
  }

  @Test("a type has at most 15 stored properties")
  func number() throws {
    var found = 0
    for path in Repository.files(in: "Sources", ending: ".swift") where !path.contains(".docc/") {
      for (name, count) in try Self.counts(path) {
        found += count
        let most = Self.bounds[name] ?? Self.most
        #expect(
          count <= most, "\(path): \(name) has \(count) stored properties: give some a type of their own")
      }
    }
    #expect(found > 1000, "the sources are no longer read as intended")
  }
}
