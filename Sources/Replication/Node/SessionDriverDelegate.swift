internal import SyncStore

/// Receives the reports of a session. Called on the loop's thread, and never again once the session is over.
///
/// A session takes no event while it handles one: a method that wants to end it must do so later.
protocol SessionDriverDelegate: AnyObject {
  /// `SessionDriver.journalGrew` must be called once the journal has records after `position`.
  func session(_ driver: SessionDriver, followsJournalAfter position: UInt64)
  /// The other side's hello has arrived. Called once.
  func sessionReceivedHello(_ driver: SessionDriver)
  /// The session has caught up and stays open. Called once.
  func sessionWentLive(_ driver: SessionDriver)
  /// Blobs, or who holds them, can be requested. Called once.
  func sessionOpened(_ driver: SessionDriver)
  /// Figures may have changed.
  func sessionProgressed(_ driver: SessionDriver)
  /// A round that came in parts was closed, and this copy covers more: the journal has not grown by it.
  func sessionExtendedCoverage(_ driver: SessionDriver)
  /// Keys with two contents for one write were repaired: their number, and the first of them.
  func session(_ driver: SessionDriver, repaired count: Int, keys: ArraySlice<[UInt8]>)
  /// Outcomes of requests made outside the session's plan.
  func session(_ driver: SessionDriver, notifies news: [SessionNotification])
  /// The session is over, and its completion has run. Called once, last.
  func sessionIsOver(_ driver: SessionDriver)
}
