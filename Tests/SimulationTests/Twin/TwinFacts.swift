import SyncStore

extension Twin {
  /// Beaten values expire: compaction drops them after some time. The model has no such age.
  func forgetAged(_ copy: Int) throws {
    let kept = try machines[copy].store.conflicts()
    var state = model.copies[copy].live
    forgetAged(of: &state, copy, kept: kept)
    guard state.losers.count < model.copies[copy].live.losers.count else { return }
    model.copies[copy].live = state
    capture(copy)
  }

  /// Removes from a state of a copy, present or past, the losers that its store was allowed to drop for age,
  /// and did.
  private func forgetAged(of state: inout Model.State, _ copy: Int, kept: [LogEntry]) {
    let oldest = model.wall(copy) - Int(Limits.conflictMilliseconds) / Self.unit
    let dots = Set(kept.map(\.dot))
    state.losers.removeAll { loser in
      guard let since = machines[copy].beaten[loser.dot], since <= oldest + Model.ahead else { return false }
      return !dots.contains { $0.actor.low == loser.actor.number && $0.sequence == loser.sequence }
    }
  }

  /// A copy that takes a new actor keeps own replaced values that its journal still has. The model has no
  /// compaction: it adopts what the store found.
  func adoptLookedBack(_ copy: Int) throws {
    let retracted = model.copies[copy].live.retracted
    guard !retracted.isEmpty else { return }
    let known = Set(model.copies[copy].live.losers.map(\.dot))
    var isNew = false
    for kept in try machines[copy].store.conflicts() {
      guard let actor = retracted.first(where: { $0.number == kept.dot.actor.low }) else { continue }
      let dot = Model.Dot(actor: actor, sequence: Int(kept.dot.sequence))
      guard !known.contains(dot),
        let record = model.written.values.joined().first(where: {
          $0.dot == dot && !$0.isDead && $0.stamp == Int(kept.stamp.rawValue)
        })
      else { continue }
      model.copies[copy].live.lose(record)
      isNew = true
    }
    if isNew { capture(copy) }
  }

  /// The visible state of a copy: current records, coverage, conflicts.
  struct Facts: Equatable, CustomStringConvertible {
    /// A held or parked record.
    struct Record: Hashable, Comparable, CustomStringConvertible {
      var key: Int
      var actor: Int
      var sequence: Int
      var stamp: Int
      var value: Int
      var isDead: Bool
      var deadline: Int
      /// It is parked.
      var isWaiting: Bool

      static func < (left: Record, right: Record) -> Bool {
        (left.key, left.stamp, left.actor, left.sequence) < (
          right.key, right.stamp, right.actor, right.sequence
        )
      }

      var description: String {
        "\(isDead ? "delete" : "put") k\(key) \(actor):\(sequence) @\(stamp / Twin.tick - Twin.start).\(stamp % Twin.tick) v\(value)"
          + (isWaiting ? ", waiting" : "")
          + (deadline == Model.never ? "" : " until \(deadline - Twin.start)")
      }
    }

    struct Dot: Hashable, Comparable {
      var actor: Int
      var sequence: Int
      static func < (left: Dot, right: Dot) -> Bool {
        (left.actor, left.sequence) < (right.actor, right.sequence)
      }
    }

    var records: [Record]
    /// Current or parked writes under reserved keys: frontiers.
    var reserved: [Dot]
    var vector: [Dot]
    var floor: [Dot]
    var horizon: Int
    var conflicts: [Dot]
    /// Whether it is unconfirmed or recovering.
    var health: ReplicaHealth
    /// What it knows of the relay; nil if there is none.
    var relay: RelayFacts?

    var description: String {
      func list(_ dots: [Dot]) -> String { dots.map { "\($0.actor):\($0.sequence)" }.joined(separator: " ") }
      return
        "  \(health); \(relay.map { "relay \($0); " } ?? "")frontiers \(list(reserved)); vector \(list(vector)); floor \(list(floor)); horizon \(horizon); conflicts \(list(conflicts))\n"
        + records.map { "  \($0)" }.joined(separator: "\n")
    }

    /// The state that a store shows with clock `wall`, in units.
    init(of store: Store, wall: Int) throws {
      let log = try store.log(from: 1, limit: .max)
      reserved = Self.last(
        of: log.filter { $0.isCurrent && $0.key == nil }.map {
          Dot(actor: Int($0.dot.actor.low), sequence: Int($0.dot.sequence))
        })
      records = Self.sorted(Self.shown(log, by: store, wall: wall))
      let covered = try store.versionVector()
      vector = covered.actors.map { Dot(actor: Int($0.low), sequence: Int(covered[$0])) }.sorted()
      let summary = try store.replicaSummary()
      floor = summary.floor.actors.map { Dot(actor: Int($0.low), sequence: Int(summary.floor[$0])) }.sorted()
      horizon = Int(summary.horizon.rawValue)
      health = summary.health
      conflicts = try store.conflicts().map {
        Dot(actor: Int($0.dot.actor.low), sequence: Int($0.dot.sequence))
      }.sorted()
    }

    /// The current or parked records of users' keys.
    static func shown(_ log: [LogEntry], by store: Store, wall: Int) -> [Record] {
      log.compactMap { entry in
        guard entry.isCurrent, let key = entry.key else { return nil }
        // A key with a damaged record has no known winner: then the clock decides what is parked.
        let winner = (try? store.explain(key)).map { $0?.winner.dot }
        let isWaiting = winner.map { $0 != entry.dot } ?? (entry.stamp.rawValue > Self.limit(wall))
        return Record(
          key: Int("\(key)") ?? -1, actor: Int(entry.dot.actor.low), sequence: Int(entry.dot.sequence),
          stamp: Int(entry.stamp.rawValue),
          value: entry.isTombstone
            ? 0 : (Int(String(decoding: (entry.value ?? []).prefix(8), as: UTF8.self)) ?? -1) - 10_000_000,
          isDead: entry.isTombstone, deadline: entry.deadline.map { Int($0) / Twin.unit } ?? Model.never,
          isWaiting: isWaiting)
      }
    }

