import SyncStore

/// `list`: lists keys.
enum ListCommand {
  static let command = Command(
    "list", "show the keys, in the order of their bytes, one a line", aliases: ["ls", "keys"],
    operands: [Operand("PREFIX", .optional)],
    options: [
      Option("long", "with type, size and the time of the write"),
      Option("human", "with --long: sizes in KiB, MiB …, and the time left; a terminal shows them anyway"),
      Option("limit", value: "N", "at most N keys"),
      Option("after", value: "KEY", "only keys above KEY"),
      Option("glob", "PREFIX is a pattern that the whole key must match, such as 'user/*/name'"),
      Option("null", "also -0: end each key with a NUL instead of a line end, for xargs -0"),
    ],
    notes: """
      Ends with 5 if damaged records leave open which keys there are: those that can be read are shown first.
      In a pattern, * stands for any text without a slash, ** for any text, ? for one character but a slash, [a-z] for one of a
      set and [!a-z] for one outside of it; a backslash makes the next character literal.
      """
  ) { invocation, output in
    let after = try invocation.value("after").map { try Key(bytes: $0.bytes) }
    let limit = try invocation.integer("limit", in: 1...Int.max) ?? .max
    let glob = try pattern(invocation)
    if invocation.has("null"), invocation.wantsJSON {
      throw invocation.usage(
        "--null and --json", reason: "JSON ends with a line end", advice: "leave out one of them")
    }
    return try invocation.withStore(toWrite: false) { store in
      let range = KeyRange(prefix: glob?.literalPrefix ?? invocation.prefix(invocation.operands.first))
      var failures = ItemFailures(invocation)
      try visit(store.snapshot(), range, after: after, limit: limit, glob, &failures) { entry in
        try show(entry, invocation: invocation, output: output)
      }
      try failures.check()
      return .done
    }
  }.printing(JSONReference.list)

  private static func pattern(_ invocation: Invocation) throws(Failure) -> Glob? {
    guard invocation.has("glob") else { return nil }
    guard let operand = invocation.operands.first else {
      throw invocation.usage(
        "--glob", reason: "no pattern is given", advice: "write 'user/*/name', in quotes")
    }
    return try invocation.glob(operand, of: "pattern")
  }

  /// Keys visited at a time while a pattern decides which of them count.
  private static let pageKeys = 1000

  /// Visits at most `limit` keys that match, and records those that damage may hide.
  private static func visit(
    _ snapshot: Snapshot, _ range: KeyRange, after: Key?, limit: Int, _ glob: Glob?,
    _ failures: inout ItemFailures, _ body: (Entry) throws -> Void
  ) throws {
    var (left, next, lastShown) = (limit, after, after)
    repeat {
      let (last, losses) = try snapshot.scanReadable(
        range, after: next, limit: glob == nil || limit == .max ? left : pageKeys
      ) { entry in
        guard left > 0, glob?.matches(entry.key.bytes) ?? true else { return }
        try body(entry)
        (left, lastShown) = (left - 1, entry.key)
      }
      try failures.record(losses, upTo: left == 0 ? lastShown : last)
      next = last
    } while next != nil && left > 0
  }

  private static func show(_ entry: Entry, invocation: Invocation, output: Output) throws {
    guard !invocation.wantsJSON else { return try output.line(json(entry)) }
    if invocation.has("long") {
      let isHuman = invocation.has("human") || output.isTerminal
      try output.write(Array((isHuman ? humanColumns(entry) : columns(entry)).utf8))
    }
    let key = entry.key.bytes
    try output.write(invocation.has("null") ? key + [0] : output.shown(key: key) + [0x0A])
  }

  private static func columns(_ entry: Entry) -> String {
    let type = entry.type.description
    return type + String(repeating: " ", count: max(1, 8 - type.count))
      + Text.padded("\(entry.size)", to: 12) + "  " + Text.date(milliseconds: entry.stamp.milliseconds) + "  "
  }

  /// With the time until the value expires, or "-".
  private static func humanColumns(_ entry: Entry) -> String {
    let type = entry.type.description
    let now = System.wallMilliseconds
    let left = entry.deadline.map { Text.duration(seconds: Double($0 > now ? $0 - now : 0) / 1000) } ?? "-"
    return type + String(repeating: " ", count: max(1, 8 - type.count))
      + Text.padded(Text.size(entry.size), to: 10) + "  "
      + Text.date(milliseconds: entry.stamp.milliseconds) + "  " + Text.padded(left, to: 6) + "  "
  }

  private static func json(_ entry: Entry) -> JSON {
    JSON.object([
      KeyLine.member(entry.key.bytes), JSON.Member(name: "type", value: .string(entry.type.description)),
      JSON.Member(name: "size", value: .integer(entry.size)),
      JSON.Member(name: "stamp", value: .string(entry.stamp.description)),
    ])
    .with("expires", entry.deadline.map { .integer($0) })
    .with("blob", entry.blob.map { .string($0.hash.description) })
  }
}
