internal import SyncStore

/// Refusing to send writes that a wrong clock stamped.
extension SessionStore {
  /// Throws if a wrong clock may have stamped what would be sent: other copies would park it until its time
  /// has come, and it could no longer be restamped. Called before a round's mark is made, which would record
  /// that it may have left.
  func requireRightClock() throws {
    try requireNothingAhead()
    try requireUnsetClock()
  }

  /// Milliseconds by which the wall clock is ahead of the clock that cannot be set; nil if there is none.
  var clockLead: Int64? {
    store.environment.elapsed.map { Int64(store.environment.now()) - Int64($0()) }
  }

  /// Throws if writes are stamped by a clock that has been corrected since.
  private func requireNothingAhead() throws {
    guard let ahead = try store.unsentWritesAhead() else { return }
    throw ReplicationError(
      .clockSkew,
      "nothing was sent: a clock that ran ahead has stamped \(ahead.writes == 1 ? "a write" : "\(ahead.writes) writes") "
        + "of this copy, and other members would not apply it before \(UniversalTime.string(milliseconds: ahead.until)): if this clock is right, "
        + "give what it stamped the present time (`Store.restampUnsent`), and try again")
  }

  /// Throws if the clock was set by more than the drift limit since the two copies compared theirs: a session
  /// that stays open for days would send what the wrong clock stamps now. The handshake of the next session
  /// compares the clocks again.
  private func requireUnsetClock() throws {
    guard let now = clockLead, let then = state.withLock({ $0.handshake.clockLead }),
      (now - then).magnitude > Limits.clockDriftMilliseconds
    else { return }
    throw ReplicationError(
      .clockSkew,
      "nothing was sent: this machine's clock was set \((now - then).magnitude / 1000) s \(now > then ? "ahead" : "back") while the "
        + "session was open: connect again, so that both sides compare their clocks")
  }
}
