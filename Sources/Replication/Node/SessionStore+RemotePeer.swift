internal import SyncStore

/// What the session's store asks of the member at the other end.
extension SessionStore {
  /// Looks the member up again: its right was read in the handshake, and the session may begin long after it. What the session is told if
  /// it is another right by now; nil if it is the same.
  func changedRight() throws(ReplicationError) -> SessionEvent? {
    guard let remotePeer else { return nil }
    let member = try Membership(store).authorizedMember(remotePeer.device)
    guard let right = member?.right.inSession else {
      return .failed(.notAMember, "it is no member any more: its right was taken away while it connected")
    }
    guard right != remotePeer.right else { return nil }
    return .stale("the right of this member was changed while it connected")
  }

  /// Opens the next round. A mark that is not known here says that this copy was put back (rule R9), if who shows it may write. Who may only
  /// read could make it up, and is given a round from the start instead: what it covers is left out of it.
  func openRound(believing receiver: RoundReceiver, on ground: DeltaScanContext?) throws(StoreError)
    -> DeltaStream
  {
    do throws(StoreError) { return try store.openRound(for: receiver, on: ground) } catch {
      guard error.code == .rolledBack, remotePeer?.right == .readOnly, receiver.cursor != nil else {
        throw error
      }
      var plain = receiver
      plain.cursor = nil
      return try store.openRound(for: plain, on: nil)
    }
  }
}
