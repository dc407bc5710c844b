import Foundation
import Testing

/// Keeps the words of the field in the code: retired names, the register of a literal translation, long lines
/// and signatures that cannot be read at the call. Each message names what to write instead.
@Suite struct WordTests {
  /// Names that were replaced, as whole words in the code, and the term to use.
  private static let retired = [
    "Composer": "TransactionBuilder", "Overlay": "PendingKeys", "PostponedWrites": "WriteBatch",
    "OrdinaryWriter": "FastPathWriter", "PlainBatch": "CompactBatch", "PlainIntake": "PreparedBulkInsert",
    "takePlain": "bulkInsert", "FrozenView": "SnapshotState", "FrozenSegments": "SegmentSnapshot",
    "PublishedView": "EpochProtected", "absorb": "replay or apply", "enrol": "assignSlots",
    "overcomeTrouble": "rebuildIndex", "isInTrouble": "indexIsInvalid", "Doubts": "PossiblyLostKeys",
    "KeyDirectory": "HashIndex", "OrderedView": "SortedKeyIndex", "CurrentPlaces": "LiveRecordBitmap",
    "beginChanges": "beginWrite", "vouch": "appendDurableCheckpoint", "Adoption": "SegmentInstall",
    "CompactionPace": "WriteThrottle", "RoundSurvey": "DeltaScan", "SurveyPart": "DeltaScanTask",
    "OutgoingRound": "DeltaStream", "LackingKeys": "MissingScope", "Widening": "ScopeExpansion",
    "Addressee": "ExpectedReplicaState", "BlobForm": "StoredBlobDescriptor", "EvictionTurn": "EvictionPass",
    "countOnBlob": "retainBlob", "BlobDesk": "BlobFetchCoordinator", "Gatekeeper": "PeerAuthorizer",
    "isErrand": "controlOnly", "shook": "handshakeAdvanced", "HashingBeside": "BackgroundHasher",
    "letGo": "adviseDontNeed", "releaseBeside": "deferRelease", "LocalNotes": "LocalMetadata",
    "Surroundings": "EngineContext", "lasting": "expiration: .after", "DeadlineChange": "Expiration",
  ]

  private static let sources = Repository.swiftFiles.filter { $0.hasPrefix("Sources/") }

  /// The lines of a source that are comments, and those that are not, with their numbers.
  private static func lines(_ path: String, comments: Bool) throws -> [(number: Int, text: Substring)] {
    try Repository.lines(path).enumerated()
      .filter { $0.element.drop { $0 == " " }.hasPrefix("//") == comments }
      .map { ($0.offset + 1, $0.element) }
  }

  @Test("retired names do not come back")
  func names() throws {
    for path in Self.sources {
      for line in try Self.lines(path, comments: false) {
        let words = line.text.split { !$0.isLetter && !$0.isNumber && $0 != "_" }
        for word in words {
          guard let term = Self.retired[String(word)] else { continue }
          Issue.record("\(path):\(line.number): \(word) is called \(term) (docs/glossary.md)")
        }
      }
    }
  }

