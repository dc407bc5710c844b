import SyncStore

/// `get`: values of keys that are named, or of all keys with a prefix.
extension KeyCommands {
  static let get = Command(
    "get", "give the value of a key, its bytes unchanged",
    operands: [Operand("KEY", .many)],
    options: [
      Option("output", value: "F", "write into a file, which is replaced at once or not at all"),
      Option("text", "values as text, each with a line end: 42 for an int, true for a bool"),
      Option("prefix", value: "P", "all keys that begin with P: each line has the key, a tab and the value"),
      ItemFailures.strict,
    ],
    notes:
      """
      Ends with 1 if a key is absent. A large value that is not here is fetched from a peer that has it. Where F is a
      device, a pipe or a stream of this process, such as /dev/null or /dev/stdout, the value is written into it.
      A terminal shows what --text gives, and writes control characters as \\xNN. A value of bytes that are not UTF-8 has no
      text: its bytes are written so, too. Several keys, or --prefix, need --text or --json where standard output is no
      terminal, since their bytes would run together. Each value is then on a line of its own, in the order of the keys;
      a value with line ends in it has several lines, unless --json is given.
      """
  ) { invocation, output in
    let keys = try invocation.operands.map { try Key(bytes: $0.bytes) }
    try check(invocation, keys: keys, output: output)
    guard keys.count == 1, let key = keys.first else {
      return try getAll(keys, invocation: invocation, output: output)
    }
    return try TierCommands.fetching(key, invocation: invocation) {
      try get(key, invocation: invocation, output: output)
    }
  }.printing(JSONReference.get)

  /// Refuses options that contradict each other, and values that would run together.
  private static func check(_ invocation: Invocation, keys: [Key], output: Output) throws(Failure) {
    let isOne = keys.count == 1
    switch (keys.isEmpty, invocation.has("prefix")) {
    case (true, false):
      throw invocation.usage(
        "KEY is missing", reason: "neither KEY nor --prefix is given", advice: "give one of them")
    case (false, true):
      throw invocation.usage("KEY and --prefix", reason: "both are given", advice: "leave out one")
    default: break
    }
    if invocation.has("text"), invocation.wantsJSON {
      throw invocation.usage("--text and --json", reason: "they exclude each other", advice: "leave out one")
    }
    if invocation.has("output") {
      guard isOne else {
        throw invocation.usage(
          "--output", reason: "it takes one value", advice: "give one KEY, or use \"sync-cli export\"")
      }
      guard !invocation.has("text") else {
        throw invocation.usage(
          "--output and --text", reason: "a file gets the bytes of the value",
          advice: "redirect the output of --text")
      }
    }
    guard isOne || invocation.has("text") || invocation.wantsJSON || output.isTerminal else {
      throw invocation.usage(
        "several values", reason: "their bytes would run together", advice: "give --text or --json for lines")
    }
  }

  private static func absent(_ argument: [UInt8]) -> Failure {
    Failure(
      .notFound,
      "get \(Text.printable(argument)): there is no such key: \"sync-cli list\" shows those there are")
  }

  private static func get(_ key: Key, invocation: Invocation, output: Output) throws -> ExitCode {
    try invocation.withStore(toWrite: false) { store in
      if let file = invocation.value("output") {
        guard try write(key, of: store, into: file, invocation) else { throw absent(key.bytes) }
        return .done
      }
      guard try show(key, of: store, invocation, output) else { throw absent(key.bytes) }
      return .done
    }
  }

  /// Shows the values of `keys`, or of all keys with the prefix, each on its line.
  private static func getAll(_ keys: [Key], invocation: Invocation, output: Output) throws -> ExitCode {
    try TierCommands.withAllValues(invocation) { store in
      var failures = ItemFailures(invocation)
      func attempt(_ key: Key, isNamed: Bool) throws {
        do {
          if try !show(key, of: store, invocation, output), isNamed { try failures.record(absent(key.bytes)) }
        } catch let error as StoreError where error.code == .blobUnavailable {
          try failures.record(TierCommands.unfetched(key, invocation: invocation, error: error))
        } catch let error as StoreError {
          try failures.record(key, error)
        }
      }
      for key in keys { try attempt(key, isNamed: true) }
      if let prefix = invocation.value("prefix") {
        let losses = try store.snapshot().scanReadable(KeyRange(prefix: prefix.bytes)) {
          try attempt($0.key, isNamed: false)
        }
        try failures.record(losses.doubts)
      }
      try failures.check()
      return .done
    }
  }

