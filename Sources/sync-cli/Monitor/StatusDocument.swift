import Replication
import SyncStore

/// The content of the status page, as JSON: `/status.json`.
struct StatusDocument {
  let snapshot: MonitorSnapshot
  let checks: [HealthCheck]
  let history: MonitorHistory
  let configuration: JSON
  /// The last lines of the log, which can name keys; nil for a reader who must not see any.
  let log: [DaemonLog.Line]?

  var json: JSON {
    let json: JSON = [
      "time_ms": .integer(snapshot.time), "version": .string(Program.version),
      "ok": .bool(checks.allSatisfy(\.passes)), "verdict": .string(verdict),
      "checks": .array(
        checks.map { check in
          (["name": .string(check.name), "ok": .bool(check.passes)] as JSON)
            .with("problem", check.failure.map { .string($0) })
        }),
      "store": store, "members": .array(snapshot.members.map(member)),
      "peers": .array(snapshot.node.peers.map(DaemonReport.json)),
      "relays": .array(snapshot.node.relays.map(relay)),
      "sessions": [
        "dialled": Self.json(snapshot.sessions.dialled), "accepted": Self.json(snapshot.sessions.accepted),
      ],
      "history": .array(history.samples.map(Self.json)),
      "configuration": configuration,
    ]
    return json.with("log", log.map { .array($0.map(Self.json)) })
  }

  private static func json(_ line: DaemonLog.Line) -> JSON {
    [
      "time_ms": .integer(line.time), "level": .string("\(line.level)"), "message": .string(line.message),
    ]
  }

  // MARK: Verdict

  /// The state of the copy in a sentence or two.
  var verdict: String {
    let failed = checks.filter { !$0.passes }.map(\.name)
    let trouble =
      failed.isEmpty
      ? "" : " \(failed.count == 1 ? "A check fails" : "Checks fail"): \(failed.joined(separator: ", "))."
    return membersInWords + trouble
  }

  private var membersInWords: String {
    // Those that this copy never meets get its writes through others.
    let members = snapshot.members.filter { !$0.isIndirect }
    guard !members.isEmpty else { return "This copy has no other members yet." }
    let late = members.filter { !$0.isInStep }
    let count = members.count
    guard !late.isEmpty else {
      return count == 1 ? "In step with \(shown(members[0]))." : "In step with all \(count) members."
    }
    let sum =
      late.count == count
      ? (count == 1 ? "Not in step" : "In step with none of \(count) members")
      : "In step with \(count - late.count) of \(Text.count(count, noun: "member"))"
    let named = late.prefix(3).map(inWords)
    let more = late.count > named.count ? "; and \(late.count - named.count) more" : ""
    return "\(sum): \(named.joined(separator: "; "))\(more)."
  }

  private func inWords(_ member: MonitorSnapshot.MemberFigures) -> String {
    let keys =
      (member.isBounded ? "more than " : "")
      + "\(Self.grouped(member.lacking)) \(member.lacking == 1 ? "key" : "keys")"
    guard let seen = member.lastSeen else { return "\(shown(member)) was not met yet" }
    let lacks = "lacks \(keys)"
    guard !member.counters.isConnected, snapshot.time > seen + 60_000 else {
      return "\(shown(member)) \(lacks)"
    }
    let span = Text.duration(seconds: Double(snapshot.time - seen) / 1000)
    return "\(shown(member)) was not seen for \(span) and \(lacks)"
  }

  private func shown(_ member: MonitorSnapshot.MemberFigures) -> String { Text.printable(member.name.utf8) }

  /// A number with a comma before every third digit.
  private static func grouped(_ number: Int) -> String {
    var text = ""
    let digits = String(number)
    for (place, digit) in digits.enumerated() {
      if place > 0, (digits.utf8.count - place).isMultiple(of: 3) { text += "," }
      text.append(digit)
    }
    return text
  }

  // MARK: Parts

  private var store: JSON {
    let (figures, counters, conditions) = (snapshot.figures, snapshot.counters, snapshot.conditions)
    let store: JSON = [
      "name": .string(snapshot.name), "store": .string("\(snapshot.store)"),
      "since_ms": .integer(snapshot.startTime), "index_entries": .integer(figures.indexedKeys),
      "segments": .integer(figures.segments), "journal_bytes": .integer(figures.journalBytes),
      "position": .integer(figures.position), "conflicts": .integer(figures.conflicts),
      "parked": .integer(figures.parked), "damaged_places": .integer(figures.damagedPlaces),
      "free_bytes": .integer(figures.freeBytes), "read_only": .bool(conditions.denial != nil),
      "puts": .integer(counters.puts), "deletes": .integer(counters.deletes),
      "compactions": .integer(counters.compactions), "syncs": .integer(counters.syncs.count),
      "sync_seconds": .real(counters.syncs.seconds),
      "repaired_keys": .integer(snapshot.sessions.repairedKeys),
    ]
    return store.with("actor", snapshot.actor.map { .string("\($0)") })
      .with("listening", snapshot.node.listening.map { .string("\($0)") })
      .with("resident_bytes", snapshot.process.residentBytes.map { .integer($0) })
      .with("counted", snapshot.counted.map(Self.json))
  }

