/// The writes that the sender of a full state holds, collected while it arrives (rule R8).
package final class FullState: Sendable {
  private struct Known {
    var present = DotSet()
    /// Keys where the sender's record or the one held here is in doubt: whether this copy now holds the
    /// sender's record.
    var doubtful: [[UInt8]: Bool] = [:]
  }

  private let known = LockedField(Known())

  /// Nothing received yet.
  package init() {}

  /// Approximate memory, in bytes, for the dots that the sender holds.
  package var bytes: Int { known.withLock { $0.present.bytes } }

  /// Records the dots named by a batch.
  func record(_ batch: IncomingBatch) {
    known.withLock { known in
      for item in batch.records.list { known.present.insert(item.record.dot) }
      for dot in batch.present { known.present.insert(dot) }
    }
  }

  /// Records that the sender holds `record` where this copy holds `held`; the dot of one of them may have
  /// been used twice. `isTaken` unless the sender's record is parked, or this copy covers its dot, possibly
  /// with another content.
  func record(doubtful record: Record, against held: Record?, isTaken: Bool) {
    var (record, held) = (record, held)
    record.continues = false
    held?.continues = false
    // The winner is held from now on; if that is the sender's, both hold the same. Of two records with the
    // same dot the held one stays.
    let wins = isTaken && held.map { $0.dot != record.dot && $0.version < record.version } ?? true
    let isSame = wins || record == held
    known.withLock { $0.doubtful[record.key] = isSame }
  }

  /// Whether the sender holds a write with this dot.
  func isPresent(_ dot: Dot) -> Bool { known.withLock { $0.present.contains(dot) } }

  /// The sender's record of the key of a record held here in `state`.
  func holding(of record: Record, in state: ReplicaState) -> SenderHolding {
    guard state.incarnations.isUnconfirmed(record.dot) else {
      return isPresent(record.dot) ? .same : .nothing
    }
    switch known.withLock({ $0.doubtful[record.key] }) {
    case true?: return .same
    case false?: return .different
    case nil: return .nothing
    }
  }
}

/// The sender's record of a key, compared with the record held here.
enum SenderHolding {
  /// Not this write. Whether another one of the key is recorded only for a record in doubt.
  case nothing
  /// This very write.
  case same
  /// Another record, which does not beat the one held here.
  case different
}

/// The fate of a record held here after another copy's full state has arrived; decided without I/O.
enum FullStateVerdict: Equatable {
  case keep
  /// Dead: the sender covers it and does not hold it.
  case drop
  /// Issue again as a new write: what had beaten it may have been purged, or its dot is in doubt.
  case reissue
  /// Unknown whether it was deleted: remove it, but keep it as a conflict loser.
  case setAside

  /// Verdict on the current record of a key, held by this copy in `state`. Up to `horizon`, a purged delete
  /// may have beaten it.
  init(
    _ record: Record, state: ReplicaState, close: RoundClose, horizon: Stamp, senderHolds held: SenderHolding,
    at time: UInt64
  ) {
    let isCovered = close.vector.covers(record.dot)
    if record.isReserved || held == .same {
      self = .keep
    } else if state.incarnations.isUnconfirmed(record.dot) {
      if !isCovered || held == .different || record.stamp > close.horizon {
        self = .reissue
      } else {
        self = record.isGone(at: time) ? .drop : .setAside
      }
    } else if isCovered {
      // The sender may cover the dot with the other content.
      self = state.incarnations.isAmbiguous(record.dot) && !record.isGone(at: time) ? .setAside : .drop
    } else if state.isRecovering, state.isMine(record.dot) {
      self = .reissue
    } else {
      // Do not decide by expiration: this clock may be wrong.
      self = record.stamp <= horizon && !record.isTombstone ? .reissue : .keep
    }
  }

  /// Verdict on a parked record.
  init(parked record: Record, _ close: RoundClose, horizon: Stamp, isPresent: Bool) {
    let isCovered = close.vector.covers(record.dot)
    if isCovered {
      self = isPresent ? .keep : .drop
    } else {
      self = record.stamp <= horizon && !record.isTombstone ? .reissue : .keep
    }
  }
}

/// The rule that gives the verdict on records held here.
enum VerdictRule {
  /// Another copy's complete full state. Records after the given position were not compared on arrival with
  /// the deletes purged here, up to that horizon.
  case fullState(FullState, RoundClose, after: UInt64, horizon: Stamp)
  /// This copy is about to send a round to a receiver that covers this vector: unconfirmed writes not covered
  /// there are issued again.
  case unknown(VersionVector)

  /// Whether any verdict but `keep` is possible.
  func concerns(_ dot: Dot, state: ReplicaState) -> Bool {
    switch self {
    case .fullState(let full, _, _, _): return !full.isPresent(dot) || state.incarnations.isUnconfirmed(dot)
    case .unknown(let covered): return state.incarnations.isUnconfirmed(dot) && !covered.covers(dot)
    }
  }

  func verdict(
    on record: Record, at position: UInt64, _ state: ReplicaState, at time: UInt64
  ) -> FullStateVerdict {
    // Records outside the scope belong to a scope expansion, which restarts and sends them again. Dropping an
    // own write among them would leave this copy covering what it no longer holds.
    guard state.scope.holds(record.key), concerns(record.dot, state: state) else { return .keep }
    switch self {
    case .fullState(let full, let close, let start, let horizon):
      let horizon = position > start ? horizon : close.horizon
      return FullStateVerdict(
        record, state: state, close: close, horizon: horizon,
        senderHolds: full.holding(of: record, in: state), at: time)
    case .unknown: return record.isReserved ? .keep : .reissue
    }
  }

  /// Verdict on a parked record.
  func verdict(onParked record: Record, at position: UInt64) -> FullStateVerdict {
    guard case .fullState(let full, let close, let start, let horizon) = self else { return .keep }
    return FullStateVerdict(
      parked: record, close, horizon: position > start ? horizon : close.horizon,
      isPresent: full.isPresent(record.dot))
  }
}
