import SyncStore

/// `put`: one value, from the command line, a file or standard input.
extension KeyCommands {
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
      Option("if-absent", "only if the key has no value"),
      Option(
        "if-version", value: "V", "only if the value is still that of version V, as \"get --json\" shows it"),
      Option(
        "max-bytes", value: "N",
        "the most that standard input may give: 500M, 20G … (default: half of the free space)"),
    ],
    notes: """
      The value is VALUE, the content of a file, or standard input where VALUE is "-". It is durable on return. A file and
      standard input hold the bytes of the type, as "get" gives them: write a number as VALUE. With --json the version that was
      written is shown. Ends with 1 if the condition of --if-absent or --if-version does not hold: nothing is written then. The
      comparison and the write are one step for all processes of this copy; other copies may write meanwhile.

      The type cbor is for what programs store as objects and lists. VALUE is its JSON: write 8.0 for a number that is not
      whole, since 8 is. {"$date":1.5} is a date in seconds since 1970, {"$uuid":"…"} a UUID, {"$bytes":"…"} bytes in base
      64, {"$float":1.5} a number of 32 bits.
      """
  ) { invocation, output in
    let key = try Key(bytes: invocation.operands[0].bytes)
    let write = try ConditionalWrite(invocation, key)
    let content = try content(invocation, write)
    if invocation.has("max-bytes"), !content.isStandardInput {
      throw invocation.usage(
        "--max-bytes", reason: "it bounds standard input", advice: "leave it out, or give - as VALUE")
    }
    try invocation.withStore { store in
      let version: Dot?
      switch content {
      case .bytes(let bytes): version = try write.store(bytes, in: store)
      case .file(let source): version = try write.store(from: source, limit: .max, in: store)
      case .standardInput(let source):
        version = try write.store(
          from: source, limit: try bound(of: source, in: store, invocation), in: store)
      }
      if invocation.wantsJSON, let version {
        try output.line(JSON.object([KeyLine.member(key.bytes)]).with("version", .string("\(version)")))
      }
    }
    return .done
  }.printing(JSONReference.put)

  private enum Content {
    case bytes([UInt8])
    case file(Descriptor)
    case standardInput(Descriptor)

    var isStandardInput: Bool { if case .standardInput = self { true } else { false } }
  }

  private static func content(_ invocation: Invocation, _ write: ConditionalWrite) throws -> Content {
    let operand = invocation.operands.dropFirst().first
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
      return .file(source)
    case (let operand?, nil) where operand.bytes == [UInt8(ascii: "-")]:
      return .standardInput(try invocation.standardInput())
    case (let operand?, nil):
      guard let bytes = ValueText.bytes(of: operand.bytes, as: write.type) else {
        throw invocation.usage(
          "\"\(operand.shown)\"", reason: "not of type \(write.type)",
          advice: ValueText.expectation(write.type))
      }
      return .bytes(bytes)
    }
  }

  /// The most bytes that standard input may give: a file is finite, another stream may have no end.
  private static func bound(
    of source: Descriptor, in store: Store, _ invocation: Invocation
  ) throws -> UInt64 {
    if System.isTerminal(0), !invocation.isQuiet {
      Diagnostics.report("put: reading the value from the terminal: end it with Ctrl-D on a line of its own")
    }
    if let argument = invocation.value("max-bytes") {
      guard let bytes = Text.bytes(argument.text) else {
        throw invocation.usage(
          "--max-bytes \(argument.shown)", reason: "no size", advice: "write 500M, 20G or bytes")
      }
      return bytes
    }
    guard try source.status().kind != .file else { return .max }
    return try Descriptor.reading(Array(store.path.utf8), waiting: false).freeBytes() / 2
  }
}

/// A put, with its condition.
private struct ConditionalWrite {
  private let invocation: Invocation
  private let key: Key
  let type: ValueType
  private let expiration: Expiration?
  private let expectation: Expected?