  private static func json(_ counted: MonitorSnapshot.CountedKeys) -> JSON {
    let (status, absent) = (counted.status, counted.absent)
    return [
      "time_ms": .integer(counted.time), "keys": .integer(status.keys),
      "tombstones": .integer(status.tombstones), "value_bytes": .integer(status.liveBytes),
      "blob_keys": .integer(status.blobKeys), "blob_bytes": .integer(status.blobBytes),
      "awaited_blobs": .integer(absent.awaited), "left_out_blobs": .integer(absent.leftOut),
      "evicted_blobs": .integer(absent.evicted),
    ]
  }

  private func member(_ member: MonitorSnapshot.MemberFigures) -> JSON {
    let traffic = member.counters.traffic
    let json: JSON = [
      "name": .string(member.name), "device": .string("\(member.device)"),
      "right": .string("\(member.right)"), "connected": .bool(member.counters.isConnected),
      "lacking": .integer(member.lacking),
      "lacking_is_bounded": .bool(member.isBounded), "lacking_bytes": .integer(member.unknown.bytes),
      "sent_records": .integer(traffic.sentRecords), "received_records": .integer(traffic.receivedRecords),
      "sent_bytes": .integer(traffic.sentBytes), "received_bytes": .integer(traffic.receivedBytes),
    ]
    let keys = member.unknown.firstKeys.map { JSON.string(Text.printable($0.bytes)) }
    return json.with("in_step", member.isIndirect ? nil : .bool(member.isInStep))
      .with("first_lacking", log != nil && !keys.isEmpty ? .array(keys) : nil)
      .with("oldest_lacking_ms", member.unknown.oldest.map { .integer($0) })
      .with("last_seen_ms", member.lastSeen.map { .integer($0) })
      .with("last_success_ms", member.lastSuccess.map { .integer($0) })
      .with("clock_offset_ms", member.contact.map { .integer($0.clockOffset) })
      .with("last_error", member.peer?.lastError.map { .string($0.message) })
      .with("next_try_ms", member.peer?.nextTry.map { .integer($0) })
  }

  private func relay(_ relay: RelayState) -> JSON {
    let costs = RelayCosts(relay)
    let json: JSON = [
      "name": .string(relay.name), "location": .string(relay.location), "busy": .bool(relay.isBusy),
      "failures": .integer(relay.failures), "waiting_entries": .integer(relay.waitingEntries),
      "set_aside": .integer(relay.setAside.count), "sent_records": .integer(relay.sentRecords),
      "received_records": .integer(relay.receivedRecords), "requests": .integer(relay.figures.total),
      "sent_bytes": .integer(relay.figures.sentBytes),
      "received_bytes": .integer(relay.figures.receivedBytes),
      "collected_objects": .integer(relay.collections.objects),
      "failed_collections": .integer(relay.collections.failures),
    ]
    return json.with("last_error", relay.lastError.map { .string($0.message) })
      .with("last_success_ms", relay.lastSuccess.map { .integer($0) })
      .with("last_news_ms", relay.lastNews.map { .integer($0) })
      .with("next_try_ms", relay.nextTry.map { .integer($0) })
      .with("published", relay.published.map { .integer($0) })
      .with("last_collection_ms", relay.collections.last.map { .integer($0) })
      .with("stored_bytes", relay.collections.storedBytes.map { .integer($0) })
      .with("usage", costs.usageJSON).with("cost", costs.costJSON)
  }

  private static func json(_ sample: MonitorHistory.Sample) -> JSON {
    [
      "time_ms": .integer(sample.time), "sent_bytes": .integer(sample.sentBytes),
      "received_bytes": .integer(sample.receivedBytes), "sent_records": .integer(sample.sentRecords),
      "received_records": .integer(sample.receivedRecords), "syncs": .integer(sample.syncs),
      "sync_seconds": .real(sample.syncSeconds),
    ]
  }

  private static func json(_ results: [NodeCounters.Result: UInt64]) -> JSON {
    .object(
      results.map { JSON.Member(name: "\($0.key)", value: .integer($0.value)) }.sorted { $0.name < $1.name })
  }
}
