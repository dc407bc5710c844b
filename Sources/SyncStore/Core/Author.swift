/// Names and stamps the writes of a copy: a value.
///
/// Invariants: `sequence` is the last one that `actor` has written; every stamp is above all that the copy
/// has seen.
struct Author: Sendable {
  /// The present incarnation; nil before it is known.
  var actor: ActorID?
  /// The last sequence that `actor` has written.
  var sequence: UInt64 = 0
  /// The hybrid clock, which holds the greatest stamp seen.
  var clock = HybridClock()

  /// The version of the next write, made at `wall` milliseconds since 1970.
  mutating func nextVersion(wall: UInt64) throws(StoreError) -> Version {
    guard let actor else { preconditionFailure("a writable store has an actor") }
    guard sequence < .max else {
      throw StoreError(.damaged, "no number is left for a write: restore from a peer")
    }
    guard let stamp = clock.tick(wall: wall) else {
      throw StoreError(.clock, "the clock stands at its end: set the system's time and restore from a peer")
    }
    sequence += 1
    return Version(stamp: stamp, dot: Dot(actor: actor, sequence: sequence))
  }
}
