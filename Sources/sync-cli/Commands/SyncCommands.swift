import Replication
import SyncStore

/// `push`, `pull` and `sync`: one session with a peer, up to its receipt.
enum SyncCommands {
  static let push = command("push", summary: "give a peer all that it lacks", direction: .push)
  static let pull = command(
    "pull", summary: "get from a peer all that is lacking here", direction: .pull,
    options: [
      Option(
        "prefix", value: "P", repeats: true,
        "in a copy that holds only some keys, also hold those that begin with P from now on; \"\" for all keys"
      )
    ])
  static let sync = command(
    "sync", summary: "bring this copy and a peer into step, both ways at once", direction: .both)

  private static func command(
    _ name: String, summary: String, direction: SyncDirection, options: [Option] = []
  ) -> Command {
    Command(
      name, summary, operands: [Operand("PEER", .some)],
      options: options + [DiffCommand.dryRun, ItemFailures.strict],
      notes: """
        PEER is the name of a peer, a member or a relay, or host:port of any member. Ends with 0 only when everything is durable
        where it belongs: with "push" of a relay, in the relay ("relay status" shows who has read it). If it breaks, run it again: it goes on where it was. Ends with 1 when the two copies held different
        values of one write, and names the keys: they are put right by then, and both values kept ("sync-cli conflicts").
        With --dry-run the two copies are compared, and nothing is moved ("sync-cli diff" shows each key; --verbose, too).
        Several peers are met one after the other: one that fails is named, and the next one is met, unless --strict is
        given.
        """
    ) { invocation, output in
      if invocation.operands.count > 1, invocation.values["prefix"] != nil {
        throw invocation.usage(
          "--prefix", reason: "several peers are named", advice: "name the one that is to give the keys")
      }
      return try invocation.withStore { store in
        if invocation.has("dry-run") {
          for peer in invocation.operands {
            try DiffCommand.dryRun(invocation, store, with: peer.text, direction, output)
          }
          return .done
        }
        var failures = ItemFailures(invocation, isAlone: invocation.operands.count == 1)
        var code = ExitCode.done
        for peer in invocation.operands {
          let report: SessionReport
          do {
            report = try run(
              invocation, store, with: peer.text, direction, expansion: try widened(invocation, store))
          } catch {
            try recordFailure(error, of: peer, invocation, &failures)
            continue
          }
          try invocation.report(text(report), json: json(report, direction), output)
          if report.repairedKeys > 0 { code = .notFound }
        }
        try failures.check()
        return code
      }
    }.printing(JSONReference.session)
  }

  /// Records the failure of a peer. A failure of the own store is thrown, since the next peer would meet it
  /// too.
  private static func recordFailure(
    _ error: any Error, of peer: Argument, _ invocation: Invocation, _ failures: inout ItemFailures
  ) throws {
    let failure = Failure(error)
    let isAlone = invocation.operands.count == 1
    guard !isAlone, (error as? ReplicationError)?.store?.concernsOneItem ?? (error is ReplicationError) else {
      throw failure
    }
    let message =
      failure.message.hasPrefix(peer.shown) ? failure.message : "\(peer.shown): \(failure.message)"
    try failures.record(Failure(failure.code, "\(invocation.command.name) \(message)"))
  }

  /// The keys in `--prefix`; nil if it was not given.
  static func scope(_ invocation: Invocation) throws -> KeyScope? {
    guard let prefixes = invocation.values["prefix"], !prefixes.isEmpty else { return nil }
    do throws(StoreError) { return try KeyScope(prefixes: prefixes.map(\.bytes)) } catch {
      throw invocation.usage(
        "--prefix", reason: "\(error.message)",
        advice: "give the first bytes of the keys that this copy is to hold")
    }
  }

  /// The scope requested by `pull --prefix`: the current one and more. Nil if it was not given.
  private static func widened(_ invocation: Invocation, _ store: Store) throws -> KeyScope?? {
    guard let prefixes = invocation.values["prefix"], !prefixes.isEmpty else { return .none }
    guard let held = try store.scope else {
      throw invocation.usage("--prefix", reason: "this copy holds all keys already", advice: "leave it out")
    }
    if prefixes.contains(where: { $0.bytes.isEmpty }) { return .some(nil) }
    return .some(try scope(invocation).map { try held.union($0) })
  }

  /// Runs one session, with a progress bar on a terminal; `expansion` expands the scope to these keys.
  static func run(
    _ invocation: Invocation, _ store: Store, with peer: String, _ direction: SyncDirection,
    expansion: KeyScope?? = .none
  ) throws -> SessionReport {
    let bar = Locked(Progress(invocation.command.name, totalBytes: 0, enabled: invocation.showsProgress))
    defer { bar.withLock { $0.finish() } }
    let node = try Node(store: store, configuration: invocation.nodeConfiguration)
    let shows = invocation.showsProgress
    let show: @Sendable (SessionProgress) -> Void = { progress in
      guard shows else { return }
      bar.withLock { $0.show { Self.lines(progress, seconds: $0) } }
    }
    if let scope = expansion {
      return try blocking { try await node.widen(to: scope, from: peer, progress: show) }
    }
    return try blocking { try await node.synchronize(with: peer, direction: direction, progress: show) }
  }

