import Testing

/// Conventions of the sources.
@Suite struct SourceTests {
  private let sources = Repository.swiftFiles.filter { $0.hasPrefix("Sources/") }

  /// Test files that are longer; the list may only shrink.
  private static let long: Set<String> = ["Tests/ReplicationTests/Session/SessionTests.swift"]

  @Test("the sources are found")
  func found() {
    #expect(sources.count > 50)
    #expect(Repository.texts.count > 100)
  }

  @Test("files have at most 500 lines")
  func lengths() throws {
    for path in Repository.swiftFiles where !Self.long.contains(path) {
      let count = try Repository.lines(path).count - 1
      #expect(count <= 500, "\(path) has \(count) lines")
    }
  }

  @Test(
    "no open tasks, forced unwraps or stubs",
    arguments: [
      #"\b(TO"# + "DO|FIX" + #"ME|HA"# + #"CK|X"# + #"XX)\b"#, #"\btry"# + #"!"#, #"\bas"# + #"!"#,
      #"not imple"# + "mented",
      #"\.disabled"# + #"\("#, #"place"# + "holder",
    ])
  func leftOpen(pattern: String) throws {
    #expect(try Repository.matches(pattern, in: Repository.swiftFiles) == [])
  }

  @Test("the program aborts only where a library call that cannot fail has failed")
  func givesUp() throws {
    let found = try Repository.matches(#"\bfatal"# + #"Error\("#, in: sources)
    let allowed = [
      "Sources/SyncStore/Crypto/", "Sources/SyncStore/Platform/SecureRandom.swift",
      "Sources/Replication/TLS/",
      "Sources/Replication/Protocol/Compression.swift",
    ]
    #expect(found.filter { place in !allowed.contains { place.hasPrefix($0) } } == [])
  }

  @Test("no concurrent dispatch queue: libdispatch ends a process whose threads it does not find in /proc")
  func dispatchQueues() throws {
    let concurrent =
      #"attributes: \.con"# + #"current|Dispatch.*\.global\(|concurrentPer"# + #"form\(iterations"#
    #expect(try Repository.matches(concurrent, in: sources) == [])
  }

  @Test("libraries do not import Foundation")
  func foundation() throws {
    let libraries = sources.filter { !$0.hasPrefix("Sources/sync-cli/") }
    #expect(try Repository.matches(#"import Foundation\b"#, in: libraries) == [])
  }

  @Test("unsafe code is confined to a few files")
  func unsafe() throws {
    let folders = [
      "Sources/SyncStore/Platform/", "Sources/SyncStore/Crypto/",
      "Sources/SyncStore/Core/Checksum.swift", "Sources/SyncStore/Engine/Journal/BlobKeys.swift",
      "Sources/SyncStore/Blobs/Sealing/EncryptedBlob.swift", "Sources/SyncStore/Blobs/SQLite.swift",
      "Sources/SyncStore/Blobs/SQLite+SharedMemory.swift", "Sources/Replication/TLS/",
      "Sources/Replication/Transport/",
      "Sources/Replication/Protocol/Compression.swift",
      "Sources/sync-cli/Platform/", "Sources/ObjectStorageS3/Transfer/",
    ]
    let found = try Repository.matches(#"^[^/]*\bunsafe "#, in: sources)
    #expect(found.filter { place in !folders.contains { place.hasPrefix($0) } } == [])
  }

  @Test("the libraries name calls in their errors, and the tool translates them into commands")
  func words() throws {
    let libraries = sources.filter { !$0.hasPrefix("Sources/sync-cli/") }
    let command =
      #"^[^/]*"[^"]*(`(init|join|invite|peer|verify|dump|load|push|pull|serve|status)\b|sync-cli|--force)"#
    #expect(try Repository.matches(command, in: libraries) == [])
    // The tool must have a command name for each call that a library's message names.
    let tool = try Repository.read("Sources/sync-cli/Output/ToolWords.swift")
    let calls = try libraries.flatMap { path in
      try Repository.lines(path).filter { !$0.drop { $0 == " " }.hasPrefix("//") }
        .flatMap { $0.matches(of: /`[A-Z][A-Za-z]+\.[^`]+`/).map { String($0.0) } }
    }
    #expect(!calls.isEmpty)
    for call in calls where call != "`StoreHandle.close(_:)`" {
      #expect(tool.contains("\"\(call)\""), "\(call)")
    }
  }

  @Test("declarations visible to other modules are documented")
  func documented() throws {
    let declaration = try Regex(
      #"^ *(public|package)( (static|final|mutating|nonisolated|borrowing|consuming|indirect|override))*"#
        + #" (func|var|let|struct|enum|class|protocol|init|typealias|subscript|actor)\b"#)
    // Implementations of a protocol are documented at the protocol.
    for path in sources where !path.hasPrefix("Sources/SyncStore/Platform/DiskStorage") {
      let lines = try Repository.lines(path)
      for (index, line) in lines.enumerated() where line.contains(declaration) {
        var before = index - 1
        while before >= 0, lines[before].drop(while: { $0 == " " }).hasPrefix("@") { before -= 1 }
        let above = before >= 0 ? lines[before].drop { $0 == " " } : ""
        #expect(above.hasPrefix("///"), "\(path):\(index + 1) is not documented: \(line.prefix(80))")
      }
    }
  }

  @Test("each throwing call documents its errors, or the call that documents them")
  func errors() throws {
    let failing = try PublicCall.all().filter(\.canFail)
    #expect(failing.count > 250)
    for call in failing {
      #expect(call.saysErrors, "\(call.type).\(call.name) does not say what it throws: \(call.comment)")
    }
  }

  @Test("no absolute path of a developer's machine is in the repository")
  func machinePaths() throws {
    let pattern = #"(^|[^\w.])/(wo"# + #"rk|ro"# + #"ot|ho"# + #"me|far"# + #"m)/\w"#
    // Tests use such paths in an in-memory storage.
    #expect(try Repository.matches(pattern, in: Repository.texts.filter { !$0.hasPrefix("Tests/") }) == [])
  }

  @Test("scripts stop at the first error and describe themselves")
  func scripts() throws {
    for path in Repository.files(in: "scripts", ending: ".sh") + ["packaging/install.sh", ".ci/run"] {
      let text = try Repository.read(path)
      #expect(text.hasPrefix("#!/usr/bin/env bash\n# "), "\(path)")
      #expect(text.contains("\nset -euo pipefail\n"), "\(path)")
    }
  }
}
