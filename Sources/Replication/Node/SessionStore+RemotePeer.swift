internal import SyncStore

/// Checks of the member at the other end.
extension SessionStore {
  /// Reads the member's right again: it was read in the handshake, and the session may begin long after.
  /// Returns the event for a changed right; nil if it is unchanged.
  func changedRight() throws(ReplicationError) -> SessionEvent? {
    guard let remotePeer else { return nil }
    let member = try Membership(store).authorizedMember(remotePeer.device)
    guard let right = member?.right.inSession else {
      return .failed(.notAMember, "it is no member any more: its right was taken away while it connected")
    }
    guard right != remotePeer.right else { return nil }
    return .stale("the right of this member was changed while it connected")
  }

  /// Opens the next round.
  ///
  /// An unknown mark of the receiver says that this copy was restored (rule R9), if the receiver may write. A
  /// read-only receiver could make it up, and gets a round from the start instead, without what it covers.
  func openRound(believing receiver: RoundReceiver, on context: DeltaScanContext?) throws(StoreError)
    -> DeltaStream
  {
    do throws(StoreError) { return try store.openRound(for: receiver, on: context) } catch {
      guard error.code == .rolledBack, remotePeer?.right == .readOnly, receiver.cursor != nil else {
        throw error
      }
      var plain = receiver
      plain.cursor = nil
      return try store.openRound(for: plain, on: nil)
    }
  }
}
