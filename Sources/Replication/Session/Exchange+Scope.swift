package import SyncStore

/// Receiver to sender, once it has all else: please send what you hold of keys that I do not hold yet.
package struct ScopeWant: Hashable, Sendable {
  /// The keys that it holds and that it is to hold.
  package var keys: MissingScope
  /// How far they have come from this sender, if they have.
  package var cursor: Cursor?

  /// Both fields.
  package init(keys: MissingScope, cursor: Cursor?) { (self.keys, self.cursor) = (keys, cursor) }
}

extension ScopeWant {
  func write(to writer: inout ByteWriter) {
    keys.held.write(to: &writer)
    KeyScope.write(keys.wanted, to: &writer)
    writer.write(cursor)
  }

  init(from reader: inout ByteReader) throws(DecodingFailure) {
    let held = try KeyScope(from: &reader)
    let wanted = try KeyScope.read(from: &reader)
    guard wanted.covers(held) else { throw DecodingFailure("keys that are held are not wanted") }
    self.init(keys: MissingScope(wanted: wanted, held: held), cursor: try reader.readCursor())
  }
}

/// Copies of some of the keys (`docs/replication.md`, Selective copies). They meet copies of all keys only, are sent what is for
/// them, and are believed what they wrote themselves. Either side may come to hold more: when all else is done, it gets what it
/// lacks in a round of its own. A client asks then; a server asks at once, and the client answers when its plan is done.
extension Exchange {
  /// Do both sides hold all keys? Only then can their digests be compared.
  var areComplete: Bool { own.summary.scope == nil && peer.summary.scope == nil }

  /// Asks for the keys that this side is to hold, if there are any and the other side has them. Once in a session.
  mutating func requestScopeExpansion(_ port: inout SessionPort) -> Bool {
    guard progress != .expandingScope, let widening = own.summary.scopeExpansion,
      let held = own.summary.scope,
      peer.summary.scope == nil, receiving != nil, own.summary.health == .healthy
    else { return false }
    progress = .expandingScope
    let next = widening.next(from: peer.summary)
    receiving?.expectScopeExpansion(next)
    port.send(
      .scopeWant(ScopeWant(keys: MissingScope(wanted: next.scope, held: held), cursor: next.cursor)))
    return true
  }

  /// Will a server that says this of itself ask a client for keys?
  static func requestsKeys(_ own: ReplicaSummary, of client: Hello) -> Bool {
    client.compatibleFeatures & SessionFeature.scopeExpansion != 0 && own.scopeExpansion != nil
      && own.scope != nil
      && client.summary.scope == nil && own.health == .healthy
  }

  /// Has the server said that it asks for keys?
  var serverRequestsKeys: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.scopeExpansion != 0
  }

  /// The server's part: asks for the keys that it is to hold, if it has said so.
  mutating func requestMissingKeys(_ port: inout SessionPort) {
    guard serverRequestsKeys, let widening = own.summary.scopeExpansion, let held = own.summary.scope,
      receiving != nil
    else { return }
    let next = widening.next(from: peer.summary)
    receiving?.expectLaterScopeExpansion(next)
    port.send(
      .scopeWant(ScopeWant(keys: MissingScope(wanted: next.scope, held: held), cursor: next.cursor)))
  }

  /// The client's part: its plan is done, and it gives the keys that the server has asked for. False if there are none.
  mutating func sendRequestedKeys(_ port: inout SessionPort) throws(SessionEnd) -> Bool {
    guard let want = requestedKeys else { return false }
    requestedKeys = nil
    progress = .expandingScope
    try sendKeys(want, &port)
    return true
  }

  private mutating func sendKeys(_ want: ScopeWant, _ port: inout SessionPort) throws(SessionEnd) {
    (peer.summary.scope, previousPeerScope) = (want.keys.wanted, previousPeerScope ?? want.keys.held)
    try sending?.open(
      for: RoundReceiver(
        cursor: want.cursor, covered: VersionVector(), scope: want.keys.wanted, lacking: want.keys),
      isHeld: false, &port)
  }

  // MARK: Keys that could not be given

  /// What was lacking has come. Live sessions go on as one of a copy that holds more, or, where it does not, as they are. At a client that
  /// gave keys, the server's receipt says that it does not: else it would have ended the session.
  mutating func scopeExpanded(_ port: inout SessionPort) throws(SessionEnd) {
    guard staysOpen else { return try compare(&port) }
    if waitsForKeys, keysStillMissing || previousPeerScope != nil {
      revertScopeExpansion()
      return try compare(&port)
    }
    throw reconnect(Self.holdsMore, &port)
  }

  private static let holdsMore = "more keys are held by one side now"

  /// The client says goodbye, and connects again.
  private func reconnect(_ text: String, _ port: inout SessionPort) -> SessionEnd {
    port.send(.goodbye)
    return SessionEnd(outcome: .reconnect(text))
  }

  /// Does a session that stays open go on where they could not?
  var waitsForKeys: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.waitsForKeys != 0
  }

  /// A server that stays open and holds more keys now ends the session in place of giving its receipt: what the client knows of it does
  /// not hold any more.
  func endIfScopeExpanded() throws(SessionEnd) {
    guard progress == .answering, staysOpen, waitsForKeys, !keysStillMissing,
      receiving?.isScopeExpansion == true
    else { return }
    throw .tryAgain(Self.holdsMore)
  }

  /// The session goes on as if those that this side gave had not been asked for.
  mutating func revertScopeExpansion() {
    guard let held = previousPeerScope else { return }
    peer.summary.scope = held
    sending?.revertScopeExpansion()
  }

  /// Seconds after which a live session ends, so that keys are asked for again.
  private static let keyRetrySeconds = 300

  /// The session has gone live.
  func scheduleKeyRetry(_ port: inout SessionPort) {
    if keysStillMissing { port.actions.append(.setTimer(.scopeExpansion, seconds: Self.keyRetrySeconds)) }
  }

  /// The other side may have by now what it lacked. The next session asks it.
  func retryKeyRequest(_ port: inout SessionPort) throws(SessionEnd) {
    guard isAtRest else { return scheduleKeyRetry(&port) }
    let text = "keys that this side lacks are asked for again"
    throw progress == .answering ? .tryAgain(text) : reconnect(text, &port)
  }

  /// The other side asks for more keys than it has held.
  mutating func keysRequested(_ want: ScopeWant, _ port: inout SessionPort) throws(SessionEnd) {
    guard !live.isOn, own.summary.scope == nil, peer.summary.scope == want.keys.held else {
      throw .violation("keys were wanted that are not to be had")
    }
    switch progress {
    case .answering:
      guard sending?.isDelivered ?? false else { throw .violation("keys were wanted too early") }
      try sendKeys(want, &port)
    case .loadingCursor, .firstPass, .secondPass:
      guard serverRequestsKeys, sending != nil, requestedKeys == nil else {
        throw .violation("keys were wanted, but that was not agreed")
      }
      requestedKeys = want
    case .comparing, .expandingScope, .repairing, .live, .controlOnly:
      throw .violation("keys were wanted too late")
    }
  }
}
