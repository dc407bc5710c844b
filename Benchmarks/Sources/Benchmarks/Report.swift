import Foundation

/// A bound of a ratio.
enum Target {
  case atMost(Double)
  case atLeast(Double)

  func isMet(by ratio: Double) -> Bool {
    switch self {
    case .atMost(let bound): ratio <= bound
    case .atLeast(let bound): ratio >= bound
    }
  }

  var description: String {
    switch self {
    case .atMost(let bound): "≤ \(bound)"
    case .atLeast(let bound): "≥ \(bound)"
    }
  }

  /// The targets of the store, by workload and by peer.
  static let all: [String: [String: Target]] = [
    "put": ["lmdb": .atMost(0.15)],
    "overwrite": ["lmdb": .atMost(0.2)],
    "overwrite-disk-bound": ["target": .atMost(1)],
    "get-in-place": ["lmdb": .atMost(0.18)],
    "get": ["lmdb": .atMost(0.25)],
    "miss": ["lmdb": .atMost(0.1)],
    "get-2-threads": ["self": .atLeast(1.8)],
    "get-2-threads-writer": ["self": .atLeast(1.8)],
    "scan": ["lmdb": .atMost(0.6)],
    "scan-build": ["target": .atMost(1)],
    "scan-build-shared-prefix": ["target": .atMost(1)],
    "transaction": ["lmdb": .atMost(0.14)],
    "encrypted-put": ["lmdb": .atMost(0.35)],
    "encrypted-get": ["lmdb": .atMost(0.55)],
    "typed-struct-put": ["bytes": .atMost(3)],
    "typed-struct-get": ["bytes": .atMost(3)],
    "typed-int-put": ["bytes": .atMost(1.15)],
    "typed-int-get": ["bytes": .atMost(1.15)],
    "typed-bool-put": ["bytes": .atMost(1.15)],
    "typed-bool-get": ["bytes": .atMost(1.15)],
    "collection-insert": ["typed put": .atMost(1.5)],
    "collection-replace": ["typed put": .atMost(1.5)],
    "durable-put": ["raw": .atMost(1.2)],
    "durable-put-16": ["self": .atLeast(6)],
    "open-after-close": ["target": .atMost(1)],
    "open-after-kill": ["target": .atMost(1)],
    "open-rebuild": ["target": .atLeast(1)],
    "open-after-close-10m": ["target": .atMost(1)],
    "open-after-kill-10m": ["target": .atMost(1)],
    "open-rebuild-10m": ["target": .atLeast(1)],
    "put-latency-p99.9": ["target": .atMost(1)],
    "put-latency-max": ["target": .atMost(1)],
    "put-latency-p99.9-10m": ["target": .atMost(1)],
    "put-latency-max-10m": ["target": .atMost(1)],
    "memory": ["target": .atMost(1)],
    "memory-with-view": ["target": .atMost(1)],
    "journal-overhead": ["target": .atMost(1)],
    "sync-nothing-changed": ["target": .atMost(1)],
    "sync-nothing-changed-bytes": ["target": .atMost(1)],
    "sync-nothing-changed-round-trips": ["target": .atMost(1)],
    "sync-1000-changed": ["target": .atMost(1)],
    "sync-1000-changed-bytes": ["target": .atMost(1)],
    "sync-live-durable-median": ["target": .atMost(1)],
    "sync-live-durable-p99": ["target": .atMost(1)],
    "sync-first-copy": ["redis": .atMost(0.5)],
    "sync-values-20k": ["redis": .atMost(0.6)],
    "sync-value-1g": ["tls": .atMost(1.5)],
    "sync-value-1g-edited": ["rsync": .atMost(1)],
    "sync-value-1g-edited-bytes": ["target": .atMost(1)],
    "tier-trim": ["target": .atLeast(1)],
    "tier-trim-stall": ["target": .atMost(1)],
    "index-size": ["target": .atMost(1)],
    "relay-first-copy": ["live": .atMost(1.3)],
    "relay-first-copy-puts": ["target": .atMost(1)],
    "relay-first-copy-gets": ["target": .atMost(1)],
    "relay-s3-first-copy-puts": ["target": .atMost(1)],
    "relay-s3-first-copy-gets": ["target": .atMost(1)],
    "relay-change-puts": ["target": .atMost(1)],
    "relay-change-reads": ["target": .atMost(1)],
    "relay-nothing-changed-requests": ["target": .atMost(1)],
    "relay-value-edited-bytes": ["target": .atMost(1)],
    "blob-put-20k": ["sha256": .atMost(2.5)],
    "blob-put-1m": ["sha256": .atMost(2)],
    "blob-put-again-20k": ["sha256": .atMost(1.2)],
    "blob-put-again-1m": ["sha256": .atMost(1.2)],
    "blob-get-20k": ["file": .atMost(0.6)],
    "blob-get-1m": ["file": .atMost(0.6)],
    "cache-trim": ["target": .atLeast(1)],
    "cache-trim-stall": ["target": .atMost(1)],
  ]
}

