package import SyncStore

/// Receiver to sender, after all other rounds: requests the records of keys that this copy does not hold yet.
package struct ScopeWant: Hashable, Sendable {
  /// The keys held so far and the keys of the wider scope.
  package var keys: MissingScope
  /// How far the records of those keys were received from this sender, if at all.
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

/// The transfer of the keys of a wider scope, in either direction.
struct KeyTransfer {
  /// Client: keys that the server requested and that are still to be sent.
  var requestedKeys: ScopeWant?
  /// If this side sent keys: the other side's scope before that.
  private(set) var previousPeerScope: KeyScope?
  /// If this side received keys: whether the sender lacked writes, so that the keys do not count as held yet.
  var areKeysStillMissing = false

  /// Whether keys were sent or received that do not count as held yet.
  var isUnfinished: Bool { areKeysStillMissing || previousPeerScope != nil }

  /// Keys are sent to the other side, which holds `scope`. The scope before the first of them is kept.
  mutating func sendsKeys(to scope: KeyScope) { previousPeerScope = previousPeerScope ?? scope }
}

/// Sessions of scoped copies (`docs/replication.md`, Selective copies).
///
/// A scoped copy syncs only with copies of all keys. It receives the records of its scope, and only its own
/// writes are accepted from it. Either side may widen its scope: the missing keys then come in a round of
/// their own, after all others. A client requests them at that point; a server requests them at once, and the
/// client answers when its plan is done.
extension Exchange {
  /// Whether both sides hold all keys. Only then can their digests be compared.
  var areComplete: Bool { own.summary.scope == nil && peer.summary.scope == nil }

  /// Requests the keys of a wider scope, if there are any and the other side holds them. Once per session.
  mutating func requestScopeExpansion(_ port: inout SessionPort) -> Bool {
    guard progress != .expandingScope, let expansion = own.summary.scopeExpansion,
      let held = own.summary.scope,
      peer.summary.scope == nil, receiving != nil, own.summary.health == .healthy
    else { return false }
    progress = .expandingScope
    let next = expansion.next(from: peer.summary)
    receiving?.expectScopeExpansion(next)
    port.send(
      .scopeWant(ScopeWant(keys: MissingScope(wanted: next.scope, held: held), cursor: next.cursor)))
    return true
  }

  /// Whether a server with this summary will request keys from a client.
  static func requestsKeys(_ own: ReplicaSummary, of client: Hello) -> Bool {
    client.compatibleFeatures & SessionFeature.scopeExpansion != 0 && own.scopeExpansion != nil
      && own.scope != nil
      && client.summary.scope == nil && own.health == .healthy
  }

  /// Whether the server has announced that it requests keys.
  var serverRequestsKeys: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.scopeExpansion != 0
  }

  /// Server: requests the keys of its wider scope, if it announced that.
  mutating func requestMissingKeys(_ port: inout SessionPort) {
    guard serverRequestsKeys, let expansion = own.summary.scopeExpansion, let held = own.summary.scope,
      receiving != nil
    else { return }
    let next = expansion.next(from: peer.summary)
    receiving?.expectLaterScopeExpansion(next)
    port.send(
      .scopeWant(ScopeWant(keys: MissingScope(wanted: next.scope, held: held), cursor: next.cursor)))
  }

  /// Client: sends the keys that the server requested, once its plan is done. False if there are none.
  mutating func sendRequestedKeys(_ port: inout SessionPort) throws(SessionEnd) -> Bool {
    guard let want = keyTransfer.requestedKeys.take() else { return false }
    progress = .expandingScope
    try sendKeys(want, &port)
    return true
  }

  private mutating func sendKeys(_ want: ScopeWant, _ port: inout SessionPort) throws(SessionEnd) {
    peer.summary.scope = want.keys.wanted
    keyTransfer.sendsKeys(to: want.keys.held)
    try sending?.open(
      for: RoundReceiver(
        cursor: want.cursor, covered: VersionVector(), scope: want.keys.wanted, lacking: want.keys),
      isHeld: false, &port)
  }

  // MARK: End of a scope expansion

  /// The missing keys have been sent.
  ///
  /// A live session reconnects if the receiver holds more keys now; otherwise it continues unchanged. At a
  /// client that sent keys, the server's receipt means that it does not hold them: otherwise the server would
  /// have ended the session.
  mutating func scopeExpanded(_ port: inout SessionPort) throws(SessionEnd) {
    guard staysOpen else { return try compare(&port) }
    if waitsForKeys, keyTransfer.isUnfinished {
      revertScopeExpansion()
      return try compare(&port)
    }
    throw reconnect(Self.holdsMore, &port)
  }

  private static let holdsMore = "more keys are held by one side now"

  /// Sends goodbye and has the client connect again.
  private func reconnect(_ text: String, _ port: inout SessionPort) -> SessionEnd {
    port.send(.goodbye)
    return SessionEnd(outcome: .reconnect(text))
  }

  /// Whether a session that stays open continues if keys could not be sent.
  var waitsForKeys: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.waitsForKeys != 0
  }

  /// Server that stays open and holds more keys now: ends the session instead of sending its receipt. The
  /// client's knowledge of its scope is outdated.
  func endIfScopeExpanded() throws(SessionEnd) {
    guard progress == .answering, staysOpen, waitsForKeys, !keyTransfer.areKeysStillMissing,
      receiving?.isScopeExpansion == true
    else { return }
    throw .tryAgain(Self.holdsMore)
  }

  /// Restores the other side's earlier scope, as if its keys had not been requested.
  mutating func revertScopeExpansion() {
    guard let held = keyTransfer.previousPeerScope else { return }
    peer.summary.scope = held
    sending?.revertScopeExpansion()
  }

  /// Seconds until a live session ends, so that missing keys are requested again.
  private static let keyRetrySeconds = 300

  /// Starts the timer for requesting missing keys again; the session has gone live.
  func scheduleKeyRetry(_ port: inout SessionPort) {
    if keyTransfer.areKeysStillMissing {
      port.actions.append(.setTimer(.scopeExpansion, seconds: Self.keyRetrySeconds))
    }
  }

  /// Ends the session so that the next one requests the keys again: the other side may hold them by now.
  func retryKeyRequest(_ port: inout SessionPort) throws(SessionEnd) {
    guard isAtRest else { return scheduleKeyRetry(&port) }
    let text = "keys that this side lacks are asked for again"
    throw progress == .answering ? .tryAgain(text) : reconnect(text, &port)
  }

  /// The other side requests keys that it did not hold so far.
  mutating func keysRequested(_ want: ScopeWant, _ port: inout SessionPort) throws(SessionEnd) {
    guard !live.isOn, own.summary.scope == nil, peer.summary.scope == want.keys.held else {
      throw .violation("keys were wanted that are not to be had")
    }
    switch progress {
    case .answering:
      guard sending?.isDelivered ?? false else { throw .violation("keys were wanted too early") }
      try sendKeys(want, &port)
    case .loadingCursor, .firstPass, .secondPass:
      guard serverRequestsKeys, sending != nil, keyTransfer.requestedKeys == nil else {
        throw .violation("keys were wanted, but that was not agreed")
      }
      keyTransfer.requestedKeys = want
    case .comparing, .expandingScope, .repairing, .live, .controlOnly, .comparingKeys:
      throw .violation("keys were wanted too late")
    }
  }
}