  /// Texts for the progress bar, longest first. The share is one of records, since the remaining bytes are
  /// not known.
  static func lines(_ progress: SessionProgress, seconds: Double) -> [String] {
    let done = progress.sentRecords + progress.receivedRecords
    let total = max(done, progress.recordsToSend + progress.recordsToReceive)
    let bytes = progress.sentBytes + progress.receivedBytes
    let left = done > 0 && total > done ? seconds / Double(done) * Double(total - done) : 0
    let records = "\(done) of \(Text.count(total, noun: "record"))"
    let blobs = Text.count(progress.sentBlobs + progress.receivedBlobs, noun: "blob")
    let speed = "\(Text.size(Int(Double(bytes) / max(seconds, 0.001))))/s"
    let end = left > 0 ? ", \(Text.duration(seconds: left)) left" : ""
    return [
      "\(records), \(blobs), \(Text.size(bytes)), \(speed)\(end)", "\(records), \(blobs), \(speed)\(end)",
      "\(records), \(speed)\(end)", "\(records)\(end)", "\(done) of \(total)\(end)", "\(done) of \(total)",
      "\(done)",
    ]
  }

  private static func moved(records: Int, blobs: Int, bytes: UInt64) -> String {
    "\(Text.count(records, noun: "record")), \(Text.count(blobs, noun: "blob")), \(Text.size(bytes))"
  }

  /// The line of statistics of a relay.
  private static func text(_ report: SessionReport, of relay: RelayReport) -> String {
    var text =
      "\(report.peer): published \(moved(records: report.sentRecords, blobs: report.sentBlobs, bytes: report.sentBytes));"
      + " read \(moved(records: report.receivedRecords, blobs: report.receivedBlobs, bytes: report.receivedBytes));"
      + " \(Text.count(report.roundTrips, noun: "request")) in \(Text.decimal(report.seconds)) s;"
      + " position \(report.position), digest \(report.digest)"
    if relay.waitingEntries > 0 {
      text +=
        "; \(Text.count(relay.waitingEntries, noun: "entry", plural: "entries")) wait for others to come"
    }
    if relay.unknownDevices > 0 {
      text +=
        "; \(Text.count(relay.unknownDevices, noun: "device")) there not known as a member yet: one that knows it has to publish"
    }
    if relay.missingBlobs > 0 {
      text += "; \(Text.count(relay.missingBlobs, noun: "large value")) not there yet"
    }
    if !relay.setAside.isEmpty {
      text += "; \(Text.count(relay.setAside.count, noun: "object")) set aside"
    }
    return text
  }

  /// The line of statistics.
  static func text(_ report: SessionReport) -> String {
    if let relay = report.relay { return text(report, of: relay) }
    return
      "\(report.peer): sent \(moved(records: report.sentRecords, blobs: report.sentBlobs, bytes: report.sentBytes));"
      + " received \(moved(records: report.receivedRecords, blobs: report.receivedBlobs, bytes: report.receivedBytes));"
      + " \(Text.count(report.roundTrips, noun: "round trip")) in \(Text.decimal(report.seconds)) s;"
      + " position \(report.position), digest \(report.digest)"
      + (report.leavesBlobsOut ? "; it leaves large values out" : "")
  }

  private static func adding(_ relay: RelayReport, _ direction: SyncDirection, to figures: JSON) -> JSON {
    var figures = figures
    if direction != .pull { figures = figures.with("delivered", .string("relay")) }
    if relay.waitingEntries > 0 { figures = figures.with("waiting_entries", .integer(relay.waitingEntries)) }
    if relay.unknownDevices > 0 { figures = figures.with("unknown_devices", .integer(relay.unknownDevices)) }
    if relay.missingBlobs > 0 { figures = figures.with("missing_blobs", .integer(relay.missingBlobs)) }
    guard !relay.setAside.isEmpty else { return figures }
    return figures.with(
      "set_aside",
      .array(relay.setAside.map { ["object": .string($0.object), "reason": .string($0.reason)] }))
  }

  /// The statistics as JSON; the names of its members are stable.
  static func json(_ report: SessionReport, _ direction: SyncDirection = .pull) -> JSON {
    var figures: JSON = [
      "peer": .string(report.peer), "sent_records": .integer(report.sentRecords),
      "received_records": .integer(report.receivedRecords), "sent_blobs": .integer(report.sentBlobs),
      "received_blobs": .integer(report.receivedBlobs), "sent_bytes": .integer(report.sentBytes),
      "received_bytes": .integer(report.receivedBytes), "round_trips": .integer(report.roundTrips),
      "seconds": .real(report.seconds), "position": .integer(report.position),
      "digest": .string("\(report.digest)"),
    ]
    if let relay = report.relay { figures = adding(relay, direction, to: figures) }
    if report.leavesBlobsOut { figures = figures.with("leaves_blobs_out", .bool(true)) }
    guard report.repairedKeys > 0 else { return figures }
    return figures.with("repaired_keys", .integer(report.repairedKeys))
      .with("repaired", .array(report.repaired.map { JSON.object([KeyLine.member($0.bytes)]) }))
  }
}
