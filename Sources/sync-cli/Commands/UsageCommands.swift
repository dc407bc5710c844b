import SyncStore

/// `count` and `du`: how many keys there are, and the bytes they take.
enum UsageCommands {
  static let count = Command(
    "count", "count the keys", operands: [Operand("PREFIX", .optional)],
    notes: "The number stands alone on standard output. Ends with 5 if damaged records leave it open."
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let prefix = invocation.prefix(invocation.operands.first)
      var (keys, failures) = (0, ItemFailures(invocation))
      let losses = try store.snapshot().scanReadable(KeyRange(prefix: prefix)) { _ in keys += 1 }.doubts
      if invocation.wantsJSON {
        try output.line(["prefix": KeyLine.prefix(prefix), "keys": .integer(keys)])
      } else {
        try output.line("\(keys)")
      }
      try failures.record(losses)
      try failures.check()
      return .done
    }
  }.printing(JSONReference.count)

  static let du = Command(
    "du", "show the bytes of keys and values, largest first", operands: [Operand("PREFIX", .optional)],
    options: [
      Option("depth", value: "N", "also for each path of up to N parts below PREFIX (default: 0)"),
      Option("separator", value: "S", "what ends a part (default: /)"),
      Option("human", "sizes in KiB, MiB …; a terminal shows them anyway"),
    ],
    notes: """
      Each line has the bytes, the keys, the large values among them (blobs), and the path, with tabs between them; "." is the
      whole store. Bytes are those of keys and values, each value counted in full: equal large values share their space on disk,
      and the journal has a header for each record. "sync-cli status" shows what the files take.
      """
  ) { invocation, output in
    let depth = try invocation.integer("depth", in: 0...Limits.keyBytes) ?? 0
    let separator = invocation.value("separator")?.bytes ?? [UInt8(ascii: "/")]
    guard !separator.isEmpty else {
      throw invocation.usage("--separator", reason: "it is empty", advice: "give / or :")
    }
    return try invocation.withStore(toWrite: false) { store in
      var tree = UsageTree(prefix: invocation.prefix(invocation.operands.first), depth: depth, separator)
      var failures = ItemFailures(invocation)
      let losses = try store.snapshot().scanReadable(KeyRange(prefix: tree.prefix)) { tree.add($0) }.doubts
      let isHuman = invocation.has("human") || output.isTerminal
      for (path, usage) in tree.sorted {
        if invocation.wantsJSON {
          try output.line(usage.json(path))
        } else {
          let columns = Array((isHuman ? usage.humanColumns : usage.columns).utf8)
          try output.write(columns + (path.isEmpty ? [UInt8(ascii: ".")] : output.shown(key: path)) + [0x0A])
        }
      }
      try failures.record(losses)
      try failures.check()
      return .done
    }
  }.printing(JSONReference.du)
}

/// What the keys below one path take.
struct Usage: Equatable {
  var keys = 0
  var keyBytes: UInt64 = 0
  var valueBytes: UInt64 = 0
  /// Large values among them, by key: shared content counts each time.
  var blobs = 0
  var blobBytes: UInt64 = 0
  var bytes: UInt64 { keyBytes + valueBytes }

  mutating func add(_ entry: Entry) {
    keys += 1
    keyBytes += UInt64(entry.key.bytes.count)
    valueBytes += entry.size
    guard entry.blob != nil else { return }
    blobs += 1
    blobBytes += entry.size
  }

  fileprivate var columns: String { "\(bytes)\t\(keys)\t\(blobs)\t" }

  fileprivate var humanColumns: String {
    Text.padded(Text.size(bytes), to: 10) + "  " + Text.padded(Text.count(keys, noun: "key"), to: 13) + "  "
      + Text.padded(Text.count(blobs, noun: "blob"), to: 11) + "  "
  }

  fileprivate func json(_ path: [UInt8]) -> JSON {
    [
      "prefix": KeyLine.prefix(path), "bytes": .integer(bytes), "keys": .integer(keys),
      "key_bytes": .integer(keyBytes), "value_bytes": .integer(valueBytes), "blobs": .integer(blobs),
      "blob_bytes": .integer(blobBytes),
    ]
  }
}

/// Sums for a prefix and the paths below it.
private struct UsageTree {
  let prefix: [UInt8]
  private let depth: Int
  private let separator: [UInt8]
  private var sums: [[UInt8]: Usage]

  init(prefix: [UInt8], depth: Int, _ separator: [UInt8]) {
    (self.prefix, self.depth, self.separator) = (prefix, depth, separator)
    sums = [prefix: Usage()]
  }

  mutating func add(_ entry: Entry) {
    sums[prefix, default: Usage()].add(entry)
    let key = entry.key.bytes
    var (end, level) = (prefix.count, 0)
    while level < depth, let next = Self.end(of: separator, in: key, from: end) {
      sums[Array(key[..<next]), default: Usage()].add(entry)
      (end, level) = (next, level + 1)
    }
  }

  /// The end of the first separator at or after `start`.
  private static func end(of separator: [UInt8], in key: [UInt8], from start: Int) -> Int? {
    guard start + separator.count <= key.count else { return nil }
    return (start...(key.count - separator.count)).first { key[$0...].starts(with: separator) }
      .map { $0 + separator.count }
  }

  /// The most bytes first, a path before those below it.
  var sorted: [(path: [UInt8], usage: Usage)] {
    sums.sorted { first, second in
      first.value.bytes == second.value.bytes
        ? first.key.lexicographicallyPrecedes(second.key) : first.value.bytes > second.value.bytes
    }
    .map { ($0.key, $0.value) }
  }
}
