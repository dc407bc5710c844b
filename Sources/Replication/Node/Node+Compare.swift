public import SyncStore

/// The result of a comparison of this copy with another.
public struct ComparisonReport: Hashable, Sendable {
  /// The other copy's name.
  public internal(set) var peer: String
  /// Keys whose content here wins: `synchronize` would send them.
  public internal(set) var toSend = Count()
  /// Keys whose content there wins: `synchronize` would receive them.
  public internal(set) var toReceive = Count()

  /// Whether all keys are equal.
  public var isEmpty: Bool { toSend.keys + toReceive.keys == 0 }

  /// Keys of one direction.
  public struct Count: Hashable, Sendable {
    /// All of them.
    public internal(set) var keys = 0
    /// Those that are deleted at the receiver.
    public internal(set) var deletes = 0
    /// Bytes of the values of the others.
    public internal(set) var bytes: UInt64 = 0

    mutating func add(_ content: KeyDifference.Content) {
      keys += 1
      if case .value(let value) = content { bytes += value.size } else { deletes += 1 }
    }
  }

  mutating func add(_ difference: KeyDifference) {
    switch difference.winner {
    case .here: toSend.add(difference.here)
    case .there: toReceive.add(difference.there)
    }
  }
}

extension Node {
  /// Finds the keys on which this copy and a peer differ. Moves no record and changes neither copy.
  ///
  /// ```swift
  /// let report = try await node.compare(with: "harbour", in: KeyRange(prefix: "buoy/")) { differences in
  ///   for difference in differences { print(difference.key, difference.winner) }
  /// }
  /// ```
  ///
  /// Both copies are compared as of the beginning of the session, without records that either receives during
  /// it. The costs are a few passes over the keys of both copies, one more for each 32,768 keys in parts
  /// that differ, and some 80 bytes of traffic for each key that differs. The peer sends what it holds of all
  /// keys that differ, whatever `range` is.
  ///
  /// - Parameters:
  ///   - peer: as for `synchronize`.
  ///   - range: the keys that are reported.
  ///   - body: receives the differences in parts, in no particular order, on the event loop: it must not
  ///     block.
  /// - Throws: `.notAllowed` if one of the copies holds only some keys; `.unavailable` if the peer runs a
  ///   version that cannot compare, or is busy; otherwise as `synchronize`.
  @discardableResult
  public func compare(
    with peer: String, in range: KeyRange = .all,
    _ body: @escaping @Sendable ([KeyDifference]) -> Void = { _ in }
  ) async throws(ReplicationError) -> ComparisonReport {
    let report = Locked(ComparisonReport(peer: peer))
    var plan = DialPlan(direction: .pull, mode: .comparison)
    plan.begun = { [core] driver in
      core.value.observeDifferences(of: driver) { differences in
        let reported = differences.filter { range.contains($0.key) }
        guard !reported.isEmpty else { return }
        report.withLock { report in for difference in reported { report.add(difference) } }
        body(reported)
      }
    }
    let end = try await runToEnd(with: peer, plan)
    return report.withLock { report in
      report.peer = end.peer
      return report
    }
  }
}
