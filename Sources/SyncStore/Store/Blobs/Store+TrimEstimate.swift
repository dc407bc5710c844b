/// What `Store.trim` and an eviction would reclaim, as far as this copy can tell alone.
public struct TrimEstimate: Hashable, Sendable {
  /// Bytes of superseded records in closed segments, which a compaction leaves out. Deletes that every member
  /// has seen are purged before that, and add to them.
  public internal(set) var journalBytes: UInt64 = 0
  /// Large values that would be evicted to keep the limits, if enough members confirm to hold them.
  public internal(set) var dueValues = 0
  /// Their stored bytes.
  public internal(set) var dueBytes: UInt64 = 0
}

extension Store {
  /// Estimates what `trim` and an eviction to these limits would reclaim; changes nothing and asks no member.
  ///
  /// It leaves out blobs that no record refers to any more: only a sweep finds them.
  ///
  /// - Throws: `.busy` if an eviction is under way; `.damaged` if records were lost: the values that they
  ///   refer to are then unknown; `.readOnly`; `.closed`, `.forked`.
  public func trimEstimate(to limits: BlobLimits = BlobLimits()) throws(StoreError) -> TrimEstimate {
    var estimate = TrimEstimate()
    let dead = try reading { engine throws(StoreError) in
      engine.candidates.filter { $0.isEligible && $0.deadBytes >= CompactionPlan.minGainBytes }
        .reduce(0) { $0 + $1.deadBytes }
    }
    estimate.journalBytes = UInt64(dead)
    guard limits.hasLimits else { return estimate }
    guard let pass = try beginEviction(limits) else {
      throw StoreError(.busy, "another process evicts large values: wait until it has finished", path: path)
    }
    defer { pass.end() }
    while true {
      let due = try pass.next()
      guard !due.isEmpty else { return estimate }
      estimate.dueValues += due.count
      estimate.dueBytes += due.reduce(0) { $0 + $1.storedBytes }
    }
  }
}