/// All measurements of a run. Besides the engines there are four peers by name only: `self`, the store itself
/// with one thread; `bytes`, the store itself with values that were coded before; `raw`, a mapped file with
/// nothing around it; and `target`, a figure.
final class Report {
  private var units: [(workload: String, unit: String)] = []
  private var samples: [String: [(peer: String, values: [Double])]] = [:]

  /// Whether the store has a measurement of a workload.
  func has(_ workload: String) -> Bool { samples[workload] != nil }

  /// Notes one measurement of one engine.
  func add(_ workload: String, _ peer: String, _ value: Double, _ unit: String) {
    if samples[workload] == nil { units.append((workload, unit)) }
    if let index = samples[workload]?.firstIndex(where: { $0.peer == peer }) {
      samples[workload]?[index].values.append(value)
    } else {
      samples[workload, default: []].append((peer, [value]))
    }
  }

  private struct Row {
    let workload, peer, unit: String
    let ours: Double?
    let theirs: Double
    var ratio: Double? { ours.map { $0 / theirs } }
    var target: Target? { Target.all[workload]?[peer] }
    var verdict: String {
      guard let target, let ratio else { return "" }
      return target.isMet(by: ratio) ? "met" : "not met"
    }
  }

  private var rows: [Row] {
    units.flatMap { workload, unit in
      let all = samples[workload] ?? []
      let ours = all.first { $0.peer == SyncStorePeer.title }.map { Self.median($0.values) }
      return all.filter { $0.peer != SyncStorePeer.title }.map {
        Row(workload: workload, peer: $0.peer, unit: unit, ours: ours, theirs: Self.median($0.values))
      }
    }
  }

  /// For people. A ratio is ours ÷ theirs: below 1 is good where the unit is a time or a size.
  var table: String {
    let head = ["workload", "peer", "ours", "theirs", "unit", "ratio", "target", ""]
    let body = rows.map { row in
      [
        row.workload, row.peer, Self.text(row.ours), Self.text(row.theirs), row.unit, Self.text(row.ratio),
        row.target?.description ?? "", row.verdict,
      ]
    }
    let widths = head.indices.map { column in ([head] + body).map { $0[column].count }.max() ?? 0 }
    let isNumber: Set<Int> = [2, 3, 5]
    func line(_ cells: [String]) -> String {
      cells.enumerated().map { column, cell in
        let space = String(repeating: " ", count: widths[column] - cell.count)
        return isNumber.contains(column) ? space + cell : cell + space
      }.joined(separator: "  ").trimmingCharacters(in: .whitespaces)
    }
    let counted = rows.filter { !$0.verdict.isEmpty }
    let met = counted.filter { $0.verdict == "met" }.count
    return ([line(head)] + body.map(line) + ["\(met) of \(counted.count) targets met"]).joined(
      separator: "\n")
  }

  /// The headline figures: times of single operations that other engines were measured with, too.
  func plot(_ caption: String) -> Plot {
    let engines = Set(Contestant.peers.map { $0.title })
    let nanoseconds = ["ns": 1.0, "ns/record": 1.0, "us": 1000.0]
    let drawn = Plot.workloads.compactMap { workload -> Plot.Row? in
      guard let unit = units.first(where: { $0.workload == workload })?.unit, let factor = nanoseconds[unit]
      else { return nil }
      let times = (samples[workload] ?? []).filter {
        $0.peer == SyncStorePeer.title || engines.contains($0.peer)
      }
      .map { (engine: $0.peer, nanoseconds: Self.median($0.values) * factor) }
      return times.count > 1 ? Plot.Row(workload: workload, times: times) : nil
    }
    return Plot(rows: drawn, caption: caption)
  }

  /// For programs: one object on each line, of what both sides have done.
  var lines: String {
    rows.compactMap { row in
      guard let ours = row.ours, let ratio = row.ratio else { return nil }
      return "{\"workload\":\"\(row.workload)\",\"peer\":\"\(row.peer)\",\"ours\":\(Self.rounded(ours)),"
        + "\"theirs\":\(Self.rounded(row.theirs)),\"unit\":\"\(row.unit)\",\"ratio\":\(Self.rounded(ratio))}\n"
    }.joined()
  }

  private static func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    let middle = sorted.count / 2
    return sorted.count.isMultiple(of: 2) ? (sorted[middle - 1] + sorted[middle]) / 2 : sorted[middle]
  }

  private static func rounded(_ value: Double) -> Double { (value * 10_000).rounded() / 10_000 }

  private static func text(_ value: Double?) -> String {
    guard let value else { return "–" }
    let places = value >= 1000 ? 0 : value >= 10 ? 1 : 3
    return value.formatted(.number.grouping(.never).precision(.fractionLength(places)))
  }
}
