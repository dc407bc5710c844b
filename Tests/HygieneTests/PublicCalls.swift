/// The public calls of the libraries, parsed from their sources; relies on the formatting of swift-format.
struct PublicCall: Hashable {
  /// The type that declares it.
  let type: String
  /// `put(_:_:type:)`, or the name of a property.
  let name: String
  /// Whether it is `async`.
  let isAsync: Bool
  /// Whether it throws.
  let canFail: Bool
  /// A function, an initializer, or a property whose getter is `throws` or `async`: it may do more than
  /// return a stored value.
  let isCall: Bool
  /// Whether it is `noasync`.
  let isBarred: Bool
  /// Its doc comment, in one line.
  let comment: String

  /// All public calls of the libraries.
  static func all() throws -> [PublicCall] {
    var calls: [PublicCall] = []
    for path in Repository.swiftFiles where path.hasPrefix("Sources/") && !path.hasPrefix("Sources/sync-cli/")
    {
      let lines = try Repository.lines(path).map(String.init)
      var type: String?
      var attributes = ""
      for (index, line) in lines.enumerated() {
        // Skip most lines early: regular expressions are slow.
        guard !line.hasPrefix("   "), !line.hasPrefix("  /") else { continue }
        if !line.hasPrefix(" "), !line.hasPrefix("/"),
          let found = line.prefixMatch(
            of:
              /(@\S+ )*(public |package |fileprivate |private )?(final |indirect )*(extension|class|struct|enum|protocol|actor) (\w+)/
          )
        {
          type = String(found.5)
        } else if line == "}" {
          type = nil
        } else if line.hasPrefix("  @") {
          attributes += line
        }
        if let type, line.hasPrefix("  "), line.utf8.count > 12,
          let call = call(of: type, at: index, in: lines, attributes)
        {
          calls.append(call)
        }
        if !line.hasPrefix("  @") { attributes = "" }
      }
    }
    return calls
  }

  private static func call(
    of type: String, at index: Int, in lines: [String], _ attributes: String
  ) -> PublicCall? {
    guard lines[index].dropFirst(2).hasPrefix("public ") || lines[index].hasPrefix("  @"),
      let found = lines[index].prefixMatch(
        of: /\ \ (@\S+ )*public (static |mutating |convenience |consuming )*(func (\w+)|(init)|var (\w+))/)
    else { return nil }
    let isBarred = (attributes + lines[index]).contains("noasync")
    let comment = comment(above: index, in: lines)
    // Longer than any declaration.
    let text = lines[index..<min(index + 12, lines.count)].joined(separator: "\n")
    if let name = found.6 {
      let getter = text.prefix { $0 != "}" }
      return PublicCall(
        type: type, name: String(name), isAsync: getter.contains("get async"),
        canFail: getter.contains("throws"),
        isCall: getter.contains("get throws") || getter.contains("get async"), isBarred: isBarred,
        comment: comment)
    }
    guard let open = text.firstIndex(of: "(") else { return nil }
    var (labels, depth, begins, place) = ("", 0, false, open)
    var last: Character = " "
    parameters: while place < text.endIndex {
      let character = text[place]
      switch character {
      case "(", "[", "<", "{":
        depth += 1
        begins = depth == 1
      case ">" where last == "-": break
      case ")", "]", ">", "}":
        depth -= 1
        if depth == 0 { break parameters }
      case "," where depth == 1: begins = true
      case _ where depth == 1 && begins && !character.isWhitespace:
        labels += text[place...].prefix { $0.isLetter || $0.isNumber || $0 == "_" } + ":"
        begins = false
      default: break
      }
      last = character
      place = text.index(after: place)
    }
    let behind = text[place...].prefix { $0 != "{" }
    return PublicCall(
      type: type, name: "\(found.4 ?? found.5 ?? "")(\(labels))", isAsync: behind.contains(" async"),
      canFail: behind.contains(" throws"),
      isCall: true, isBarred: isBarred, comment: comment)
  }

  /// The doc comment above a declaration; attributes may come between them.
  private static func comment(above index: Int, in lines: [String]) -> String {
    var before = index - 1
    while before >= 0, lines[before].hasPrefix("  @") { before -= 1 }
    var comment: [Substring] = []
    while before >= 0, lines[before].hasPrefix("  ///") {
      comment.append(lines[before].dropFirst(5).drop { $0 == " " })
      before -= 1
    }
    return comment.reversed().joined(separator: " ")
  }

  /// Whether the comment documents the errors: a code, `- Throws:`, or a reference to another call ("as
  /// `Store.put`").
  var saysErrors: Bool {
    comment.contains("- Throws: ") || comment.contains(/`\.[a-z]/)
      || comment.contains(/\b([Aa]s|[Ss]ee) (`|the same)/)
      || comment.contains(/^(`[A-Z]\w+\.\w+|The same)/)
  }
}
