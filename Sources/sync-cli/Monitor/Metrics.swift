import Replication
import SyncStore

/// The metrics of `/metrics`, in Prometheus' text format, version 0.0.4.
///
/// Names and units follow Prometheus' conventions: base units, `_total` for what only grows. They are a
/// contract: alert rules and dashboards name them (`packaging`), and the page Monitoring of the documentation
/// lists them.
enum Metrics {
  static let type = "text/plain; version=0.0.4; charset=utf-8"

  /// The text for a snapshot.
  static func text(_ snapshot: MonitorSnapshot, checks: [HealthCheck]) -> String {
    var page = MetricsPage()
    store(snapshot, &page)
    counted(snapshot.counted, &page)
    work(snapshot.counters, &page)
    sessions(snapshot, &page)
    for member in snapshot.members { self.member(member, &page) }
    for check in checks { page.add("check_passes", check.passes ? 1 : 0, labels: [("check", check.name)]) }
    process(snapshot, &page)
    return page.text
  }

  private static func store(_ snapshot: MonitorSnapshot, _ page: inout MetricsPage) {
    let (figures, conditions) = (snapshot.figures, snapshot.conditions)
    page.add("build_info", 1, labels: [("version", Program.version)])
    page.add(
      "store_info", 1,
      labels: [
        ("name", snapshot.name), ("store", "\(snapshot.store)"),
        ("actor", snapshot.actor.map { "\($0)" } ?? ""),
      ])
    page.add("index_entries", figures.indexedKeys)
    page.add("segments", figures.segments)
    page.add("journal_bytes", figures.journalBytes)
    page.add("journal_live_bytes", figures.closedLiveBytes)
    page.add("journal_dead_bytes", figures.closedDeadBytes)
    page.add("journal_records_total", figures.position)
    page.add("held_bytes", figures.heldBytes)
    page.add("readers", figures.readers)
    page.add("disk_free_bytes", figures.freeBytes)
    page.add("reserve_bytes", figures.reserveBytes)
    page.add("reserve_wanted_bytes", figures.wantedReserveBytes)
    page.add("index_on_disk", figures.isIndexOnDisk ? 1 : 0)
    page.add("poisoned", figures.isPoisoned ? 1 : 0)
    page.add("read_only", conditions.denial == nil ? 0 : 1)
    page.add("recovering", conditions.health == .recovering ? 1 : 0)
    page.add("unconfirmed", conditions.health == .unconfirmed ? 1 : 0)
    page.add("clock_lead_seconds", Double(conditions.clockLead) / 1000)
    page.add("conflicts", figures.conflicts)
    page.add("parked_keys", figures.parked)
    page.add("damaged_places", figures.damagedPlaces)
    page.add("repaired_keys_total", snapshot.sessions.repairedKeys)
  }

  private static func counted(_ counted: MonitorSnapshot.CountedKeys?, _ page: inout MetricsPage) {
    guard let counted else { return }
    let (status, absent) = (counted.status, counted.absent)
    page.add("counted_timestamp_seconds", Double(counted.time) / 1000)
    page.add("keys", status.keys)
    page.add("tombstones", status.tombstones)
    page.add("value_bytes", status.liveBytes)
    page.add("blob_keys", status.blobKeys)
    page.add("blob_bytes", status.blobBytes)
    let states = [
      ("awaited", absent.awaited, absent.awaitedBytes), ("left_out", absent.leftOut, absent.leftOutBytes),
      ("evicted", absent.evicted, absent.evictedBytes),
    ]
    for usage in counted.files {
      page.add("files", usage.files, labels: [("kind", usage.kind.rawValue)])
      page.add("file_bytes", usage.bytes, labels: [("kind", usage.kind.rawValue)])
    }
    for (state, count, bytes) in states {
      page.add("absent_blobs", count, labels: [("state", state)])
      page.add("absent_blob_bytes", bytes, labels: [("state", state)])
    }
  }

  private static func work(_ counters: StoreCounters, _ page: inout MetricsPage) {
    page.add("puts_total", counters.puts)
    page.add("deletes_total", counters.deletes)
    page.add("lookups_total", counters.lookups)
    page.add("compactions_total", counters.compactions)
    page.add("sync_requests_total", counters.syncRequests)
    page.add("sync_duration_seconds", counters.syncs)
  }

  private static func sessions(_ snapshot: MonitorSnapshot, _ page: inout MetricsPage) {
    for (direction, ended) in [
      ("dialled", snapshot.sessions.dialled), ("accepted", snapshot.sessions.accepted),
    ] {
      // Present from the start, so that a rate can be computed from the first session on.
      let results = [NodeCounters.Result.done: 0, .failed(.digestsDiffer): 0].merging(ended) { $1 }
      for (result, count) in results.map({ ("\($0.key)", $0.value) }).sorted(by: { $0.0 < $1.0 }) {
        page.add("sessions_total", count, labels: [("direction", direction), ("result", result)])
      }
    }
    page.add("identity_conflicts", snapshot.node.identityConflicts.count)
    for peer in snapshot.node.peers {
      page.add("peer_failures", peer.failures, labels: [("peer", peer.name)])
    }
    for relay in snapshot.node.relays { Self.relay(relay, &page) }
  }