  @Test(
    "comments are in plain engineering English",
    arguments: [
      (#"\b([Ww]hoever|[Nn]obody|[Ss]omebody)\b"#, "name the thread, process, copy or caller"),
      (#"\bbeside\b"#, "write while, concurrently with, next to"),
      (#"^ *///? What (is|was|has|it|comes|follows)\b"#, "begin with a noun: its meaning, its unit"),
      (#"\blets? go of\b"#, "write release, close, unmap"),
      (#"\bhas it done\b"#, "name the actor and the verb"),
      (#"\bcomes? upon\b"#, "write finds, meets, reads"),
    ])
  func prose(pattern: String, instead: String) throws {
    for match in try Repository.matches(pattern, in: Self.sources) {
      let text = match.split(separator: ":", maxSplits: 2).last?.drop { $0 == " " } ?? ""
      if text.hasPrefix("//") { Issue.record("\(instead): \(match)") }
    }
  }

  @Test("names of tests are in plain engineering English")
  func testNames() throws {
    let name = #/@(?:Test|Suite)\(\s*"((?:[^"\\]|\\.)*)"|func\s+`([^`]*)`/#
    let old = #/\b([Ww]hoever|[Nn]obody|[Ss]omebody|[Ee]verybody|[Bb]eside|[Pp]arted|[Ee]rrand)\b/#
    for path in Repository.swiftFiles where path.hasPrefix("Tests/") {
      for match in try Repository.read(path).matches(of: name) {
        guard let text = match.1 ?? match.2, let word = text.firstMatch(of: old) else { continue }
        Issue.record("\(path): name the thread, process, copy or caller instead of \(word.0): \(text)")
      }
    }
  }

  @Test("comments end at 110 columns")
  func columns() throws {
    for path in Self.sources {
      for line in try Self.lines(path, comments: true) where line.text.count > 110 {
        Issue.record("\(path):\(line.number) has \(line.text.count) columns")
      }
    }
  }

  // MARK: Signatures

  /// Callbacks whose parameters C prescribes.
  private static let unlabelled: Set<String> = [
    "Sources/Replication/TLS/TLSContext.swift select",
    "Sources/SyncStore/Blobs/SQLite+SharedMemory.swift map",
  ]

  private struct Signature {
    let path, name: String
    var labels: [Substring] = []
    var types: [Substring] = []

    /// The greatest number of adjacent parameters without a label.
    var unlabelledRun: Int {
      labels.reduce(into: (run: 0, most: 0)) { state, label in
        state.run = label == "_" ? state.run + 1 : 0
        state.most = max(state.most, state.run)
      }.most
    }

    var flags: Int { types.filter { $0 == "Bool" || $0.hasPrefix("Bool ") }.count }
  }

  /// The functions and initializers that a source declares.
  private static func signatures(_ path: String) throws -> [Signature] {
    let text = try lines(path, comments: false).map(\.text).joined(separator: "\n")
    let declaration =
      #/\b(?:func +([A-Za-z_]\w*)|(?:^|[ ])(init)\??)(?:<[^({]*>)?\(/#.anchorsMatchLineEndings()
    return text.matches(of: declaration).compactMap { match in
      var signature = Signature(path: path, name: String(match.1 ?? "init"))
      for parameter in parameters(text[match.range.upperBound...]) {
        guard let colon = parameter.firstIndex(of: ":") else { return nil }
        let label = parameter[..<colon].split(separator: " ").first { !$0.hasPrefix("@") }
        signature.labels.append(label ?? "_")
        signature.types.append(parameter[colon...].dropFirst().drop { $0 == " " })
      }
      return signature
    }
  }

  /// The parameters of a list that begins after its opening parenthesis.
  private static func parameters(_ text: Substring) -> [Substring] {
    var (depth, start, found, last) = (1, text.startIndex, [Substring](), Character(" "))
    for index in text.indices {
      switch text[index] {
      case "(", "[", "{", "<": depth += 1
      case ")", "]", "}": depth -= 1
      case ">" where last != "-": depth -= 1
      case "," where depth == 1:
        found.append(text[start..<index])
        start = text.index(after: index)
      default: break
      }
      last = text[index]
      if depth == 0 { return start == index ? found : found + [text[start..<index]] }
    }
    return found
  }

  @Test("parameters have labels, at most seven of them, at most one of them a flag")
  func signatures() throws {
    let all = try Self.sources.flatMap(Self.signatures)
    #expect(all.count > 3000, "the declarations are found")
    for signature in all where signature.unlabelledRun > 2 {
      let name = "\(signature.path) \(signature.name)"
      #expect(Self.unlabelled.contains(name), "\(name): give the second and later parameters labels")
    }
    let flags = all.filter { $0.flags > 1 }
    #expect(flags.isEmpty, "use an enumeration or an option set: \(flags.map(\.name))")
    let long = all.filter { $0.labels.count > 7 }
    #expect(long.isEmpty, "group parameters in a structure: \(long.map(\.name))")
  }
}
