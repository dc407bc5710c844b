import Replication
import SyncStore

/// `why`: explains why a key has its value, or none.
enum WhyCommand {
  static let command = Command(
    "why", "tell why a key has the value it has", operands: [Operand("KEY")],
    notes: """
      Shows the write that counts: who made it and when, from whom it came, what it replaced, the concurrent values it beat,
      and which members are not known to have it.
      """
  ) { invocation, output in
    let key = try Key(bytes: invocation.operands[0].bytes)
    return try invocation.withStore(toWrite: false) { store in
      let waiting = try store.parkedWrites(of: key, limit: mostWaiting)
      guard let explanation = try store.explain(key) else {
        if !waiting.isEmpty {
          return try reportWaiting(key, waiting: waiting, invocation: invocation, output: output)
        }
        throw Failure(
          .notFound, "why \(invocation.operands[0].shown): \(try absence(store, key)): check the key")
      }
      let origin = try store.origin(of: explanation.winner)
      let others = try OtherCopies(store)
      let lacking = others.lacking(explanation.winner)
      if invocation.wantsJSON {
        let json = InspectCommands.valued(explanation.winner)
          .with("local", .bool(explanation.isLocal))
          .with("device", others.name(of: explanation.winner.dot.actor).map { .string($0) })
          .with("from", origin.map { .string(others.name(of: $0) ?? "\($0)") })
          .with("beaten", .array(explanation.beaten.map(InspectCommands.valued)))
          .with("unacknowledged", .array(lacking.map { .string($0) }))
          .with("waiting", waiting.isEmpty ? nil : .array(waiting.map(json)))
        try output.line(json)
      } else {
        for line in lines(
          explanation, origin: origin, others: others, lacking: lacking,
          expiry: try expiry(explanation, store))
        {
          try output.line(line)
        }
        for line in lines(waiting) { try output.line(line) }
      }
      return .done
    }
  }.printing(JSONReference.why)

  private static let mostWaiting = 100

  /// Reports a key without a value whose only writes are parked.
  private static func reportWaiting(
    _ key: Key, waiting: [LogEntry], invocation: Invocation, output: Output
  ) throws -> ExitCode {
    if invocation.wantsJSON {
      try output.line(JSON.object([KeyLine.member(key.bytes)]).with("waiting", .array(waiting.map(json))))
    } else {
      try output.line("\(Text.printable(key.bytes)): no value yet, but for what waits for its time")
      for line in lines(waiting) { try output.line(line) }
    }
    return .done
  }

  private static func json(_ entry: LogEntry) -> JSON {
    InspectCommands.valued(entry).with("counts_from_ms", .integer(Store.applicationTime(of: entry.stamp)))
  }

  private static func lines(_ waiting: [LogEntry]) -> [String] {
    waiting.map { entry in
      "  waits  \(InspectCommands.content(entry)), stamped ahead of this clock (\(InspectCommands.stamp(entry))) by \(entry.dot.actor): "
        + "it counts from \(Text.date(milliseconds: Store.applicationTime(of: entry.stamp))) on"
    }
  }

  /// Explains the absence of any record of a key.
  private static func absence(_ store: Store, _ key: Key) throws -> String {
    if let scope = try store.scope, !scope.contains(key.bytes) {
      return
        "this copy holds only keys that begin with \(Text.printable(scope.description.utf8)); another one may have it"
    }
    let horizon = try store.replicaSummary().horizon
    guard horizon > .zero else { return "nothing was ever written under it here" }
    return "no write of it is kept: it was never written here, or deleted before "
      + "\(Text.date(milliseconds: horizon.milliseconds)), and the delete is purged"
  }

  private static func expiry(_ explanation: Explanation, _ store: Store) throws -> String? {
    guard let deadline = explanation.winner.deadline, !explanation.winner.isTombstone else { return nil }
    let isOver = try store.get(try Key(bytes: explanation.winner.key?.bytes ?? [])) == nil
    return "\(isOver ? "expired" : "expires") \(Text.date(milliseconds: deadline))"
  }

  private static func lines(
    _ explanation: Explanation, origin: ActorID?, others: OtherCopies, lacking: [String],
    expiry: String?
  ) -> [String] {
    let winner = explanation.winner
    let place = explanation.isLocal ? "written here" : "received from another copy"
    var lines = [
      "\(Text.printable(winner.key?.bytes ?? [])): \(InspectCommands.content(winner)), \(place)",
      "  stamp  \(InspectCommands.stamp(winner))",
      "  actor  \(winner.dot.actor), its write \(winner.dot.sequence)"
        + (others.name(of: winner.dot.actor).map { ", \(Text.printable($0.utf8))" } ?? ""),
      "  base   "
        + (winner.base.map { "replaced write \($0.sequence) of \($0.actor)" }
          ?? "replaced nothing of another copy"),
    ]
    if let origin {
      lines.append("  from   \(others.name(of: origin).map { Text.printable($0.utf8) } ?? "\(origin)")")
    }
    if winner.position > 0 { lines.append("  place  position \(winner.position) of this copy's journal") }
    if let expiry { lines.append("  until  \(expiry)") }
    for loser in explanation.beaten {
      lines.append(
        "  beat   \(InspectCommands.content(loser)), stamped \(InspectCommands.stamp(loser)), by \(loser.dot.actor)"
      )
    }
    if !lacking.isEmpty {
      lines.append(
        "  lacks  not known to have it: \(lacking.map { Text.printable($0.utf8) }.joined(separator: ", "))")
    }
    lines.append(
      explanation.beaten.isEmpty
        ? "  No concurrent value is kept: it was written by one copy after the other."
        : "  The later stamp wins, on every copy; the beaten value is kept for a while.")
    return lines
  }
}
