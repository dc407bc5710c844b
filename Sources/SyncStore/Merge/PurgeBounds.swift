/// What this copy, or one whose full state it received, has purged (rule R8).
///
/// All of it only rises, except that a retraction of own writes may lower floor and horizon.
struct PurgeBounds: Sendable {
  /// By actor, the greatest sequence of a purged record.
  var floor = VersionVector()
  /// The greatest stamp of a purged record.
  var horizon = Stamp.zero
  /// The last position of a delete purged here; nil if none was purged.
  var position: UInt64?
}
