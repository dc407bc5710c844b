import Replication
import SyncStore

/// The named checks of `/readyz` and `/healthz`.
struct HealthCheck: Equatable, Sendable {
  /// One word, for alerts and scripts.
  let name: String
  /// The fault, and the command that helps; nil if the check passes.
  let failure: String?

  var passes: Bool { failure == nil }

  /// The checks, in their order, and when each fails.
  static let meanings: [(name: String, fails: String)] = [
    ("writable", "a sync of the disk failed, or this copy was revoked"),
    ("space", "the disk is full: it has not the room that the space reserve lacks"),
    ("index", "the index had to be built in memory"),
    ("damage", "places of the journal are damaged and no other copy has repaired them"),
    ("state", "this copy needs another one's state, or has unconfirmed writes"),
    (
      "clock",
      "this clock was never set, it or a member's is off by more than the drift limit, or writes wait for their time"
    ),
    ("digest", "this copy and a peer cover the same writes and differ"),
    ("identity", "two copies seem to use one device key"),
    ("members", "no member was in step within the configured time"),
  ]

  /// All checks. `age`: seconds within which some member must have been in step.
  static func all(_ snapshot: MonitorSnapshot, age: Int) -> [HealthCheck] {
    [
      HealthCheck(name: "writable", failure: writable(snapshot)),
      HealthCheck(name: "space", failure: space(snapshot.figures)),
      HealthCheck(name: "index", failure: index(snapshot.figures)),
      HealthCheck(name: "damage", failure: damage(snapshot.figures)),
      HealthCheck(name: "state", failure: state(snapshot.conditions.health)),
      HealthCheck(name: "clock", failure: clock(snapshot)),
      HealthCheck(name: "digest", failure: digest(snapshot.node)),
      HealthCheck(name: "identity", failure: identity(snapshot.node)),
      HealthCheck(name: "members", failure: members(snapshot, age: age)),
    ]
  }

  private static func writable(_ snapshot: MonitorSnapshot) -> String? {
    if snapshot.figures.isPoisoned {
      return
        "a sync of the disk failed, and nothing more is acknowledged: check the disk, then restart the daemon"
    }
    // A read-only member is as it should be.
    guard snapshot.conditions.denial == .revoked else { return nil }
    return
      "this copy was revoked, and what it writes reaches no other: \"sync-cli unsent\", then join with a new copy"
  }

  private static func space(_ figures: StoreFigures) -> String? {
    // A compaction takes a part of the reserve for its copy, and allocates it again afterwards.
    let missing = figures.wantedReserveBytes - min(figures.reserveBytes, figures.wantedReserveBytes)
    guard missing > figures.freeBytes else { return nil }
    return "the disk is full: \(Text.size(figures.freeBytes)) free, and the space reserve lacks "
      + "\(Text.size(missing)): make room, or \"sync-cli compact\", \"sync-cli trim\""
  }

  private static func index(_ figures: StoreFigures) -> String? {
    guard !figures.isIndexOnDisk else { return nil }
    return
      "the index is kept in memory, since its files are damaged or cannot be written: make room, then restart the daemon"
  }

  private static func damage(_ figures: StoreFigures) -> String? {
    guard figures.damagedPlaces > 0 else { return nil }
    return
      "\(Text.count(figures.damagedPlaces, noun: "place")) of the journal damaged: \"sync-cli verify\" shows them, "
      + "\"sync-cli sync MEMBER\" repairs what another copy has, \"sync-cli verify --repair\" gives up the rest"
  }

  private static func state(_ health: ReplicaHealth) -> String? {
    switch health {
    case .healthy: nil
    case .recovering:
      "this copy needs the full state of another one: \"sync-cli sync MEMBER\" with one that is whole"
    case .unconfirmed:
      "own writes are unconfirmed, since this copy was put back or damaged: \"sync-cli sync MEMBER\""
    }
  }

  private static func clock(_ snapshot: MonitorSnapshot) -> String? {
    if let warning = snapshot.conditions.clockWarning { return warning }
    if let member = snapshot.members.first(where: {
      ($0.contact?.clockOffset.magnitude ?? 0) > Limits.clockDriftMilliseconds
    }) {
      let seconds = Double(member.contact?.clockOffset.magnitude ?? 0) / 1000
      return
        "the clock of \(Text.printable(member.name.utf8)) differs by \(Text.duration(seconds: seconds)): set both with NTP"
    }
    guard snapshot.figures.parked > 0 else { return nil }
    return
      "\(Text.count(snapshot.figures.parked, noun: "key")) written by members whose clock is ahead wait for their time: "
      + "\"sync-cli status\" shows until when"
  }

  private static func digest(_ node: NodeState) -> String? {
    if let relay = node.relays.first(where: { $0.lastError?.code == .digestsDiffer }),
      let error = relay.lastError
    {
      return Text.printable(error.message.utf8)
    }
    guard let peer = node.peers.first(where: { $0.lastError?.code == .digestsDiffer }) else { return nil }
    let name = Text.printable(peer.name.utf8)
    return
      "this copy and \(name) cover the same writes and differ: \"sync-cli verify\" on both, then \"sync-cli diff \(name)\""
  }

  private static func identity(_ node: NodeState) -> String? {
    guard let conflict = node.identityConflicts.min(by: { $0.key < $1.key }) else { return nil }
    return Text.printable(conflict.value.utf8)
  }

  private static func members(_ snapshot: MonitorSnapshot, age: Int) -> String? {
    guard !snapshot.members.isEmpty else { return nil }
    let limit = UInt64(age) * 1000
    // Through a relay, members are in step without ever being met.
    let last = (snapshot.members.compactMap(\.lastSuccess) + snapshot.node.relays.compactMap(\.lastSuccess))
      .max()
    // A daemon that has just begun gets the same time.
    let since = max(last ?? 0, snapshot.startTime)
    guard snapshot.time > since, snapshot.time - since > limit else { return nil }
    let span = Text.duration(seconds: Double(snapshot.time - since) / 1000)
    return
      "no member was in step for \(span): \"sync-cli status\" shows why, \"sync-cli sync MEMBER\" tries it now"
  }

  /// The body of `/readyz` and `/healthz`: a line for each check, and one that sums them up.
  static func text(_ checks: [HealthCheck], page: String) -> String {
    let lines = checks.map { check in
      check.failure.map { "[-]\(check.name) failed: \($0)" } ?? "[+]\(check.name) ok"
    }
    let sum = checks.allSatisfy(\.passes) ? "\(page) check passed" : "\(page) check failed"
    return (lines + [sum]).joined(separator: "\n") + "\n"
  }
}
