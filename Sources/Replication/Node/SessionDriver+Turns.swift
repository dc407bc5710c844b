internal import SyncStore

extension SessionDriver {
  /// How a session ended, and what it moved.
  struct End {
    var outcome: SessionOutcome
    var figures: SessionFigures
    /// The own store's error, if that ended it.
    var failure: StoreError?
    /// Bytes on the wire, TLS included.
    var sentBytes: UInt64
    var receivedBytes: UInt64
    /// Who is at the other end, and what it told of itself.
    var contact: Contact?
    /// Does the other side leave large values out of what it takes?
    var peerLeavesOut = false
    /// Had it gone live?
    var wasLive = false
    /// Has the other side said that this copy was revoked?
    var wasRevoked = false
  }

  /// The few records of a live session are waited for; a session that catches up, or moves much, takes its turn.
  func turn(of action: SessionAction) -> WorkerPool.Turn {
    guard wasLive else { return .ordinary }
    return switch action {
    case .openLiveUpdate: .prompt
    case .applyLast(_, _, _, let sealed, _): sealed.count <= Self.promptBytes ? .prompt : .ordinary
    default: .ordinary
    }
  }

  /// Bytes of a sealed batch that is taken in before what others are sent.
  private static let promptBytes = 64 << 10
}
