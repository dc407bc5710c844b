internal import SyncStore

/// Reports of the node's sessions.
extension NodeCore: SessionDriverDelegate {
  func session(_ driver: SessionDriver, followsJournalAfter position: UInt64) {
    watch.notify(driver.number, after: position) { [weak driver] in driver?.journalGrew() }
  }

  func sessionReceivedHello(_ driver: SessionDriver) {
    let device = driver.remotePeer.device
    guard incoming[driver.number] != nil, duplicateIdentities.isConflict(device) else { return }
    // Deferred: a session takes no event while it handles one.
    _ = loop.schedule(after: 0) { self.notifyDuplicate(driver, device: device) }
  }

  func sessionWentLive(_ driver: SessionDriver) { wentLive(driver) }

  func sessionOpened(_ driver: SessionDriver) { blobFetches.opened(driver) }

  func sessionProgressed(_ driver: SessionDriver) { outgoing[driver.number]?.onProgress(driver.figures) }

  func sessionExtendedCoverage(_ driver: SessionDriver) {
    for other in drivers where other !== driver && other.isLive { other.journalGrew() }
  }

  func session(_ driver: SessionDriver, repaired count: Int, keys: ArraySlice<[UInt8]>) {
    counters.repairedKeys += UInt64(count)
    context.log.emit(.warning, Self.repaired(count, keys: keys, peer: driver.peerName))
  }

  func session(_ driver: SessionDriver, notifies news: [SessionNotification]) {
    for item in news {
      if case .differences(let found) = item { outgoing[driver.number]?.onDifferences(found) }
      blobFetches.handle(item, from: driver)
    }
  }

  func sessionIsOver(_ driver: SessionDriver) { blobFetches.ended(driver) }

  /// The log message about keys that had two contents (F61).
  private static func repaired(_ count: Int, keys: ArraySlice<[UInt8]>, peer: String) -> String {
    let names = keys.prefix(20).map { "\"\(String(decoding: $0, as: UTF8.self).printable)\"" }
    let more = count > names.count ? " and \(count - names.count) more" : ""
    return "\(peer): \(count == 1 ? "a key" : "\(count) keys") had two contents under one write"
      + " (\(names.joined(separator: ", "))\(more)): a machine was cloned or put back unnoticed: both values are kept,"
      + " the greater ones were issued again: look at the conflicts"
  }
}
