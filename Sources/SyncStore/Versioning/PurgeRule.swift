/// What a member has said of itself: the vector that it had reached.
struct Frontier: Hashable, Sendable {
  /// What it covered.
  var vector: VersionVector
  /// When it said so.
  var stamp: Stamp
  /// Does it hold only some keys?
  var isNarrow: Bool

  init(vector: VersionVector, stamp: Stamp, isNarrow: Bool = false) {
    (self.vector, self.stamp, self.isNarrow) = (vector, stamp, isNarrow)
  }

  /// The value of its record.
  static func bytes(_ vector: VersionVector, isNarrow: Bool) -> [UInt8] {
    // Programs that know nothing of such copies read the vector and no further.
    ReplicaState.encode(vector) + (isNarrow ? [1] : [])
  }

  /// What the record of a frontier says; nil if it says nothing: the member left, or a newer program wrote it.
  init?(_ record: Record) {
    guard case .inline(let value) = record.content else { return nil }
    var reader = ByteReader(value)
    guard let vector = try? reader.readVector() else { return nil }
    self.init(vector: vector, stamp: record.stamp, isNarrow: (try? reader.read(UInt8.self)) == 1)
  }
}

/// Which dead records a copy may purge (rule R8): a decision without I/O.
struct PurgeRule: Sendable {
  private let vector: VersionVector
  /// Of the members that are waited for.
  private let frontiers: [Frontier]
  /// What members have covered that hold all keys, whenever they said so; nil for a copy that does itself.
  private let complete: [VersionVector]?
  private let time: UInt64
  /// May anything be purged at all?
  let isOpen: Bool

  /// For a copy in this state, at a time in milliseconds since 1970; `frontiers` are those of the other active members, `retired` those
  /// of members that are not waited for.
  init(_ state: ReplicaState, frontiers: [Frontier], retired: [Frontier] = [], at time: UInt64) {
    let vector = state.vector
    (self.vector, self.frontiers, self.time) = (vector, frontiers, time)
    complete = state.scope == nil ? nil : (frontiers + retired).filter { !$0.isNarrow }.map(\.vector)
    // What a member covers and this copy does not may be a record that one purged here was to beat.
    isOpen =
      state.isHealthy && vector.covers(state.floor) && frontiers.allSatisfy { vector.covers($0.vector) }
  }

  /// May this record go? Kept are those that are live, that somebody may not have seen, and that replaced something that this
  /// copy does not cover.
  func allows(_ version: Version, open: [Dot], isTombstone: Bool, deadline: UInt64?) -> Bool {
    guard isOpen, isTombstone || Self.isExpired(deadline, at: time), vector.covers(version.dot),
      open.allSatisfy({ vector.covers($0) })
    else { return false }
    // Nobody takes over from a copy of some keys what it has purged: somebody who has all must know of the delete.
    if let complete, !complete.contains(where: { $0.covers(version.dot) }) { return false }
    return frontiers.allSatisfy { $0.vector.covers(version.dot) && $0.stamp > version.stamp }
  }

  /// Is the deadline past on every clock that the drift limit allows?
  static func isExpired(_ deadline: UInt64?, at time: UInt64) -> Bool {
    deadline.map { $0 &+ Limits.clockDriftMilliseconds < time && $0 <= .max - Limits.clockDriftMilliseconds }
      ?? false
  }
}

/// Whether a member is to say what it covers: a decision without I/O.
enum AcknowledgementRule: Equatable, Sendable {
  case isDue
  case isEarly
  /// Only if there are deletes that it has not spoken of.
  case dependsOnDeletes

  /// For one of so many members who spoke last at a stamp, at a time in milliseconds since 1970.
  init(last: Stamp?, members: Int, at time: UInt64) {
    guard let last = last?.milliseconds else {
      self = .dependsOnDeletes
      return
    }
    // Each of n members sends n entries to n others: the traffic of an hour stays the same for all n above 32.
    let factor = UInt64(max(1, members * members / 1024))
    let pause = min(Limits.acknowledgementMilliseconds * factor, Limits.retirementMilliseconds / 3)
    if time < last + pause {
      self = .isEarly
    } else if time >= last + Limits.retirementMilliseconds / 2 {
      // Who says nothing for the whole period is not waited for.
      self = .isDue
    } else {
      self = .dependsOnDeletes
    }
  }
}

extension Record {
  /// Is it dead on every clock that the drift limit allows, at a time in milliseconds since 1970?
  func isGone(at time: UInt64) -> Bool { isTombstone || PurgeRule.isExpired(deadline, at: time) }
}
