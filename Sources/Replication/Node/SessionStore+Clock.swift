internal import SyncStore

/// What is not sent because of the clock that stamped it.
extension SessionStore {
  /// Refuses to send what a wrong clock may have stamped: others would let it wait until its time has come, and it could not
  /// be restamped any more. Called before a round's mark is made, which would say that it may have left.
  func requireRightClock() throws {
    try requireNothingAhead()
    try requireUnsetClock()
  }

  /// By how many milliseconds the wall clock is ahead of the clock that is never set; nil where there is none.
  var clockLead: Int64? {
    store.environment.elapsed.map { Int64(store.environment.now()) - Int64($0()) }
  }

  /// Writes that a clock which was put right since has stamped.
  private func requireNothingAhead() throws {
    guard let ahead = try store.unsentWritesAhead() else { return }
    throw ReplicationError(
      .clockSkew,
      "nothing was sent: a clock that ran ahead has stamped \(ahead.writes == 1 ? "a write" : "\(ahead.writes) writes") "
        + "of this copy, and other members would not apply it before \(UniversalTime.string(milliseconds: ahead.until)): if this clock is right, "
        + "give what it stamped the present time (`Store.restampUnsent`), and try again")
  }

  /// The clock was set by more than others tolerate since the two copies compared theirs: a session that stays open for days
  /// would send what the wrong clock stamps now. The handshake of the next session compares the clocks again.
  private func requireUnsetClock() throws {
    guard let now = clockLead, let then = state.withLock({ $0.clockLead }),
      (now - then).magnitude > Limits.clockDriftMilliseconds
    else { return }
    throw ReplicationError(
      .clockSkew,
      "nothing was sent: this machine's clock was set \((now - then).magnitude / 1000) s \(now > then ? "ahead" : "back") while the "
        + "session was open: connect again, so that both sides compare their clocks")
  }
}
