import Replication
import SyncStore

/// `status`: sizes, counts, and the progress of the other copies.
enum StatusCommand {
  static let command = Command(
    "status", "show sizes, counts, members and what needs attention",
    options: [
      Option("check", "only what needs attention, a line for each; ends with 1 if there is anything"),
      Option("max-lag", value: "SPAN", "with --check: also members that lack a write older than SPAN"),
      Option("watch", "again and again, until interrupted"),
      Option("interval", value: "SPAN", "with --watch: the time between two (default: 2s)"),
    ],
    notes: """
      --check names damage, a copy that needs another one's state, refused writes, clocks, members never met or out of reach of the
      daemon, and with --max-lag those that are late. A line has a word for scripts, a colon and the text; "ok" stands alone.
      --watch renews the screen of a terminal; elsewhere it writes one report after the other. SIGINT, SIGTERM and SIGHUP end it
      with 0. Each report visits every key.
      """
  ) { invocation, output in
    for (option, needed) in [("max-lag", "check"), ("interval", "watch")]
    where invocation.has(option) && !invocation.has(needed) {
      throw invocation.usage("--\(option)", reason: "it belongs to --\(needed)", advice: "give that, too")
    }
    let lag = try invocation.milliseconds("max-lag")
    guard invocation.has("watch") else {
      return try invocation.withStore(toWrite: false) { store in
        guard invocation.has("check") else {
          try show(store, invocation: invocation, output: output)
          return .done
        }
        return try StatusCheck(store, maximumLag: lag).report(invocation, output)
      }
    }
    guard !invocation.has("check") else {
      throw invocation.usage(
        "--check and --watch", reason: "they exclude each other", advice: "leave out one")
    }
    return try watch(invocation, output)
  }.printing(JSONReference.status)

  private static let usualIntervalMilliseconds: UInt64 = 2000

  private static func watch(_ invocation: Invocation, _ output: Output) throws -> ExitCode {
    let seconds = Double(try invocation.milliseconds("interval") ?? usualIntervalMilliseconds) / 1000
    let opening = try invocation.opening(toWrite: false)
    // Threads inherit the mask, and opening a store starts some.
    System.blockSignals()
    return try invocation.withStore(opening) { store in
      try StopRequest.following(giveUp: { System.exit(.done) }) { stop in
        var isFirst = true
        repeat {
          // Clears what is below the cursor after moving it to the first line.
          if output.isTerminal { try output.write(Array("\u{1B}[H\u{1B}[J".utf8)) }
          if !isFirst, !output.isTerminal, !invocation.wantsJSON { try output.line("") }
          try show(store, invocation: invocation, output: output)
          try output.flush()
          isFirst = false
          try blocking(until: stop) { try? await Task.sleep(for: .seconds(seconds)) }
        } while !stop.isMade && !output.hasLostReader
      }
      return .done
    }
  }

  /// The object that `status --json` prints.
  static func json(of store: Store) throws -> JSON {
    let trim = try store.lastBlobTrim()
    let denial = try denial(of: store)
    let prefixes = try store.scope.map { JSON.array($0.prefixes.map(KeyLine.prefix)) }
    return json(
      store, actor: try store.actor, status: try store.status(), absent: try store.absentValues(),
      trim: trim?.report, time: trim?.time
    )
    .with("prefixes", prefixes)
    .with("revoked", .bool(denial == .revoked)).with("members", (try? OtherCopies.json(store)) ?? .null)
    .with("daemon", try DaemonReport.read(store) ?? .null).with("health", try StoreHealth(store, denial).json)
  }

  /// The statistics are valid even if the keys cannot be read.
  private static func denial(of store: Store) throws -> WriteDenial? {
    try store.writeDenial ?? (try? Membership(store).own())?.right.denial
  }

