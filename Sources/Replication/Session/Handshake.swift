internal import SyncStore

/// Checks that two hellos are compatible before anything is transferred. Pure: both sides reach matching
/// verdicts.
enum Handshake {
  /// The reason why this pair of copies must not continue; nil if there is none.
  ///
  /// `own` has the directions already negotiated.
  static func objection(own: Hello, peer: Hello, peerName: String, peerRight: MemberRight) -> SessionEnd? {
    guard own.summary.store == peer.summary.store else {
      return .refused(
        .otherStore,
        "the two sides are copies of different stores (\(own.summary.store), \(peer.summary.store))")
    }
    let unknown = peer.incompatibleFeatures & ~NeededFeature.known
    guard unknown == 0 else {
      return .refused(
        .incompatible, "features unknown to this side are needed (\(String(unknown, radix: 16))): update it")
    }
    if own.summary.actor == peer.summary.actor { return sameActor }
    if own.summary.abandonedActors.contains(peer.summary.actor) { return otherLife }
    guard own.summary.scope == nil || peer.summary.scope == nil else {
      return .refused(
        .unavailable,
        "both copies hold only some of the keys: let each synchronize with a member that holds all of them")
    }
    if let objection = clocks(own: own.wallMilliseconds, peer: peer.wallMilliseconds, peerName: peerName) {
      return objection
    }
    let (knownOfOwn, knownOfPeer) = (
      peer.summary.vector[own.summary.actor], own.summary.vector[peer.summary.actor]
    )
    guard knownOfOwn <= own.summary.sequence else {
      return .rolledBack("\(peerName) has \(knownOfOwn) of its writes, itself it has \(own.summary.sequence)")
    }
    guard knownOfPeer <= peer.summary.sequence else {
      return .tryAgain(
        "the other copy was rolled back: it has \(peer.summary.sequence) of its \(CountText.of(knownOfPeer, noun: "write"))"
      )
    }
    if own.receives && peerRight == .readOnly {
      return .refused(
        .notAllowed, "a read-only member may not send: let it pull instead, or change its right")
    }
    return fullState(own: own, peer: peer)
  }

  /// A machine was cloned while it ran, or one identity is used twice (F58, F62).
  private static var sameActor: SessionEnd {
    let text = "both sides are the same incarnation of one copy"
    return SessionEnd(
      refusal: Refusal(.sameActor, text), outcome: .reconnect("\(text): this one has taken a new actor"),
      newActor: text)
  }

  /// The other side continues the actor that this side had before it detected its clone (F58).
  private static var otherLife: SessionEnd {
    let text = "the two sides were one copy once, and one of them bears its name still"
    return SessionEnd(refusal: Refusal(.sameActor, text), outcome: .reconnect(text))
  }

  private static func clocks(own: UInt64, peer: UInt64, peerName: String) -> SessionEnd? {
    let difference = own > peer ? own - peer : peer - own
    guard difference > Limits.clockDriftMilliseconds else { return nil }
    let (here, there) = (UniversalTime.string(milliseconds: own), UniversalTime.string(milliseconds: peer))
    let limit = Limits.clockDriftMilliseconds / 1000
    let end = "the clocks differ by \(difference / 1000) s, more than \(limit) s: "
    return SessionEnd(
      refusal: Refusal(.clockSkew, end + "the refusing side has \(here), the refused one \(there)"),
      outcome: .failed(
        .clockSkew, end + "here it is \(here), at \(peerName) \(there): set the wrong one right"))
  }

  /// A side that needs full state must be able to receive it (rule R8).
  private static func fullState(own: Hello, peer: Hello) -> SessionEnd? {
    func lacks(sender: ReplicaSummary, receiver: ReplicaSummary) -> Bool {
      receiver.needsFullState(of: sender) && !sender.canGiveFullState(to: receiver)
    }
    guard
      own.sends && lacks(sender: own.summary, receiver: peer.summary)
        || own.receives && lacks(sender: peer.summary, receiver: own.summary)
    else {
      return nil
    }
    return .refused(
      .unavailable,
      "a copy needs the full state of the other, which waits for the full state of another one itself: let both synchronize with "
        + "another member")
  }
}
