package import SyncStore

/// What a session tells the own side of what that asked for beside the session's plan.
package enum SessionNews: Hashable, Sendable {
  /// So many bytes of a blob that was wanted are here.
  case progress(BlobHash, held: UInt64, size: UInt64)
  /// A blob that was wanted has come, verified and durable.
  case arrived(BlobHash)
  /// The other side does not have it.
  case lacking(BlobHash)
  /// What the other side holds.
  case holdings(HoldingsStated)
}

/// What is under way beside a session's plan.
struct TierState {
  /// The number of the own question that is not answered.
  var asked: UInt64?
  /// The number of the other side's.
  var stating: UInt64?

  var isQuiet: Bool { asked == nil && stating == nil }
}

// Blobs that somebody waits for, and who holds what: in live sessions, and in those that are begun for nothing else.
extension Exchange {
  /// Do both sides say what they hold?
  var knowsHoldings: Bool { own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.holdings != 0 }

  /// Fetches blobs, whatever the policy.
  mutating func want(_ needs: [BlobNeed], _ port: inout SessionPort) throws(SessionEnd) {
    guard receiving != nil else {
      port.news += needs.map { .lacking($0.hash) }
      return
    }
    receiving?.want(needs, &port)
  }

  func noteProgress(_ hash: BlobHash, held: UInt64, _ port: inout SessionPort) {
    if let size = receiving?.fetch.explicit[hash] {
      port.news.append(.progress(hash, held: held, size: size))
    }
  }

  mutating func tellFetched(_ port: inout SessionPort) {
    guard receiving?.fetch.settled.isEmpty == false else { return }
    for (hash, isHere) in receiving?.takeSettled() ?? [] {
      port.news.append(isHere ? .arrived(hash) : .lacking(hash))
    }
  }

  /// Asks what the other side holds; one question at a time.
  mutating func ask(_ wanted: HoldingsWanted, _ port: inout SessionPort) throws(SessionEnd) {
    guard knowsHoldings, tier.asked == nil else {
      port.news.append(.holdings(HoldingsStated(number: wanted.number, statement: nil)))
      return
    }
    tier.asked = wanted.number
    port.send(.holdingsWant(wanted))
  }

  mutating func wasAsked(_ wanted: HoldingsWanted, _ port: inout SessionPort) throws(SessionEnd) {
    guard knowsHoldings else { throw .violation("what is held was asked, but not agreed") }
    guard tier.stating == nil else { throw .violation("what is held was asked twice at once") }
    tier.stating = wanted.number
    port.actions.append(.stateHoldings(wanted))
  }

  mutating func state(_ stated: HoldingsStated, _ port: inout SessionPort) {
    precondition(tier.stating == stated.number, "another question was being answered")
    tier.stating = nil
    port.send(.holdings(stated))
  }

  mutating func heard(_ stated: HoldingsStated, _ port: inout SessionPort) throws(SessionEnd) {
    guard let asked = tier.asked, asked == stated.number else {
      throw .violation("what is held was said unasked")
    }
    tier.asked = nil
    port.news.append(.holdings(stated))
  }
}
