import SyncStore

/// `load` and `dump`: lines of JSON.
enum LineCommands {
  static let dump = Command(
    "dump", "write keys and values as lines of JSON",
    operands: [Operand("PREFIX", .optional)],
    notes: """
      Each line is {"key","value","type"}, and "expires" in milliseconds since 1970 if there is a deadline. "base64"
      stands for "value", and "key_base64" for "key", where the bytes are not UTF-8. "sync-cli load" reads it back.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let snapshot = try store.snapshot()
      try snapshot.scanEntries(KeyRange(prefix: invocation.prefix(invocation.operands.first))) { entry in
        if let value = try snapshot.get(entry.key) { try output.line(KeyLine.line(entry.key, value)) }
      }
      return .done
    }
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
      while let line = try lines.next() {
        do { try loader.add(line) } catch let reason as Reason {
          try loader.commit()
          throw Failure(
            .usage,
            "load \(operand.shown), line \(lines.number): \(reason.text): mend it and load again"
              + " (\(Text.count(loader.loaded, "line")) before it stored)")
        }
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
    do { line = try JSONParser.parse(text) } catch { throw Reason(error.reason) }
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
