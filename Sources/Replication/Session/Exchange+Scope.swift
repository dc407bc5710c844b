package import SyncStore

/// Receiver to sender, once it has all else: please send what you hold of keys that I do not hold yet.
package struct ScopeWant: Hashable, Sendable {
  /// The keys that it holds and that it is to hold.
  package var keys: LackingKeys
  /// How far they have come from this sender, if they have.
  package var cursor: Cursor?

  /// Both fields.
  package init(keys: LackingKeys, cursor: Cursor?) { (self.keys, self.cursor) = (keys, cursor) }
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
    self.init(keys: LackingKeys(wanted: wanted, held: held), cursor: try reader.readCursor())
  }
}

/// Copies of some of the keys (`docs/replication.md`, Selective copies). They meet copies of all keys only, are sent what is for
/// them, and are believed what they wrote themselves. The client may come to hold more: when it has all else, it asks for what it
/// lacks, in a round of its own.
extension Exchange {
  /// Do both sides hold all keys? Only then can their digests be compared.
  var areComplete: Bool { own.summary.scope == nil && peer.summary.scope == nil }

  /// Asks for the keys that this side is to hold, if there are any and the other side has them. Once in a session.
  mutating func widen(_ port: inout SessionPort) -> Bool {
    guard progress != .widening, let widening = own.summary.widening, let held = own.summary.scope,
      peer.summary.scope == nil, receiving != nil, own.summary.standing == .settled
    else { return false }
    progress = .widening
    let next = widening.next(from: peer.summary)
    receiving?.expectAnother(next)
    port.send(
      .scopeWant(ScopeWant(keys: LackingKeys(wanted: next.scope, held: held), cursor: next.cursor)))
    return true
  }

  /// The other side asks for more keys than it has held.
  mutating func wanted(_ want: ScopeWant, _ port: inout SessionPort) throws(SessionEnd) {
    guard progress == .answering, !live.isOn, own.summary.scope == nil, peer.summary.scope == want.keys.held,
      sending?.isGiven ?? false
    else { throw .violation("keys were wanted that are not to be had, or too early") }
    peer.summary.scope = want.keys.wanted
    try sending?.open(
      for: RoundReceiver(
        cursor: want.cursor, covered: VersionVector(), scope: want.keys.wanted, lacking: want.keys),
      isHeld: false, &port)
  }
}
