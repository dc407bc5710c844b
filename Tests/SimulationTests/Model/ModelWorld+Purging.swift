extension Model.World {
  /// Frontiers of the other members that block a purge, judged by the copy's own clock.
  private func activeFrontiers(_ copy: Int) -> [Model.Record] {
    let oldest = (wall(copy) - retirement) * tick
    let own = Model.member + copies[copy].member
    return copies[copy].live.held.filter { $0.isReserved && $0.key != own && $0.stamp >= oldest }
  }

  /// Frontiers of members that hold all keys: a selective copy purges only after one of them.
  private func wideFrontiers(_ copy: Int) -> [Model.Record] {
    let wide = Set(copies.filter { $0.scope == nil }.map(\.member))
    return copies[copy].live.held.filter { $0.isReserved && wide.contains($0.key - Model.member) }
  }

  private func mayPurge(_ copy: Int, _ record: Model.Record, _ frontiers: [Model.Record]) -> Bool {
    let live = copies[copy].live
    guard live.covers(record.dot), live.suspects.isEmpty, !live.isMending, live.vector.covers(live.floor)
    else {
      return false
    }
    if copies[copy].scope != nil,
      !wideFrontiers(copy).contains(where: { past($0).frontier.covers(record.dot) })
    {
      return false
    }
    if rules.parkedKept, !live.parked(record.key).isEmpty { return false }
    if rules.openBases, !past(record).open.allSatisfy({ live.covers($0) }) { return false }
    return frontiers.allSatisfy { frontier in
      past(frontier).frontier.covers(record.dot) && (!rules.frontierStamped || frontier.stamp > record.stamp)
        && (!rules.frontierContained || live.vector.covers(past(frontier).frontier))
    }
  }

  /// R8: tombstones and expired records covered by all active members are forgotten, and floor and horizon
  /// record that.
  mutating func purge(_ copy: Int) {
    let wall = wall(copy)
    let frontiers = activeFrontiers(copy)
    let before = (copies[copy].live.floor, copies[copy].live.horizon)
    // The store records the purge at a position: the next round has another mark.
    defer {
      if isLikeStore, (copies[copy].live.floor, copies[copy].live.horizon) != before {
        copies[copy].live.position += 1
      }
    }
    for record in copies[copy].live.held where !record.isReserved {
      let expired =
        record.deadline != Model.never && record.deadline + (rules.digestTime ? Model.drift : 0) < wall
      // A wrong clock expires early, on this copy only: nothing in this model can correct it.
      if expired, !record.isDead, abs(copies[copy].skew) > Model.drift { continue }
      guard record.isDead || expired, mayPurge(copy, record, frontiers) else { continue }
      count(.purge)
      for frontier in frontiers {
        forkHistories[copy, default: Model.ForkHistory()].agreed.merge(past(frontier).frontier)
      }
      copies[copy].live.floor[record.actor] = max(copies[copy].live.floor[record.actor], record.sequence)
      copies[copy].live.horizon = max(copies[copy].live.horizon, record.stamp)
      copies[copy].live.drop(record.key)
      if rules.purgesOlder {
        copies[copy].live.strip(record.key)
      } else {
        copies[copy].live.removeBytes(of: record)
      }
      if !rules.durableFirst {
        // Rule off: the bytes go at once, while the floor is not durable yet.
        copies[copy].durable.drop(record.key)
        copies[copy].durable.strip(record.key)
      }
    }
  }

  mutating func compact(_ copy: Int) {
    let live = copies[copy].live
    copies[copy].live.log.removeAll { entry in
      !live.isCurrent(entry.record) && (rules.winnersOnly || !live.losers.contains(entry.record))
    }
    guard !rules.durableFirst else { return }
    // Rule off: superseded bytes go although the superseding record is not durable.
    for record in copies[copy].durable.held where live.held(record.key) != record {
      copies[copy].durable.drop(record.key)
      copies[copy].durable.strip(record.key)
    }
  }
}
