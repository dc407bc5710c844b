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
      var tree = KeyUsageTree(
        prefix: invocation.prefix(invocation.operands.first), depth: depth, separator: separator)
      var failures = ItemFailures(invocation)
      let losses = try store.snapshot().scanReadable(KeyRange(prefix: tree.prefix)) { tree.add($0) }.doubts
      let isHuman = invocation.has("human") || output.isTerminal
      for usage in tree.sorted {
        if invocation.wantsJSON {
          try output.line(usage.json)
        } else {
          let columns = Array((isHuman ? usage.humanColumns : usage.columns).utf8)
          let path = usage.path.isEmpty ? [UInt8(ascii: ".")] : output.shown(key: usage.path)
          try output.write(columns + path + [0x0A])
        }
      }
      try failures.record(losses)
      try failures.check()
      return .done
    }
  }.printing(JSONReference.du)
}

extension KeyUsage {
  fileprivate var columns: String { "\(bytes)\t\(keys)\t\(blobs)\t" }

  fileprivate var humanColumns: String {
    Text.padded(Text.size(bytes), to: 10) + "  " + Text.padded(Text.count(keys, noun: "key"), to: 13) + "  "
      + Text.padded(Text.count(blobs, noun: "blob"), to: 11) + "  "
  }

  fileprivate var json: JSON {
    [
      "prefix": KeyLine.prefix(path), "bytes": .integer(bytes), "keys": .integer(keys),
      "key_bytes": .integer(keyBytes), "value_bytes": .integer(valueBytes), "blobs": .integer(blobs),
      "blob_bytes": .integer(blobBytes),
    ]
  }
}