  private static func relay(_ relay: RelayState, _ page: inout MetricsPage) {
    let label = [("relay", relay.name)]
    page.add("relay_failures", relay.failures, labels: label)
    if let time = relay.lastSuccess {
      page.add("relay_last_success_timestamp_seconds", Double(time) / 1000, labels: label)
    }
    page.add("relay_waiting_entries", relay.waitingEntries, labels: label)
    page.add("relay_set_aside_objects", relay.setAside.count, labels: label)
    let requests = relay.figures.requests.sorted {
      ($0.key.operation.rawValue, $0.key.status) < ($1.key.operation.rawValue, $1.key.status)
    }
    for (kind, count) in requests {
      let labels = label + [("operation", kind.operation.rawValue), ("status", "\(kind.status)")]
      page.add("relay_requests_total", count, labels: labels)
    }
    page.add("relay_sent_bytes_total", relay.figures.sentBytes, labels: label)
    page.add("relay_received_bytes_total", relay.figures.receivedBytes, labels: label)
    if let time = relay.collections.last {
      page.add("relay_last_collection_timestamp_seconds", Double(time) / 1000, labels: label)
    }
    page.add("relay_failed_collections", relay.collections.failures, labels: label)
    page.add("relay_collected_objects_total", relay.collections.objects, labels: label)
    page.add("relay_collected_bytes_total", relay.collections.bytes, labels: label)
    page.add("relay_sent_records_total", relay.sentRecords, labels: label)
    page.add("relay_received_records_total", relay.receivedRecords, labels: label)
  }

  private static func member(_ member: MonitorSnapshot.MemberFigures, _ page: inout MetricsPage) {
    let label = [("member", member.name)]
    page.add("member_connected", member.counters.isConnected ? 1 : 0, labels: label)
    if let time = member.lastSeen {
      page.add("member_last_seen_timestamp_seconds", Double(time) / 1000, labels: label)
    }
    if let time = member.lastSuccess {
      page.add("member_last_success_timestamp_seconds", Double(time) / 1000, labels: label)
    }
    if !member.isIndirect { unsent(member, labels: label, &page) }
    let traffic = member.counters.traffic
    let moved = [
      ("records", traffic.sentRecords, traffic.receivedRecords),
      ("bytes", traffic.sentBytes, traffic.receivedBytes),
      ("blobs", traffic.sentBlobs, traffic.receivedBlobs),
    ]
    for (what, sent, received) in moved {
      page.add("member_sent_\(what)_total", sent, labels: label)
      page.add("member_received_\(what)_total", received, labels: label)
    }
  }

  private static func unsent(
    _ member: MonitorSnapshot.MemberFigures, labels label: [(String, String)], _ page: inout MetricsPage
  ) {
    page.add("member_in_step", member.isInStep ? 1 : 0, labels: label)
    page.add("member_unsent_records", member.lacking, labels: label)
    page.add("member_unsent_is_bounded", member.isBounded ? 1 : 0, labels: label)
    page.add("member_unsent_bytes", member.unknown.bytes, labels: label)
    if let oldest = member.unknown.oldest {
      page.add("member_oldest_unsent_timestamp_seconds", Double(oldest) / 1000, labels: label)
    }
    if let contact = member.contact {
      page.add("member_clock_offset_seconds", Double(contact.clockOffset) / 1000, labels: label)
    }
  }

  private static func process(_ snapshot: MonitorSnapshot, _ page: inout MetricsPage) {
    let process = snapshot.process
    page.add("process_cpu_seconds_total", process.processorSeconds)
    page.add("process_start_time_seconds", Double(snapshot.startTime) / 1000)
    if let bytes = process.residentBytes { page.add("process_resident_memory_bytes", bytes) }
    if let count = process.descriptors { page.add("process_open_fds", count) }
    if let count = process.mostDescriptors { page.add("process_max_fds", count) }
  }
}

/// Metrics as text: the samples of each family stand together, under its help and its type.
struct MetricsPage {
  private var samples: StringDictionary<[String]> = [:]

  /// Adds a sample of a family of `MetricFamily.all`, with labels.
  mutating func add(_ name: String, _ value: some BinaryInteger, labels: [(String, String)] = []) {
    add(name, text: "\(value)", labels)
  }

  mutating func add(_ name: String, _ value: Double, labels: [(String, String)] = []) {
    add(name, text: "\(value)", labels)
  }

  /// Adds the samples of a histogram: cumulative, as Prometheus wants them.
  mutating func add(_ name: String, _ histogram: DurationHistogram) {
    let full = MetricFamily.fullName(of: name)
    var (lines, sum): ([String], UInt64) = ([], 0)
    for (place, count) in histogram.counts.enumerated() {
      sum += count
      let bound = place < DurationHistogram.bounds.count ? "\(DurationHistogram.bounds[place])" : "+Inf"
      lines.append("\(full)_bucket{le=\"\(bound)\"} \(sum)")
    }
    lines.append("\(full)_sum \(histogram.seconds)")
    lines.append("\(full)_count \(sum)")
    samples[name] = lines
  }

  private mutating func add(_ name: String, text: String, _ labels: [(String, String)]) {
    let words = labels.map { "\($0.0)=\"\(Self.escaped($0.1))\"" }.joined(separator: ",")
    let suffix = words.isEmpty ? "" : "{\(words)}"
    samples[name, default: []].append("\(MetricFamily.fullName(of: name))\(suffix) \(text)")
  }

  /// A label's value: names of members may hold anything.
  private static func escaped(_ text: String) -> String {
    var escaped = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": escaped += "\\\\"
      case "\"": escaped += "\\\""
      case "\n": escaped += "\\n"
      default: escaped.unicodeScalars.append(scalar)
      }
    }
    return escaped
  }

  /// All families that have samples, in the order of the table.
  var text: String {
    var lines: [String] = []
    for family in MetricFamily.all {
      guard let samples = samples[family.name] else { continue }
      let full = MetricFamily.fullName(of: family.name)
      lines.append("# HELP \(full) \(family.help)")
      lines.append("# TYPE \(full) \(family.kind.rawValue)")
      lines += samples
    }
    return lines.joined(separator: "\n") + "\n"
  }
}
