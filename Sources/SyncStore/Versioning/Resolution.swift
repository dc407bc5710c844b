/// The rules by which a copy takes in a record: pure decisions (design rules R6, R9; "Order", "Base dot").
enum Resolution {
  /// What becomes of a record that arrives.
  enum Verdict: Equatable {
    /// It is covered, or held already.
    case ignore
    /// Its stamp lies too far ahead of this copy's clock: stored, not applied, not merged into the clock (F50).
    case park
    /// It beats what is held. `conflict` tells whether what is held was written without knowing of it.
    case win(conflict: Bool)
    /// What is held beats it. `conflict` tells whether it was written without knowing of what is held.
    case lose(conflict: Bool)
  }

  /// The place of an arriving record.
  static func receive(
    _ record: Record, held: Record?, limit: Stamp, covers: (Dot) -> Bool
  ) -> Verdict {
    if covers(record.dot) || held?.dot == record.dot { return .ignore }
    if record.stamp > limit { return .park }
    return apply(record, held: held)
  }

  /// The outcome for a record whose time has come.
  static func apply(_ record: Record, held: Record?) -> Verdict {
    guard let held else { return .win(conflict: false) }
    if held.dot == record.dot { return .ignore }
    return record.version > held.version
      ? .win(conflict: isConflict(winner: record, loser: held))
      : .lose(conflict: isConflict(winner: held, loser: record))
  }

  /// Was the beaten record written without its winner's author knowing of it? A beaten tombstone loses nobody's value.
  static func isConflict(winner: Record, loser: Record) -> Bool {
    !loser.isReserved && !loser.isTombstone && winner.base != loser.dot && winner.dot.actor != loser.dot.actor
  }

  /// Open dots of the beaten record that must not be forgotten: the winner is issued again with their names.
  static func openDots(
    of loser: Record, unknownTo winner: Record, covers: (Dot) -> Bool
  ) -> [Dot] {
    loser.isReserved
      ? []
      : loser.open.filter { !covers($0) && !winner.open.contains($0) && $0 != winner.dot }
  }

  /// What a write that replaces `old` says of its past: the base dot, and the dots that it replaces without its author
  /// covering them.
  static func causalContext(
    replacing old: ReplacedRecord?, by actor: ActorID?, names: [Dot] = [], covers: (Dot) -> Bool
  ) -> (base: Dot?, open: [Dot]) {
    guard let old else { return (nil, []) }
    let base = old.dot.actor == actor ? old.base : old.dot
    var open: [Dot] = []
    if !covers(old.dot) { open.append(old.dot) }
    for dot in old.open where !covers(dot) && !open.contains(dot) { open.append(dot) }
    for dot in names where !covers(dot) && !open.contains(dot) { open.append(dot) }
    return (base, open.count > Limits.openDots ? Array(open.prefix(Limits.openDots)) : open)
  }
}

/// What a write has to know of the record that it replaces.
struct ReplacedRecord: Sendable {
  /// Which write it is.
  var dot: Dot
  /// Its own base dot.
  var base: Dot?
  /// Its own open dots.
  var open: [Dot]
  /// Did it delete the key?
  var isTombstone: Bool
  /// When it expires, in milliseconds since 1970.
  var deadline: UInt64?

  /// Has it a value at this time, in milliseconds since 1970?
  func isLive(at time: UInt64) -> Bool { !isTombstone && (deadline.map { $0 > time } ?? true) }
}

extension Record {
  /// What a write that replaces it has to know.
  var replaced: ReplacedRecord {
    ReplacedRecord(dot: dot, base: base, open: open, isTombstone: isTombstone, deadline: deadline)
  }
}
