import SyncStore

/// `log`: records of the journal, in either direction, or as they are written.
extension InspectCommands {
  static let log = Command(
    "log", "show the records of the journal, decoded",
    options: [
      Option("from", value: "POSITION", "begin there (default: 1, or the end with --reverse)"),
      Option("limit", value: "N", "at most N records"),
      Option("reverse", "the newest first"),
      Option("follow", "go on with what is written from now on, until interrupted"),
    ],
    notes: """
      Each line has the position, the time, what was written, its size, the key, and the write's actor and sequence.
      On a terminal it shows the last \(recentRecords) unless --from, --limit or --json is given. With --follow and --limit it ends after N
      records; SIGINT, SIGTERM and SIGHUP end it with 0.
      """
  ) { invocation, output in
    guard !invocation.has("reverse") || !invocation.has("follow") else {
      throw invocation.usage(
        "--reverse and --follow", reason: "what is to come has no end to begin at", advice: "leave out one")
    }
    let from = try invocation.integer("from", in: 0...UInt64.max)
    var left = try invocation.integer("limit", in: 1...Int.max) ?? .max
    let showsRecent = output.isTerminal && !invocation.wantsJSON && from == nil && left == .max
    let opening = try invocation.opening(toWrite: false)
    // Threads inherit the mask, and opening a store starts some.
    if invocation.has("follow") { System.blockSignals() }
    return try invocation.withStore(opening) { store in
      if invocation.has("reverse") {
        if showsRecent { left = recentRecords }
        try showReversed(store, before: from.map { $0 == .max ? $0 : $0 + 1 } ?? .max, limit: left) {
          try show($0, invocation: invocation, output: output)
        }
        return .done
      }
      var next = from ?? 1
      if showsRecent {
        let recent = try store.log(limit: recentRecords).reversed()
        for entry in recent { try show(entry, invocation: invocation, output: output) }
        next = recent.last.map { $0.position + 1 } ?? 1
        guard invocation.has("follow") else { return .done }
      }
      let each: (LogEntry) throws -> Void = { try show($0, invocation: invocation, output: output) }
      try showAll(store, from: &next, left: &left, each)
      if invocation.has("follow") { try follow(store, from: next, left: left, output, each) }
      return .done
    }
  }.printing(JSONReference.log)

  /// Records shown on a terminal, which a journal of millions would flood.
  private static let recentRecords = 10
  private static let pageRecords = 1000

  /// Shows up to `left` records from `next` on, and moves both.
  private static func showAll(
    _ store: Store, from next: inout UInt64, left: inout Int, _ show: (LogEntry) throws -> Void
  ) throws {
    while left > 0 {
      let page = try store.log(from: next, limit: min(left, pageRecords))
      guard let last = page.last else { return }
      for entry in page { try show(entry) }
      left -= page.count
      next = last.position + 1
    }
  }

  private static func showReversed(
    _ store: Store, before position: UInt64, limit: Int, _ show: (LogEntry) throws -> Void
  ) throws {
    var (left, end) = (limit, position)
    while left > 0 {
      let page = try store.log(before: end, limit: min(left, pageRecords))
      guard let last = page.last else { return }
      for entry in page.prefix(left) { try show(entry) }
      (left, end) = (left - min(left, page.count), last.position)
    }
  }

  /// Shows what is written, up to `left` records, until a signal ends the command. A reader that has gone
  /// ends it as a write to its pipe would.
  private static func follow(
    _ store: Store, from next: UInt64, left: Int, _ output: Output, _ show: (LogEntry) throws -> Void
  ) throws {
    try StopRequest.following(giveUp: { System.exit(.done) }) { stop in
      // Records that are no writes have positions, too: `next` may never reach the last one.
      var (next, left, last) = (next, left, UInt64(0))
      while true {
        try output.flush()
        guard !output.hasLostReader else {
          throw Failure(
            .inputOutput, "log: standard output: its reader has gone: nothing to do", cause: .brokenPipe)
        }
        guard left > 0, !stop.isMade else { return }
        let seen = last
        guard let found = try blocking(until: stop, { try await store.lastPosition(after: seen) }) else {
          continue
        }
        last = found
        try showAll(store, from: &next, left: &left, show)
      }
    }
  }

  private static func show(_ entry: LogEntry, invocation: Invocation, output: Output) throws {
    if invocation.wantsJSON { try output.line(json(entry)) } else { try output.line(text(entry)) }
  }

  private static func text(_ entry: LogEntry) -> String {
    let kind = entry.isTombstone ? "delete" : entry.blob != nil ? "blob  " : "put   "
    let key = entry.key.map { Text.printable($0.bytes) } ?? "(the store's own)"
    return "\(entry.position)  \(Text.date(milliseconds: entry.stamp.milliseconds))  \(kind)  "
      + "\(Text.size(entry.size))  \(key)  \(entry.dot.actor):\(entry.dot.sequence)\(entry.isCurrent ? "" : "  (superseded)")"
      + ahead(entry)
  }

  /// Marks a write stamped so far ahead that other copies park it.
  private static func ahead(_ entry: LogEntry) -> String {
    let counts = Store.applicationTime(of: entry.stamp)
    guard counts > System.wallMilliseconds else { return "" }
    return "  (stamped ahead: counts elsewhere from \(Text.date(milliseconds: counts)) on)"
  }
}