  init(_ invocation: Invocation, _ key: Key) throws {
    (self.invocation, self.key) = (invocation, key)
    type = try Self.type(invocation)
    expiration = try invocation.milliseconds("ttl").map { Expiration.at(System.wallMilliseconds + $0) }
    switch (invocation.has("if-absent"), invocation.value("if-version")) {
    case (true, .some):
      throw invocation.usage(
        "--if-absent and --if-version", reason: "they exclude each other", advice: "leave out one")
    case (true, nil): expectation = .absent
    case (false, nil): expectation = nil
    case (false, let argument?):
      guard let version = Dot(argument.text) else {
        throw invocation.usage(
          "--if-version \(argument.shown)", reason: "no version",
          advice: "give the \"version\" that \"sync-cli get --json\" shows")
      }
      expectation = .version(version)
    }
  }

  private static func type(_ invocation: Invocation) throws(Failure) -> ValueType {
    guard let argument = invocation.value("type") else { return .bytes }
    guard let type = ValueType(name: argument.text) else {
      throw invocation.usage(
        "--type \(argument.shown)", reason: "there is no such type",
        advice: "it is one of bytes, string, bool, int, uint, double, float, date, uuid, json and cbor")
    }
    return type
  }

  /// Writes these bytes. The version is found only if it is asked for.
  func store(_ bytes: [UInt8], in store: Store) throws -> Dot? {
    if let expectation {
      return try checked(
        store.put(key, bytes, expecting: expectation, type: type, expiration: expiration), in: store)
    }
    guard invocation.wantsJSON else {
      try store.put(key, bytes, type: type, expiration: expiration)
      return nil
    }
    return try store.transaction { transaction in
      try transaction.put(key, bytes, type: type, expiration: expiration)
      return try transaction.entry(key)?.dot
    }
  }

  /// Writes all that `source` gives: in one piece if it is small, otherwise streamed into the blob tier.
  func store(from source: Descriptor, limit: UInt64, in store: Store) throws -> Dot? {
    let first = try source.readAll(limit: Limits.inlineValueBytes)
    guard UInt64(first.count) <= limit else { throw tooMuch(limit) }
    if first.count < Limits.inlineValueBytes {
      try check(first, source)
      return try self.store(first, in: store)
    }
    let version = try store.put(key, expecting: expectation, type: type, expiration: expiration) { writer in
      var part = first
      repeat {
        try writer.append(part)
        guard writer.count <= limit else { throw tooMuch(limit) }
        part = try source.read(1 << 20)
      } while !part.isEmpty
    }
    return try checked(version, in: store)
  }

  /// Refuses bytes that are no value of the type, and reports a value that is empty by mistake.
  private func check(_ bytes: [UInt8], _ source: Descriptor) throws(Failure) {
    guard ValueText.isEncoding(bytes, of: type) else {
      throw invocation.usage(
        source.number == 0 ? "standard input" : Text.printable(source.path),
        reason: "its \(Text.count(bytes.count, noun: "byte")) are no \(type) as the store keeps it",
        advice: "give the value as an operand: put KEY --type \(type) -- VALUE")
    }
    if source.number == 0, bytes.isEmpty, !invocation.isQuiet {
      Diagnostics.report(
        "put \(Text.printable(key.bytes)): standard input was empty: the value is empty: put it again if it should not be"
      )
    }
  }

  private func tooMuch(_ limit: UInt64) -> Failure {
    Failure(
      .usage,
      "put \(Text.printable(key.bytes)): standard input has more than \(Text.size(limit)): nothing was stored, since it may have no end: "
        + "give --max-bytes N for a larger value")
  }

  // MARK: - The condition

  /// The version, or the error that names what the key has instead.
  private func checked(_ version: Dot?, in store: Store) throws -> Dot {
    if let version { return version }
    let shown = Text.printable(key.bytes)
    let held = try store.entry(key).map { entry in
      "version \(entry.dot), \(Text.size(entry.size)) of \(entry.type), written \(Text.date(milliseconds: entry.stamp.milliseconds))"
    }
    let (option, advice) =
      expectation == .absent
      ? ("--if-absent", "leave the option out to replace it")
      : ("--if-version", "read it again by \"sync-cli get --json\", and decide")
    throw Failure(
      .notFound,
      "put \(shown) \(option): the key has \(held ?? "no value"): nothing was written: \(advice)")
  }
}
