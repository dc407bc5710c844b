internal import SyncStore

/// Bytes that the sessions of a node hold in memory: queued for peers that have not taken them, or come and not stored. Belongs to the
/// loop's thread.
///
/// Each session is bounded by itself (`Limits.connectionBytes`, `WireLimits.unstoredBytes`). When all together hold more than
/// `Limits.nodeBytes`, each goes on with `WireLimits.crowdedBytes`: slow peers slow their own transfers, and the memory of the node
/// does not grow with their number times their windows.
final class FlowBudget {
  /// What all of them hold.
  var held = 0
  /// Is that more than a node is to hold?
  var isCrowded: Bool { held > Limits.nodeBytes }
}
