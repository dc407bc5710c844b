import SyncStore

/// `digest` and `conflicts list`, and how entries of the journal are shown.
enum InspectCommands {
  // MARK: - digest

  static let digest = Command(
    "digest", "show the state digest, equal on two copies in step",
    options: [Option("long", "with the version vector: a line \"actor sequence\" for each actor")]
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let digest = try store.digest()
      let vector = invocation.has("long") ? try store.versionVector() : nil
      if invocation.wantsJSON {
        let entries = vector.map { vector in
          JSON.object(vector.actors.map { JSON.Member(name: $0.description, value: .integer(vector[$0])) })
        }
        try output.line(
          JSON.object([.init(name: "digest", value: .string("\(digest)"))]).with("vector", entries))
      } else {
        try output.line("\(digest)")
        for actor in vector?.actors ?? [] { try output.line("\(actor) \(vector?[actor] ?? 0)") }
      }
      return .done
    }
  }.printing(JSONReference.digest)

  // MARK: - Entries

  static func json(_ entry: LogEntry) -> JSON {
    JSON.object(
      [
        .init(name: "position", value: .integer(entry.position)),
        .init(name: "stamp", value: .string("\(entry.stamp)")),
        .init(name: "actor", value: .string("\(entry.dot.actor)")),
        .init(name: "sequence", value: .integer(entry.dot.sequence)),
        .init(name: "version", value: .string("\(entry.dot)")),
        .init(name: "kind", value: entry.isTombstone ? "delete" : "put"),
      ] + (entry.key.map { [KeyLine.member($0.bytes)] } ?? [])
    )
    .with("type", entry.isTombstone ? nil : .string("\(entry.type)"))
    .with("size", .integer(entry.size)).with("base", entry.base.map { .string("\($0)") })
    .with("blob", entry.blob.map { .string("\($0.hash)") }).with(
      "expires", entry.deadline.map { .integer($0) }
    )
    .with("current", .bool(entry.isCurrent))
  }

  /// `json` with the written value, as in the lines of `dump`; without it for a delete and a large value.
  static func valued(_ entry: LogEntry) -> JSON {
    let json = json(entry)
    guard case .object(let members) = json, !entry.isTombstone, let value = entry.value else { return json }
    return .object(members + ValueText.members(value, entry.type).filter { $0.name != "type" })
  }

  static func stamp(_ entry: LogEntry) -> String {
    "\(Text.date(milliseconds: entry.stamp.milliseconds)) (\(entry.stamp))"
  }

  /// The written content, as text if it is short.
  static func content(_ entry: LogEntry) -> String {
    if entry.isTombstone { return "deleted" }
    if let value = entry.value, entry.type != .string, value.count <= 1000,
      let shown = ValueText.shown(value, entry.type)
    {
      let text = Text.printable(shown.encoded)
      return text.count <= 60 ? "\(text) of \(entry.type)" : "\(text.prefix(60))… of \(entry.type)"
    }
    if let value = entry.value, value.count <= 60, String(validating: value, as: UTF8.self) != nil {
      return "\"\(Text.printable(value))\""
    }
    return "\(Text.size(entry.size)) of \(entry.type)"
  }

  // MARK: - conflicts

  static let conflicts = Command(
    "conflicts list", "show concurrent values that were beaten and are kept, newest first",
    notes: "\"sync-cli conflicts\" alone does the same."
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      var failures = ItemFailures(invocation)
      var unreadable: [StoreError] = []
      for entry in try store.conflicts(unreadable: { unreadable.append($0) }) {
        if invocation.wantsJSON {
          try output.line(valued(entry))
        } else {
          try output.line("\(stamp(entry))  \(Text.printable(entry.key?.bytes ?? []))  \(content(entry))")
        }
      }
      for error in unreadable { try failures.record(Failure(StoreError(error, to: "conflicts list"))) }
      try failures.check()
      return .done
    }
  }.printing(JSONReference.conflicts)
}
