import SyncStore

/// `put`, `get` and `delete`: single keys.
enum KeyCommands {
  static let put = Command(
    "put", "store a value under a key", aliases: ["set"],
    operands: [Operand("KEY"), Operand("VALUE", .optional)],
    options: [
      Option("file", value: "F", "take the value from a file"),
      Option("ttl", value: "SPAN", "forget it after 90s, 30m, 1h, 7d …"),
      Option(
        "type", value: "T",
        words: [
          "bytes", "string", "bool", "int", "uint", "double", "float", "date", "uuid", "json", "cbor",
        ],
        "bytes (default), string, bool, int, uint, double, float, date, uuid, json or cbor"),
    ],
    notes:
      "The value is VALUE, the content of a file, or standard input where VALUE is \"-\". It is durable on return."
  ) { invocation, _ in
    let key = try Key(bytes: invocation.operands[0].bytes)
    let type = try type(invocation)
    let expiration = try invocation.milliseconds("ttl").map { Expiration.at(System.wallMilliseconds + $0) }
    let operand = invocation.operands.count > 1 ? invocation.operands[1] : nil
    switch (operand, invocation.value("file")) {
    case (nil, nil):
      throw invocation.usage(
        "no value", reason: "neither VALUE nor --file is given", advice: "give one, or - for standard input")
    case (.some, .some):
      throw invocation.usage("two values", reason: "VALUE and --file are both given", advice: "leave out one")
    case (nil, let file?):
      let source = try Descriptor.reading(file.bytes)
      guard try source.status().kind != .directory else {
        throw invocation.usage(
          "--file \(file.shown)", reason: "it is a directory",
          advice: "give a file, or use \"sync-cli import\"")
      }
      try invocation.withStore {
        try $0.put(key, from: source, type: type, expiration: expiration)
      }
    case (let operand?, nil) where operand.bytes == [UInt8(ascii: "-")]:
      let source = Descriptor(standard: 0)
      try invocation.withStore {
        try $0.put(key, from: source, type: type, expiration: expiration)
      }
    case (let operand?, nil):
      guard let bytes = ValueText.bytes(of: operand.bytes, as: type) else {
        throw invocation.usage(
          "\"\(operand.shown)\"", reason: "not of type \(type)", advice: ValueText.expectation(type))
      }
      try invocation.withStore { try $0.put(key, bytes, type: type, expiration: expiration) }
    }
    return .done
  }

  private static func type(_ invocation: Invocation) throws -> ValueType {
    guard let argument = invocation.value("type") else { return .bytes }
    guard let type = ValueType(name: argument.text) else {
      throw invocation.usage(
        "--type \(argument.shown)", reason: "there is no such type",
        advice: "it is one of bytes, string, bool, int, uint, double, float, date, uuid, json and cbor")
    }
    return type
  }

  static let get = Command(
    "get", "give the value of a key, its bytes unchanged",
    operands: [Operand("KEY")],
    options: [Option("output", value: "F", "write into a file, which is replaced at once or not at all")],
    notes:
      """
      Ends with 1 if the key is absent. A large value that is not here is fetched from a peer that has it. Where F is a
      device, a pipe or a stream of this process, such as /dev/null or /dev/stdout, the value is written into it.
      """
  ) { invocation, output in
    let key = try Key(bytes: invocation.operands[0].bytes)
    return try TierCommands.fetching(key, invocation: invocation) {
      try get(key, invocation: invocation, output: output)
    }
  }

  private static func get(_ key: Key, invocation: Invocation, output: Output) throws -> ExitCode {
    try invocation.withStore(toWrite: false) { store in
      let absent = Failure(
        .notFound,
        "get \(invocation.operands[0].shown): there is no such key: \"sync-cli list\" shows those there are")
      if let file = invocation.value("output") {
        guard try write(key, of: store, into: file, invocation) else { throw absent }
        return .done
      }
      guard invocation.wantsJSON else {
        guard try writeValue(key, of: store, to: { try output.write($0) }) else { throw absent }
        return .done
      }
      guard let value = try store.get(key) else { throw absent }
      try output.line(KeyLine.line(key, value))
      return .done
    }
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

  static let delete = Command(
    "delete", "delete keys", aliases: ["rm", "del"], operands: [Operand("KEY", .many)],
    options: [Option("prefix", value: "P", "delete all keys that begin with P"), ItemFailures.strict],
    notes: """
      Ends with 1 if one of the keys was absent; the others are deleted all the same. With --strict all of the keys named
      are deleted, in one transaction, or none.
      """
  ) { invocation, output in
    guard !invocation.operands.isEmpty || invocation.has("prefix") else {
      throw invocation.usage(
        "nothing to delete", reason: "no key is given", advice: "give keys, or --prefix P")
    }
    if let prefix = invocation.value("prefix"), prefix.bytes.isEmpty {
      throw invocation.usage(
        "--prefix", reason: "it is empty and would delete everything",
        advice: "give the keys' common beginning")
    }
    return try invocation.withStore { store in
      let isAlone = invocation.operands.count == 1 && !invocation.has("prefix")
      var failures = ItemFailures(invocation, isAlone: isAlone)
      var deleted = try deleteAll(invocation.operands, in: store, &failures)
      if let prefix = invocation.value("prefix") {
        deleted += try deleteAll(prefix.bytes, in: store, &failures)
      }
      if invocation.wantsJSON { try output.line(["deleted": .integer(deleted)]) }
      invocation.logVerbose("\(Text.count(deleted, noun: "key")) deleted")
      try failures.check()
      return .done
    }
  }

  private static func absent(_ argument: Argument) -> Failure {
    Failure(.notFound, "delete \(argument.shown): there is no such key: nothing was to be done for it")
  }

  private static func deleteAll(
    _ operands: [Argument], in store: Store, _ failures: inout ItemFailures
  ) throws -> Int {
    guard !failures.isStrict else {
      let keys = try operands.map { (argument: $0, key: try Key(bytes: $0.bytes)) }
      try store.transaction { transaction in
        for (argument, key) in keys where try !transaction.delete(key) { throw absent(argument) }
      }
      return keys.count
    }
    var deleted = 0
    for argument in operands {
      do {
        if try store.delete(try Key(bytes: argument.bytes)) {
          deleted += 1
        } else {
          try failures.record(absent(argument))
        }
      } catch let error as StoreError {
        guard error.concernsOneItem, ![.readOnly, .diskFull].contains(error.code) else { throw error }
        try failures.record(Failure(StoreError(error, to: "delete \(argument.shown)")))
      }
    }
    return deleted
  }

  private static func deleteAll(
    _ prefix: [UInt8], in store: Store, _ failures: inout ItemFailures
  ) throws -> Int {
    var deleted = 0
    var last: Key?
    repeat {
      // Continue after the last page even if keys could not be deleted: otherwise they would be visited
      // forever.
      var page: [Key] = []
      let (next, losses) = try store.snapshot().scanReadable(
        KeyRange(prefix: prefix), after: last, limit: 1000
      ) {
        page.append($0.key)
      }
      last = next
      deleted += try store.transaction { transaction in
        var count = 0
        for key in page where try transaction.delete(key) { count += 1 }
        return count
      }
      // Doubts about later pages are reported again there.
      for loss in losses {
        if let key = loss.key, next.map({ key <= $0 }) ?? true, try store.delete(key) {
          deleted += 1; continue
        }
        try failures.record([loss], upTo: next)
      }
    } while last != nil
    return deleted
  }
}
