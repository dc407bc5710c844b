internal import SyncStore

extension SessionDriver {
  /// The contact of the copy at the other end; nil before its hello.
  var contact: Contact? {
    guard let peer = peer, let helloReceivedAt, let clockOffset else { return nil }
    return Contact(
      time: helloReceivedAt, clockOffset: clockOffset, actor: peer.summary.actor,
      received: figures.acknowledged)
  }
}
