import Replication
import SyncStore

/// `relay check`, `relay status` and `relay gc`.
enum RelayCommands {
  private static let name = [Operand("NAME")]

  private static func node(_ invocation: Invocation, _ store: Store) throws -> Node {
    try Node(store: store, configuration: invocation.nodeConfiguration)
  }

  // MARK: - relay check

  static let check = Command(
    "relay check", "try every right that a relay needs", operands: name,
    notes: """
      A line for each: "ok", "missing", or "without" for what the relay works without. Ends with 3 if something that it needs is
      missing. One object is written for this, and deleted again.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let node = try node(invocation, store)
      let checks = try blocking {
        try await node.check(relay: invocation.operands[0].text)
      }
      for check in checks {
        let word = check.works ? "ok" : check.isOptional ? "without" : "missing"
        if invocation.wantsJSON {
          let json: JSON = [
            "right": .string(check.subject.rawValue), "result": .string(word),
            "message": .string(check.message),
          ]
          try output.line(json)
        } else {
          let reason = check.message.isEmpty ? "" : ": \(Text.printable(check.message.utf8))"
          try output.line("\(word) \(check.subject.rawValue)\(reason)")
        }
      }
      return checks.allSatisfy { $0.works || $0.isOptional } ? .done : .refused
    }
  }.printing(JSONReference.relayCheck)

  // MARK: - relay status

  static let status = Command(
    "relay status", "show what a relay holds, and which member has read what", operands: name,
    notes: """
      For each member: how many entries it has published and this copy has yet to read, whether it has read all of this copy's, and
      how old its last news are. A member states what it has read with "push" and "sync", and a daemon does so every ten minutes.
      Nothing is changed. It lists all objects: for a bucket, a request for each 1,000.

      The requests are those of this copy so far: of all commands, and of a daemon up to its last full hour; "/status.json" has the
      present ones. With the prices that "peer add --prices" was given, they and what is stored are shown as money.
      """
  ) { invocation, output in
    try invocation.withStore(toWrite: false) { store in
      let node = try node(invocation, store)
      let status = try blocking {
        try await node.status(ofRelay: invocation.operands[0].text)
      }
      let now = store.environment.now()
      if invocation.wantsJSON {
        try output.line(json(status))
      } else {
        for line in lines(status, at: now) { try output.line(line) }
      }
      return .done
    }
  }.printing(JSONReference.relayStatus)

  private static func lines(_ status: RelayStatus, at now: UInt64) -> [String] {
    let location = Text.printable(status.location.utf8)
    guard status.relay != nil else {
      return ["\(status.name) \(location): empty: no member has published there yet"]
    }
    func objects(_ objects: RelayStatus.Objects) -> String {
      "\(Text.count(objects.count, noun: "object")), \(Text.size(objects.bytes))"
    }
    var lines = [
      "\(status.name) \(location): \(objects(status.total))",
      "entries \(objects(status.entries)); checkpoints \(objects(status.checkpoints)); large values \(objects(status.blobs))",
    ]
    if status.foreign.count > 0 { lines.append("foreign \(objects(status.foreign)): ignored") }
    if status.hasUnpublished { lines.append("this copy has something new: \"sync-cli push \(status.name)\"") }
    lines += RelayCosts(status).lines
    for member in status.members { lines.append(line(member, at: now)) }
    return lines
  }

  private static func line(_ member: RelayStatus.Member, at now: UInt64) -> String {
    guard let news = member.news else { return "\(member.name): never seen there" }
    let age = Text.duration(seconds: Double(now - min(now, news)) / 1000)
    let entries = Text.count(member.published, noun: "entry", plural: "entries")
    guard !member.isSelf else { return "\(member.name): this copy, \(entries), last news \(age) ago" }
    let read = member.hasAll ? "has read all of this copy" : "has read \(member.seen) of this copy's"
    let unread = member.unread > 0 ? ", \(member.unread) unread here" : ""
    let wanted =
      member.wantedBlobs > 0 ? ", asks for \(Text.count(member.wantedBlobs, noun: "large value"))" : ""
    return "\(member.name): \(entries)\(unread), \(read), last news \(age) ago\(wanted)"
  }

  private static func json(_ status: RelayStatus) -> JSON {
    func objects(_ objects: RelayStatus.Objects) -> JSON {
      ["objects": .integer(objects.count), "bytes": .integer(objects.bytes)]
    }
    let members = status.members.map { member -> JSON in
      let json: JSON = [
        "name": .string(member.name), "device": .string("\(member.device)"), "self": .bool(member.isSelf),
        "published": .integer(member.published), "unread": .integer(member.unread),
        "seen": .integer(member.seen), "has_all": .bool(member.hasAll),
        "wanted_blobs": .integer(member.wantedBlobs),
      ]
      return json.with("news_ms", member.news.map { .integer($0) })
    }
    let json: JSON = [
      "name": .string(status.name), "location": .string(status.location),
      "total": objects(status.total), "entries": objects(status.entries),
      "checkpoints": objects(status.checkpoints), "blobs": objects(status.blobs),
      "foreign": objects(status.foreign), "unpublished": .bool(status.hasUnpublished),
      "members": .array(members), "requests": .integer(status.figures.total),
    ]
    let costs = RelayCosts(status)
    return json.with("relay", status.relay.map { .string($0) })
      .with("usage", costs.usageJSON).with("cost", costs.costJSON)
      .with("clock_offset_ms", status.clockOffset.map { .integer($0) })
  }

  // MARK: - relay gc

  static let collect = Command(
    "relay gc", "delete what a relay need not keep", operands: name, options: [DiffCommand.dryRun],
    notes: """
      What goes: entries of this copy that every member has read and a checkpoint covers, older checkpoints of it, and objects that
      nothing refers to, a day after they were named for it. Reads everything first. A daemon does this once a
      day for each of its relays; "/status.json" and the metrics show when it last did.
      """
  ) { invocation, output in
    try invocation.withStore { store in
      let node = try node(invocation, store)
      let isDryRun = invocation.has("dry-run")
      let report = try blocking {
        try await node.collect(relay: invocation.operands[0].text, isDryRun: isDryRun)
      }
      let json: JSON = [
        "relay": .string(report.relay), "deleted_objects": .integer(report.collectedObjects),
        "deleted_bytes": .integer(report.collectedBytes), "doomed_objects": .integer(report.doomedObjects),
      ]
      let verb = isDryRun ? "would delete" : "deleted"
      try invocation.report(
        "\(report.relay): \(verb) \(Text.count(report.collectedObjects, noun: "object")), \(Text.size(report.collectedBytes));"
          + " \(Text.count(report.doomedObjects, noun: "object")) can go in a day",
        json: isDryRun ? json.with("dry_run", .bool(true)) : json, output)
      return .done
    }
  }.printing(JSONReference.relayCollection)
}
