internal import SyncStore

extension SessionDriver {
  /// How a session ended, and what it moved.
  struct End {
    var outcome: SessionOutcome
    var figures: SessionFigures
    /// The own store's error, if it ended the session.
    var failure: StoreError?
    /// Bytes on the wire, TLS included.
    var sentBytes: UInt64
    var receivedBytes: UInt64
    /// The copy at the other end, as its hello described it.
    var contact: Contact?
    /// Whether the other side does not keep all large values that it receives.
    var peerLeavesOut = false
    /// Whether the session had gone live.
    var wasLive = false
    /// Whether the other side has said that this copy was revoked.
    var wasRevoked = false
  }

  /// The priority of the action: the few records of a live session are prompt; a session that catches up, or
  /// moves much, is ordinary.
  func turn(of action: SessionAction) -> WorkerPool.Turn {
    guard wasLive else { return .ordinary }
    return switch action {
    case .openLiveUpdate: .prompt
    case .applyLast(_, _, _, let encrypted, _): encrypted.count <= Self.promptBytes ? .prompt : .ordinary
    default: .ordinary
    }
  }

  /// Largest encrypted batch, in bytes, that is applied as prompt work.
  private static let promptBytes = 64 << 10
}
