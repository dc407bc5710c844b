import SyncStore

/// `load` and `dump`: lines of JSON.
enum LineCommands {
  static let dump = Command(
    "dump", "write keys and values as lines of JSON",
    operands: [Operand("PREFIX", .optional)],
    notes: """
      Each line is {"key","value","type"}, and "expires" in milliseconds since 1970 if there is a deadline. "base64"
      stands for "value", and "key_base64" for "key", where the bytes are not UTF-8. "sync-cli load" reads it back.
      It ends at the first key whose line would be longer than 256 MiB: use "sync-cli export" for such values.
      Large values that are not here are fetched from a peer that has them.
      Ends with 5 if keys are damaged: the others are written, and those named on standard error.
      """
  ) { invocation, output in
    try TierCommands.withAllValues(invocation) { store in
      let prefix = invocation.prefix(invocation.operands.first)
      let snapshot = try store.snapshot()
      var unreadable = Unreadable("dump")
      let doubts = try lines(
        of: snapshot, prefix,
        unreadable: { key, error in
          guard error.code != .blobUnavailable else { throw TierCommands.unfetched(key, invocation, error) }
          try unreadable.note(key, error)
        }
      ) {
        try output.write($0 + [0x0A])
      }
      unreadable.note(doubts)
      try unreadable.check()
      return .done
    }
  }

  /// Gives each line of a dump to `body`. One that `load` would refuse is an error: nothing of it is given, and a value
  /// that makes it so by itself is not even read. `unreadable` is told of a key whose value cannot be read, and
  /// may go on. Returns what is left open by damage.
  @discardableResult
  static func lines(
    of snapshot: Snapshot, _ prefix: [UInt8], limit: Int = LineReader.lineBytes,
    unreadable: (Key, StoreError) throws -> Void = { throw $1 },
    _ body: ([UInt8]) throws -> Void
  ) throws -> [Doubt] {
    try snapshot.scanReadable(KeyRange(prefix: prefix)) { entry in
      let key = entry.key
      guard entry.size <= limit else { throw tooLong(key, limit) }
      let found: Value?
      do throws(StoreError) { found = try snapshot.get(key) } catch { return try unreadable(key, error) }
      guard let value = found else { return }
      let line = KeyLine.line(key, value).encoded
      guard line.count <= limit else { throw tooLong(key, limit) }
      try body(line)
    }.doubts
  }

  private static func tooLong(_ key: Key, _ limit: Int) -> Failure {
    Failure(
      .usage,
      "dump \(Text.printable(key.bytes)): its line would be longer than the \(Text.size(limit)) that \"sync-cli load\""
        + " takes: use \"sync-cli get KEY --output F\" for it, or \"sync-cli export\" for all")
  }

  static let load = Command(
    "load", "store the keys and values of lines of JSON",
    operands: [Operand("FILE")],
    notes: """
      FILE, or standard input where it is "-", holds lines as "sync-cli dump" writes them. It ends at the first line
      that is wrong; the lines before it are stored.
      """
  ) { invocation, output in
    let operand = invocation.operands[0]
    let source =
      operand.bytes == [UInt8(ascii: "-")] ? Descriptor(standard: 0) : try Descriptor.reading(operand.bytes)
    guard try source.status().kind != .directory else {
      throw invocation.usage(operand.shown, "it is a directory", "give a file, or use \"sync-cli import\"")
    }
    return try invocation.withStore { store in
      var loader = Loader(store: store)
      var lines = LineReader(source)
      do {
        while let line = try lines.next() { try loader.add(line) }
      } catch {
        // Whatever ends it, what came before counts.
        try loader.commit()
        guard let reason = error as? Reason else { throw error }
        throw Failure(
          .usage,
          "load \(operand.shown), line \(lines.number): \(reason.text): mend it and load again"
            + " (\(Text.count(loader.loaded, "line")) before it stored)")
      }
      try loader.commit()
      try store.sync()
      try invocation.tell(
        "loaded \(Text.count(loader.loaded, "key"))", json: ["loaded": .integer(loader.loaded)], output)
      return .done
    }
  }
}

/// Stores lines, many to a transaction.
private struct Loader {
  let store: Store
  private(set) var loaded = 0
  private var batch: [(key: Key, bytes: [UInt8], type: ValueType, deadline: UInt64?)] = []
  private var batchBytes = 0
  private static let transactionBytes = 1 << 20
  private static let transactionLines = 500
  private static let smallValueBytes = 16 << 10

  init(store: Store) { self.store = store }

  mutating func add(_ text: [UInt8]) throws {
    if text.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }) { return }
    let line: JSON
    // A value that is nested as deeply as can be lies within the object of its line.
    do { line = try JSONParser.parse(text, depth: Limits.codedValueDepth + 1) } catch {
      throw Reason(error.reason)
    }
    let (bytes, type) = try ValueText.value(of: line)
    let key: Key
    do { key = try Key(bytes: try KeyLine.key(of: line)) } catch let error as StoreError {
      throw Reason(error.message)
    }
    let deadline = try deadline(of: line)
    if bytes.count > Self.smallValueBytes {
      try commit()
      try store.put(key, bytes, type: type, expires: deadline, durability: .full)
      loaded += 1
      return
    }
    batch.append((key, bytes, type, deadline))
    batchBytes += bytes.count
    if batchBytes >= Self.transactionBytes || batch.count >= Self.transactionLines { try commit() }
  }

  private func deadline(of line: JSON) throws(Reason) -> UInt64? {
    guard let member = line["expires"] else { return nil }
    guard case .number(let text) = member, let milliseconds = UInt64(text) else {
      throw Reason("\"expires\" is not a whole number of milliseconds since 1970")
    }
    return milliseconds
  }

  mutating func commit() throws {
    guard !batch.isEmpty else { return }
    let batch = batch
    try store.transaction(durability: .relaxed) { transaction in
      for line in batch { try transaction.put(line.key, line.bytes, type: line.type, expires: line.deadline) }
    }
    loaded += batch.count
    self.batch = []
    batchBytes = 0
  }
}
