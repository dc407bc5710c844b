internal import SyncStore

extension SessionDriver {
  /// What the session has told of the copy at the other end; nil before its hello.
  var contact: Contact? {
    guard let peer = peer, let helloReceivedAt, let clockOffset else { return nil }
    return Contact(
      time: helloReceivedAt, clockOffset: clockOffset, actor: peer.summary.actor,
      received: figures.acknowledged)
  }
}
