import SyncStore

/// `list`: lists keys.
enum ListCommand {
  static let command = Command(
    "list", "show the keys, in the order of their bytes, one a line", aliases: ["ls", "keys"],
    operands: [Operand("PREFIX", .optional)],
    options: [
      Option("long", "with type, size and the time of the write"),
      Option("limit", value: "N", "at most N keys"),
      Option("after", value: "KEY", "only keys above KEY"),
    ],
    notes:
      "Ends with 5 if damaged records leave open which keys there are: those that can be read are shown first."
  ) { invocation, output in
    let after = try invocation.value("after").map { try Key(bytes: $0.bytes) }
    let limit = try invocation.integer("limit", in: 1...Int.max) ?? .max
    return try invocation.withStore(toWrite: false) { store in
      let range = KeyRange(prefix: invocation.prefix(invocation.operands.first))
      let (last, losses) = try store.snapshot().scanReadable(range, after: after, limit: limit) { entry in
        if invocation.wantsJSON {
          try output.line(json(entry))
        } else {
          if invocation.has("long") { try output.write(Array(columns(entry).utf8)) }
          try output.write(output.shown(key: entry.key.bytes) + [0x0A])
        }
      }
      var failures = ItemFailures(invocation)
      try failures.record(losses, upTo: last)
      try failures.check()
      return .done
    }
  }

  private static func columns(_ entry: Entry) -> String {
    let size = String(entry.size)
    let type = entry.type.description
    return type + String(repeating: " ", count: max(1, 8 - type.count))
      + String(repeating: " ", count: max(0, 12 - size.count)) + size + "  "
      + Text.date(milliseconds: entry.stamp.milliseconds) + "  "
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
