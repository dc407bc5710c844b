import SyncStore

/// `load` and `dump`: lines of JSON.
enum LineCommands {
  static let dump = Command(
    "dump", "write keys and values as lines of JSON",
    operands: [Operand("PREFIX", .optional)], options: [ItemFailures.strict],
    notes: """
      Each line is {"key","value","type"}, and "expires" in milliseconds since 1970 if there is a deadline. "base64"
      stands for "value", and "key_base64" for "key", where the bytes are not UTF-8. "sync-cli load" reads it back.
      Large values that are not here are fetched from a peer that has them.
      The others are written, and each key is named on standard error, where a large value cannot be had (4), a key is
      damaged (5), or its line would be longer than 256 MiB (2): use "sync-cli get KEY --output F" for such values.
      With --strict it ends at the first of them.
      """
  ) { invocation, output in
    try TierCommands.withAllValues(invocation) { store in
      let prefix = invocation.prefix(invocation.operands.first)
      let snapshot = try store.snapshot()
      var failures = ItemFailures(invocation)
      let losses = try lines(
        of: snapshot, prefix,
        failed: { key, error in
          switch error {
          case let error as StoreError where error.code == .blobUnavailable:
            try failures.record(TierCommands.unfetched(key, invocation: invocation, error: error))
          case let error as StoreError: try failures.record(key, error)
          case let failure as Failure: try failures.record(failure)
          default: throw error
          }
        }
      ) {
        try output.write($0 + [0x0A])
      }
      try failures.record(losses)
      try failures.check()
      return .done
    }
  }.printing(JSONReference.dump)

  /// Passes each line of a dump to `body`, whose errors end it. Returns the possible losses by damage.
  ///
  /// `failed` is called for a key whose value cannot be read, or whose line `load` would refuse; it may
  /// continue. No part of such a line is written, and a value that alone exceeds the limit is not even read.
  @discardableResult
  static func lines(
    of snapshot: Snapshot, _ prefix: [UInt8], limit: Int = LineReader.lineBytes,
    failed: (Key, any Error) throws -> Void = { throw $1 },
    _ body: ([UInt8]) throws -> Void
  ) throws -> [PossibleLoss] {
    try snapshot.scanReadable(KeyRange(prefix: prefix)) { entry in
      let key = entry.key
      guard entry.size <= limit else { return try failed(key, tooLong(key, limit)) }
      let found: Value?
      do throws(StoreError) { found = try snapshot.get(key) } catch { return try failed(key, error) }
      guard let value = found else { return }
      let line = KeyLine.line(key, value).encoded
      guard line.count <= limit else { return try failed(key, tooLong(key, limit)) }
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
    operands: [Operand("FILE")], options: [ItemFailures.strict],
    notes: """
      FILE, or standard input where it is "-", holds lines as "sync-cli dump" writes them. A line that is wrong, or has a
      member that no line has, is named and passed over (2). With --strict the first such line ends it; the lines before
      it are stored.
      """
  ) { invocation, output in
    let operand = invocation.operands[0]
    let source =
      try operand.bytes == [UInt8(ascii: "-")]
      ? invocation.standardInput() : Descriptor.reading(operand.bytes)
    guard try source.status().kind != .directory else {
      throw invocation.usage(
        operand.shown, reason: "it is a directory", advice: "give a file, or use \"sync-cli import\"")
    }
    return try invocation.withStore { store in
      var loader = LineLoader(
        store: store, source: operand.shown, failures: ItemFailures(invocation))
      try loader.run(LineReader(source))
      try store.sync()
      try invocation.report(
        "loaded \(Text.count(loader.loaded, noun: "key"))",
        json: ["loaded": .integer(loader.loaded), "failed": .integer(loader.failures.count)], output)
      try loader.failures.check()
      return .done
    }
  }.printing(JSONReference.load)
}
