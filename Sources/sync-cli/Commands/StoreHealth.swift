import Replication
import SyncStore

/// Conditions that keep a copy or its writes from being in step, for `status`.
struct StoreHealth {
  private static let counted = 10_000

  private let replicaHealth: ReplicaHealth
  private let denial: WriteDenial?
  /// Keys written here that no other member accepts.
  private let strandedKeys: Int
  private let clock: String?
  private let lead: UInt64
  private let waiting: [LogEntry]

  init(_ store: Store, _ denial: WriteDenial?) throws {
    self.denial = denial
    replicaHealth = try store.health
    clock = try ClockCommand.warning(store)
    lead = try store.clockLead()
    waiting = try store.parkedWrites(limit: Self.counted)
    guard denial != nil else {
      strandedKeys = 0
      return
    }
    strandedKeys = try store.ownWrites(after: OtherCopies(store).acknowledged, limit: Self.counted).count
  }

  /// A line for each condition that an operator must know.
  var lines: [String] {
    var lines: [String] = []
    switch replicaHealth {
    case .healthy: break
    case .recovering:
      lines.append("state      needs the full state of another copy: synchronize with a member that is whole")
    case .unconfirmed:
      lines.append(
        "state      own writes are unconfirmed, since this copy was put back or damaged: synchronize with a member"
      )
    }
    let stranded =
      "\(Text.count(strandedKeys, noun: "key")) written here before \(strandedKeys == 1 ? "reaches" : "reach") no other copy"
    let wayOut =
      strandedKeys > 0
      ? "; \(stranded) (\"sync-cli unsent\" lists them, \"unsent --drop\" gives them up)" : ""
    switch denial {
    case nil: break
    case .readOnly: lines.append("read-only  writes are refused here: it is a read-only member\(wayOut)")
    case .revoked:
      lines.append("revoked    writes of this copy reach no other copy: join again with a new copy\(wayOut)")
    }
    if let clock { lines.append("ahead      \(clock)") }
    if let last = waiting.last {
      lines.append(
        "waiting    \(Text.count(waiting.count, noun: "write")) of other members, stamped ahead of this clock: the last counts from "
          + "\(Text.date(milliseconds: Store.applicationTime(of: last.stamp))) on (\"sync-cli why KEY\")")
    }
    return lines
  }

  /// The conditions as a word for scripts and a text. A read-only member is as it should be, unless it has
  /// writes that no member accepts.
  var problems: [StatusCheck.Problem] {
    lines.compactMap { line in
      let name = String(line.prefix { $0 != " " })
      if name == "read-only", strandedKeys == 0 { return nil }
      return StatusCheck.Problem(name: name, text: String(line.dropFirst(name.count).drop { $0 == " " }))
    }
  }

  /// The conditions as JSON.
  var json: JSON {
    let state =
      switch replicaHealth {
      case .healthy: "settled"
      case .recovering: "needs-full-state"
      case .unconfirmed: "unconfirmed-writes"
      }
    let json: JSON = [
      "state": .string(state),
      "writes": .string(
        denial == nil ? "allowed" : denial == .readOnly ? "refused-read-only" : "refused-revoked"),
      "stranded_keys": .integer(strandedKeys), "clock_lead_ms": .integer(lead),
      "clock_is_ahead": .bool(clock != nil),
      "waiting_writes": .integer(waiting.count),
    ]
    return json.with("waiting_until_ms", waiting.last.map { .integer(Store.applicationTime(of: $0.stamp)) })
  }
}
