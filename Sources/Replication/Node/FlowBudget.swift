internal import SyncStore

/// Bytes that the sessions of a node hold in memory: queued for peers that have not read them, or received
/// and not stored. Confined to the loop's thread.
///
/// Each session has its own bounds (`Limits.connectionBytes`, `WireLimits.unstoredBytes`). When all together
/// hold more than `Limits.nodeBytes`, each is limited to `WireLimits.crowdedBytes`: slow peers slow their own
/// transfers, and the node's memory does not grow with the number of peers times their windows.
final class FlowBudget {
  /// Bytes held by all sessions.
  var held = 0
  /// Whether the sessions exceed the node's bound.
  var isCrowded: Bool { held > Limits.nodeBytes }

  /// The part of one session. Confined to the loop's thread.
  struct Share {
    private let budget: FlowBudget
    private var bytes = 0

    init(of budget: FlowBudget) { self.budget = budget }

    var isCrowded: Bool { budget.isCrowded }

    mutating func set(_ bytes: Int) {
      budget.held += bytes - self.bytes
      self.bytes = bytes
    }
  }
}
