/// The rules for applying a record: pure decisions (design rules R6, R9; "Order", "Base dot").
enum Resolution {
  /// Outcome for a record that arrives.
  enum Verdict: Equatable {
    /// It is covered or stored already.
    case ignore
    /// Its stamp is too far ahead of this copy's clock: stored, not applied, not merged into the clock (F50).
    case park
    /// It supersedes the held record. `conflict` is true if its author did not know of the held record.
    case win(conflict: Bool)
    /// The held record supersedes it. `conflict` is true if the held record's author did not know of it.
    case lose(conflict: Bool)
  }

  /// The outcome for an arriving record.
  static func receive(
    _ record: Record, held: Record?, limit: Stamp, covers: (Dot) -> Bool
  ) -> Verdict {
    if covers(record.dot) || held?.dot == record.dot { return .ignore }
    if record.stamp > limit { return .park }
    return apply(record, held: held)
  }

  /// The outcome for a record that is not, or no longer, parked.
  static func apply(_ record: Record, held: Record?) -> Verdict {
    guard let held else { return .win(conflict: false) }
    if held.dot == record.dot { return .ignore }
    return record.version > held.version
      ? .win(conflict: isConflict(winner: record, loser: held))
      : .lose(conflict: isConflict(winner: held, loser: record))
  }

  /// True if the loser was written without its winner's author knowing of it. A losing tombstone loses no
  /// value.
  static func isConflict(winner: Record, loser: Record) -> Bool {
    !loser.isReserved && !loser.isTombstone && winner.base != loser.dot && winner.dot.actor != loser.dot.actor
  }

  /// Open dots of the loser that must be preserved: the winner is issued again with their names.
  static func openDots(
    of loser: Record, unknownTo winner: Record, covers: (Dot) -> Bool
  ) -> [Dot] {
    loser.isReserved
      ? []
      : loser.open.filter { !covers($0) && !winner.open.contains($0) && $0 != winner.dot }
  }

  /// The causal context of a write that replaces `old`: the base dot, and the dots that it replaces without
  /// its author covering them.
  static func causalContext(
    replacing old: ReplacedRecord?, by actor: ActorID?, names: [Dot] = [], covers: (Dot) -> Bool
  ) -> CausalContext {
    guard let old else { return CausalContext() }
    let base = old.dot.actor == actor ? old.base : old.dot
    var open: [Dot] = []
    if !covers(old.dot) { open.append(old.dot) }
    for dot in old.open where !covers(dot) && !open.contains(dot) { open.append(dot) }
    for dot in names where !covers(dot) && !open.contains(dot) { open.append(dot) }
    return CausalContext(
      base: base, open: open.count > Limits.openDots ? Array(open.prefix(Limits.openDots)) : open)
  }
}

/// The fields of a replaced record that the next write needs.
struct ReplacedRecord: Sendable {
  /// The name of the write.
  var dot: Dot
  /// Its own base dot.
  var base: Dot?
  /// Its own open dots.
  var open: [Dot]
  /// True if it deleted the key.
  var isTombstone: Bool
  /// When it expires, in milliseconds since 1970.
  var deadline: UInt64?

  /// True if it has a value at this time, in milliseconds since 1970.
  func isLive(at time: UInt64) -> Bool { !isTombstone && (deadline.map { $0 > time } ?? true) }
}

extension Record {
  /// The fields that an overwrite needs.
  var replaced: ReplacedRecord {
    ReplacedRecord(dot: dot, base: base, open: open, isTombstone: isTombstone, deadline: deadline)
  }
}