    private static func limit(_ wall: Int) -> UInt64 {
      UInt64(wall * Twin.unit) << 16 + Limits.clockDriftMilliseconds << 16
    }

    /// A beaten parked record may be parked again after a replay. That only affects when the key may be
    /// purged.
    private static func sorted(_ records: [Record]) -> [Record] {
      let beaten = Set(beaten(records))
      return records.filter { !beaten.contains($0) }.sorted()
    }

    /// Parked records that a held one beats.
    static func beaten(_ records: [Record]) -> [Record] {
      let held = records.filter { !$0.isWaiting }
      return records.filter { record in
        record.isWaiting && held.contains { $0.key == record.key && record < $0 }
      }
    }

    /// The last frontier of each actor, for the same reason.
    private static func last(of frontiers: [Dot]) -> [Dot] {
      Dictionary(grouping: frontiers, by: \.actor).values.compactMap { $0.max() }.sorted()
    }

    init(of state: Model.State, _ model: Model.World) {
      func facts(_ records: [Model.Record], isWaiting: Bool) -> [Record] {
        records.filter { !$0.isReserved }.map { record in
          Record(
            key: record.key, actor: record.actor.number, sequence: record.sequence, stamp: record.stamp,
            value: record.value, isDead: record.isDead, deadline: record.deadline, isWaiting: isWaiting)
        }
      }
      records = Self.sorted(
        facts(state.held, isWaiting: false) + facts(state.parked.flatMap(\.records), isWaiting: true))
      reserved = Self.last(
        of: (state.held + state.parked.flatMap(\.records)).filter(\.isReserved).map {
          Dot(actor: $0.actor.number, sequence: $0.sequence)
        })
      vector = state.vector.pairs.map { Dot(actor: $0.actor.number, sequence: $0.sequence) }.sorted()
      floor = state.floor.pairs.map { Dot(actor: $0.actor.number, sequence: $0.sequence) }.sorted()
      horizon = state.horizon
      health = state.isMending ? .recovering : state.suspects.isEmpty ? .healthy : .unconfirmed
      conflicts = state.losers.map { Dot(actor: $0.actor.number, sequence: $0.sequence) }.sorted()
    }
  }
}

extension Twin {
  /// The facts of a store whose clock shows `wall`, in units.
  func facts(of store: Store, wall: Int) throws -> Facts {
    var facts = try Facts(of: store, wall: wall)
    facts.relay = try relay?.facts(of: store)
    return facts
  }

  /// The facts of a state of the model.
  func facts(of state: Model.State) -> Facts {
    var facts = Facts(of: state, model)
    if relay != nil { facts.relay = RelayFacts(of: state.relay) }
    return facts
  }

  /// Finds the one of `states` to which the store returned.
  func findPast(
    of store: Store, in copy: Int, _ states: ArraySlice<Model.State>
  ) throws -> (state: Model.State, index: Int) {
    let kept = try store.conflicts()
    let facts = try facts(of: store, wall: model.wall(copy))
    let current = Set(
      try store.log(from: 1, limit: .max).filter(\.isCurrent).map {
        Facts.Dot(actor: Int($0.dot.actor.low), sequence: Int($0.dot.sequence))
      })
    var other: (state: Model.State, index: Int)?
    for index in states.indices.reversed() {
      var state = states[index]
      state.reread(limit: model.limit(copy))
      forgetAged(of: &state, copy, kept: kept)
      var shown = state.shown(limit: model.limit(copy))
      // A directory that was copied, or cut, has taken a new actor when it was opened.
      if try store.actor.low != state.actor.number { shown.relay.becomeAnother() }
      guard self.facts(of: shown) == facts else { continue }
      // A beaten parked record is not part of the facts: it may have been cut off.
      let lacks = state.parked.flatMap(\.records).contains {
        !current.contains(Facts.Dot(actor: $0.actor.number, sequence: $0.sequence))
      }
      try parkAgain(in: &state, store, copy)
      guard lacks else { return (state, index) }
      if other == nil { other = (state, index) }
    }
    if let other { return other }
    throw Mismatch(
      "the store of copy \(copy) is nothing it ever was:\n\(facts)\nthe last was\n\(states.last.map { self.facts(of: $0).description } ?? "")"
    )
  }
}

extension Twin {
  /// The store's journal may still have a beaten record that the model dropped: it is parked again. A record
  /// held until a due one was applied looks the same.
  private func parkAgain(in state: inout Model.State, _ store: Store, _ copy: Int) throws {
    let shown = Facts.shown(try store.log(from: 1, limit: .max), by: store, wall: model.wall(copy))
    for record in Facts.beaten(shown) {
      guard
        let written = model.written[record.key]?.first(where: {
          $0.actor.number == record.actor && $0.sequence == record.sequence && $0.stamp == record.stamp
        }), !state.isCurrent(written)
      else { continue }
      state.park(written)
    }
  }
}

/// Gives the stores' actors the names of the model's.
final class ActorNames: @unchecked Sendable {
  // A twin is driven by one thread.
  var next = 1

  func take() -> ActorID {
    defer { next += 1 }
    let actor = Model.Actor(number: next)
    return ActorID(high: UInt64(actor.name), low: UInt64(next))
  }
}
