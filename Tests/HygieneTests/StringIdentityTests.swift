import Testing

/// Checks that strings are compared by their bytes (`String.hasSameBytes(as:)` explains why): each module
/// hides the operators of the standard library, and a table keyed by strings is a `StringDictionary` or a
/// `StringSet`.
@Suite("Strings as identity")
struct StringIdentityTests {
  private let sources = Repository.swiftFiles.filter { $0.hasPrefix("Sources/") }

  /// Lines that may name a table keyed by `String`, with the reason.
  static let exceptions: [String: String] = [
    "private var statements: [String: OpaquePointer]":
      "texts of statements, which are constants of the program",
    "throw source.mismatch([String: Any].self": "the name of a type in a message",
    "one in a `Dictionary`": "a comment that says the difference",
  ]

  @Test("no table is keyed by `String`, whose equality merges different bytes")
  func tables() throws {
    let pattern =
      #"\[String ?: ?[A-Z(\[]|\b(Set|Dictionary|OrderedSet|OrderedDictionary)<String\b|\[String\??: ?any "#
    let found = try Repository.matches(pattern, in: sources.filter { !$0.contains(".docc/") })
    for line in found {
      #expect(Self.exceptions.keys.contains { line.contains($0) }, "\(line)")
    }
  }

  @Test("each module hides the operators of the standard library, in the same way")
  func operators() throws {
    let paths = [
      "Sources/SyncStore/Core/Coding/String+Operators.swift",
      "Sources/Replication/Protocol/String+Operators.swift",
      "Sources/sync-cli/Files/String+Operators.swift", "Sources/ObjectStorageS3/String+Operators.swift",
    ]
    let texts = try paths.map { path in
      try Repository.lines(path).filter { !$0.hasPrefix("internal import") && !$0.isEmpty }
    }
    for text in texts { #expect(text == texts[0]) }
    for name in ["==", "!=", "~=", "<", ">"] {
      #expect(texts[0].contains { $0.contains("static func \(name) (") }, "\(name)")
    }
    // SyncStoreFoundation compares no strings.
    let modules = Set(sources.compactMap { $0.split(separator: "/").dropFirst().first })
    #expect(modules == ["SyncStore", "SyncStoreFoundation", "Replication", "ObjectStorageS3", "sync-cli"])
  }

  @Test("no line of text is split or searched by characters, which a combining mark can hide")
  func characters() throws {
    // These files split text that the program wrote itself, or that is refused as a whole if it has other parts.
    let allowed = [
      "Sources/SyncStore/Core/Dot.swift", "Sources/SyncStore/Store/Management/DaemonLock.swift",
      "Sources/sync-cli/Arguments/", "Sources/sync-cli/Completions/CompletionScript.swift",
      "Sources/sync-cli/ExitCode.swift", "Sources/sync-cli/Manual/",
      "Sources/SyncStore/Crypto/KeyRingFile.swift", "Sources/Replication/Protocol/GroupKeyRing.swift",
      "Sources/SyncStore/Store/Changes/Change.swift", "Sources/SyncStore/Blobs/BlobCatalogue+Schema.swift",
      "Sources/SyncStore/Platform/PressureWatch.swift", "Sources/sync-cli/Files/CodedText.swift",
      "Sources/sync-cli/Output/ToolWords.swift",
    ]
    let found = try Repository.matches(
      #"\bsplit\(separator: ""#, in: sources.filter { !$0.contains(".docc/") }
    )
    .filter { !$0.contains("unicodeScalars") }
    #expect(found.filter { line in !allowed.contains { line.hasPrefix($0) } } == [])
  }
}
