/// The frontier that a member published: the vector that it had reached.
struct Frontier: Hashable, Sendable {
  /// The writes that it covered.
  var vector: VersionVector
  /// When it was published.
  var stamp: Stamp
  /// True if the member holds only some keys.
  var isNarrow: Bool

  init(vector: VersionVector, stamp: Stamp, isNarrow: Bool = false) {
    (self.vector, self.stamp, self.isNarrow) = (vector, stamp, isNarrow)
  }

  /// The value of its record.
  static func bytes(_ vector: VersionVector, isNarrow: Bool) -> [UInt8] {
    // Programs without support for partial copies read only the vector.
    ReplicaState.encode(vector) + (isNarrow ? [1] : [])
  }

  /// Decodes the record of a frontier; nil if it has none: the member left, or a newer program wrote it.
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
  /// Frontiers of the members that are waited for.
  private let frontiers: [Frontier]
  /// Vectors of the members that hold all keys, whenever published; nil for a copy that holds all keys
  /// itself.
  private let complete: [VersionVector]?
  private let time: UInt64
  /// True if anything may be purged at all.
  let isOpen: Bool

  /// The rule for a copy in this state, at a time in milliseconds since 1970; `frontiers` are those of the
  /// other active members, `retired` those of members that are not waited for.
  init(_ state: ReplicaState, frontiers: [Frontier], retired: [Frontier] = [], at time: UInt64) {
    let vector = state.vector
    (self.vector, self.frontiers, self.time) = (vector, frontiers, time)
    complete = state.scope == nil ? nil : (frontiers + retired).filter { !$0.isNarrow }.map(\.vector)
    // A write that a member covers and this copy does not may be one that a purged record should have
    // superseded.
    isOpen =
      state.isHealthy && vector.covers(state.purged.floor)
      && frontiers.allSatisfy { vector.covers($0.vector) }
  }

  /// True if this record may be purged. Kept are live records, those that some member may not have seen, and
  /// those that replaced a write which this copy does not cover.
  func allows(_ version: Version, open: [Dot], isTombstone: Bool, deadline: UInt64?) -> Bool {
    guard isOpen, isTombstone || Self.isExpired(deadline, at: time), vector.covers(version.dot),
      open.allSatisfy({ vector.covers($0) })
    else { return false }
    // No copy relies on the purges of a partial copy: a member that holds all keys must know of the delete.
    if let complete, !complete.contains(where: { $0.covers(version.dot) }) { return false }
    return frontiers.allSatisfy { $0.vector.covers(version.dot) && $0.stamp > version.stamp }
  }

  /// True if the deadline is past on every clock that the drift limit allows.
  static func isExpired(_ deadline: UInt64?, at time: UInt64) -> Bool {
    deadline.map { $0 &+ Limits.clockDriftMilliseconds < time && $0 <= .max - Limits.clockDriftMilliseconds }
      ?? false
  }
}

/// Decides whether a member must publish its frontier: a decision without I/O.
enum AcknowledgementRule: Equatable, Sendable {
  case isDue
  case isEarly
  /// Only if there are deletes that its last frontier does not cover.
  case dependsOnDeletes

  /// The decision for one of `members` members that last published at a stamp, at a time in milliseconds
  /// since 1970.
  init(last: Stamp?, members: Int, at time: UInt64) {
    guard let last = last?.milliseconds else {
      self = .dependsOnDeletes
      return
    }
    // Each of n members sends n entries to n others: the traffic of an hour stays constant for all n above
    // 32.
    let factor = UInt64(max(1, members * members / 1024))
    let pause = min(Limits.acknowledgementMilliseconds * factor, Limits.retirementMilliseconds / 3)
    if time < last + pause {
      self = .isEarly
    } else if time >= last + Limits.retirementMilliseconds / 2 {
      // A member that publishes nothing for the whole period is not waited for.
      self = .isDue
    } else {
      self = .dependsOnDeletes
    }
  }
}

extension Record {
  /// True if it is dead on every clock that the drift limit allows, at a time in milliseconds since 1970.
  func isGone(at time: UInt64) -> Bool { isTombstone || PurgeRule.isExpired(deadline, at: time) }
}