  /// Writes the value of a key as the invocation asks for it; false if the key has none.
  private static func show(
    _ key: Key, of store: Store, _ invocation: Invocation, _ output: Output
  ) throws -> Bool {
    if invocation.wantsJSON {
      guard let held = try store.versioned(key) else { return false }
      let line = KeyLine.line(key, held.value).with("version", .string("\(held.version)"))
      // An object that plain JSON cannot hold, as `put --type cbor` takes it.
      let isExact = held.value.type != .cbor || line["value"] != nil
      try output.line(line.with("exact", isExact ? nil : CodedText.marked(held.value.bytes)))
      return true
    }
    guard invocation.has("text") || output.isTerminal else {
      return try writeValue(key, of: store, to: { try output.write($0) })
    }
    let prefix = invocation.has("prefix") ? output.shown(key: key.bytes) + [0x09] : []
    // No number is that long: the value is text or bytes, and need not be in memory.
    if let entry = try store.entry(key), entry.size > streamedBytes, entry.type != .cbor {
      try output.write(prefix)
      guard try writeValue(key, of: store, to: { try output.write(output.shown(text: $0)) }) else {
        return false
      }
      try output.write([0x0A])
      return true
    }
    guard let value = try store.get(key) else { return false }
    let text = output.shown(text: ValueText.text(value.bytes, value.type))
    // One line end ends the value, whether it has one of its own or not.
    try output.write(prefix + text + (text.last == 0x0A ? [] : [0x0A]))
    return true
  }

  private static func write(
    _ key: Key, of store: Store, into file: Argument, _ invocation: Invocation
  ) throws -> Bool {
    // If standard output is redirected to a file by appending, replacing that file would lose its content.
    let stream = Descriptor.standard(at: file.bytes)
    switch try Descriptor.kind(at: file.bytes) {
    case _ where stream != nil, .other:
      // Devices and pipes are written to: they cannot be replaced by a file.
      let sink = try stream ?? Descriptor.writing(file.bytes)
      return try writeValue(key, of: store) { bytes throws(Failure) in try sink.write(bytes) }
    case .directory:
      throw invocation.usage(
        "--output \(file.shown)", reason: "it is a directory",
        advice: "give a file, or use \"sync-cli export\"")
    case .file, .link, nil: return try store.export(key, toFileAt: invocation.path(file))
    }
  }

  /// Passes the value to `write`, a large one in pieces; false if the key has none.
  private static func writeValue(_ key: Key, of store: Store, to write: ([UInt8]) throws -> Void) throws
    -> Bool
  {
    if let entry = try store.entry(key), entry.size > streamedBytes {
      guard let reader = try store.reader(of: key) else { return false }
      try stream(reader, entry.blob, to: write)
      return true
    }
    guard let value = try store.get(key) else { return false }
    try write(value.bytes)
    return true
  }

  /// Larger values are passed in pieces.
  private static let streamedBytes: UInt64 = 16 << 20
  private static let pieceBytes = 1 << 20

  /// Streams a value in pieces and without a copy on disk, which may be full. The hash of the whole is
  /// checked before the first byte is written.
  private static func stream(
    _ reader: ValueReader, _ blob: BlobReference?, to write: ([UInt8]) throws -> Void
  ) throws {
    let hasher = SHA256Hasher()
    try pieces(of: reader) { hasher.update($0) }
    // The value is damaged or was replaced: the reader reports which, and sets aside a damaged one.
    if hasher.finish() != blob?.hash.bytes { try reader.withBytes { _ in } }
    try pieces(of: reader, write)
  }

  private static func pieces(of reader: ValueReader, _ body: ([UInt8]) throws -> Void) throws {
    var done: UInt64 = 0
    while done < reader.size {
      let piece = try reader.read(pieceBytes, at: done)
      guard !piece.isEmpty else {
        // The file is truncated: the reader has the more precise error.
        try reader.withBytes { _ in }
        throw Failure(.damaged, "get: the value ends too early: its file is damaged: run \"sync-cli verify\"")
      }
      try body(piece)
      done += UInt64(piece.count)
    }
  }
}