  private static func show(_ store: Store, invocation: Invocation, output: Output) throws {
    guard !invocation.wantsJSON else { return try output.line(json(of: store)) }
    let (status, actor) = (try store.status(), try store.actor)
    let (absent, trim) = (try store.absentValues(), try store.lastBlobTrim())
    let daemon = try DaemonReport.read(store)
    let health = try StoreHealth(store, denial(of: store))
    for line in lines(store, actor: actor, status: status)
      + lines(absent: absent, trim: trim?.report, time: trim?.time)
    {
      try output.line(line)
    }
    for line in DaemonReport.lines(daemon) { try output.line(line) }
    for line in (try? OtherCopies.lines(store)) ?? [] { try output.line(line) }
    for line in health.lines { try output.line(line) }
    if let scope = try store.scope {
      let more = try store.isWidening ? "; more are still to come: see \"sync-cli pull\"" : ""
      try output.line(
        "holds      only keys that begin with \(Text.printable(scope.description.utf8))\(more)")
    }
  }

  private static func lines(_ store: Store, actor: ActorID, status: StoreStatus) -> [String] {
    var lines = [
      "store      \(store.name), \(store.path)", "id         \(store.id)", "actor      \(actor)",
      "keys       \(status.keys), \(Text.size(status.liveBytes)); \(status.tombstones) deleted",
      "blobs      \(Text.count(status.blobKeys, noun: "key")), \(Text.size(status.blobBytes))",
      "journal    \(Text.count(status.segments, noun: "segment")), \(Text.size(status.journalBytes)), position \(status.position)",
    ]
    if status.conflicts > 0 {
      lines.append("conflicts  \(status.conflicts) beaten values are kept: see \"sync-cli conflicts list\"")
    }
    if status.parked > 0 {
      lines.append(
        "parked     \(Text.count(status.parked, noun: "key")) waiting for a time that the clock has not reached"
      )
    }
    if status.damagedPlaces > 0 {
      lines.append("damaged    \(Text.count(status.damagedPlaces, noun: "place")): see \"sync-cli verify\"")
    }
    if let warning = store.clockWarning { lines.append("clock      \(warning)") }
    return lines
  }

  private static func lines(absent: AbsentValues, trim: BlobTrimReport?, time: UInt64?) -> [String] {
    var lines: [String] = []
    let elsewhere = [
      (absent.leftOut, absent.leftOutBytes, "left out by the policy"),
      (absent.evicted, absent.evictedBytes, "left to keep the limits"),
      (absent.awaited, absent.awaitedBytes, "still to come"),
    ].filter { $0.0 > 0 }.map { "\($0.0) \($0.2) (\(Text.size($0.1)))" }
    if !elsewhere.isEmpty { lines.append("elsewhere  " + elsewhere.joined(separator: ", ")) }
    if let trim, let time {
      lines.append("trimmed    \(Text.date(milliseconds: time)): \(TierCommands.text(trim))")
    }
    return lines
  }

  private static func json(
    _ store: Store, actor: ActorID, status: StoreStatus, absent: AbsentValues, trim: BlobTrimReport?,
    time: UInt64?
  ) -> JSON {
    let lastTrim = trim.map { TierCommands.json($0).with("time_ms", .integer(time ?? 0)) } ?? .null
    return [
      "name": .string(store.name), "path": .string(store.path), "store": .string("\(store.id)"),
      "actor": .string("\(actor)"), "keys": .integer(status.keys), "bytes": .integer(status.liveBytes),
      "tombstones": .integer(status.tombstones), "blob_keys": .integer(status.blobKeys),
      "blob_bytes": .integer(status.blobBytes), "segments": .integer(status.segments),
      "journal_bytes": .integer(status.journalBytes), "position": .integer(status.position),
      "conflicts": .integer(status.conflicts), "parked": .integer(status.parked),
      "damaged_places": .integer(status.damagedPlaces), "left_out_blobs": .integer(absent.leftOut),
      "left_out_bytes": .integer(absent.leftOutBytes), "evicted_blobs": .integer(absent.evicted),
      "evicted_bytes": .integer(absent.evictedBytes), "awaited_blobs": .integer(absent.awaited),
      "awaited_bytes": .integer(absent.awaitedBytes), "last_trim": lastTrim,
    ]
  }
}
