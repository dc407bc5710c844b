/// An object that may be evicted if enough other members hold it.
package struct EvictionCandidate: Sendable {
  /// The value.
  package let blob: BlobReference
  /// The writes that refer to it: a member that covers them all does not sweep it while this copy needs it.
  package let dots: [Dot]
  let name: BlobHash
  let use: BlobUse

  /// Stored bytes.
  package var storedBytes: UInt64 { use.size }
}

/// Result of an attempt to keep the limits.
public struct BlobTrimReport: Hashable, Sendable {
  /// Evicted objects, and their stored bytes.
  public var evicted = 0, evictedBytes: UInt64 = 0
  /// Objects that were due but stayed because too few members could be asked, or confirmed to hold them and
  /// to have the writes that refer to them.
  public var tooFewHolders = 0, tooFewHoldersBytes: UInt64 = 0
  /// Objects that stayed because they were used during the pass.
  public var used = 0
  /// Objects that were due but stayed because only this copy needs them: for pins, beaten or expired values,
  /// transfers, or because no record refers to them and their grace period is not over.
  public var kept = 0, keptBytes: UInt64 = 0
  /// Whether the limits hold now.
  public var holds = true

  /// A report of no evictions.
  public init() {}
}

/// The period in which a copy evicts objects.
///
/// Only one process of a store has it at a time, and while it has, this copy confirms to no member that it
/// holds anything.
///
/// This alone prevents two members from evicting the last copies (`docs/decisions/0030-eviction.md`): a
/// member relies only on confirmations given after its pass began, by members whose passes had not begun. So
/// of all members that evicted an object, the one that began last relied on members that never began.
package final class EvictionPass: Sendable {
  /// Maximum number of objects asked about in one batch; at least 1.
  package static let batchObjects = 1024
  /// Maximum bytes of the objects in one batch, unless a single one is larger: the asked members read them
  /// all.
  package static let batchBytes: UInt64 = 64 << 20
  /// Approximate number of holders collected before they are recorded. Objects come in random order of names:
  /// recording each immediately would write one page of the catalogue per holder.
  private static let maxPendingHolders = 16_384

  private struct State {
    /// Index after the last object considered, in the order of last use.
    var next = 0
    var count: UInt64
    var bytes: UInt64
    var freeBytes: UInt64
    /// Objects chosen but not yet decided.
    var chosenCount: UInt64 = 0, chosenBytes: UInt64 = 0
    var report = BlobTrimReport()
    /// Holders of evicted objects, still to be recorded.
    var holders: [(name: BlobHash, member: [UInt8])] = []
    var isOver = false
  }

  /// The store.
  package let store: Store
  /// The limits to reach.
  package let limits: BlobLimits
  private let lock: any StorageFile
  private let uses: [BlobUse]
  /// Objects that may be evicted, by stored name.
  private let movable: [BlobHash: MovableBlob]
  private let oldest: UInt64
  private let state: LockedField<State>

  init?(_ store: Store, _ limits: BlobLimits) throws(StoreError) {
    guard let lock = try store.blobs.lockForEviction() else { return nil }
    (self.store, self.limits, self.lock) = (store, limits, lock)
    // Read uses first: objects put or referred to from now on are retained, and stay.
    uses = try store.blobs.uses()
    movable = try store.movableBlobs()
    let now = store.environment.now()
    oldest = limits.ageMilliseconds < now ? now - limits.ageMilliseconds : 0
    state = LockedField(
      State(
        count: UInt64(uses.count), bytes: uses.reduce(0) { $0 + $1.size },
        freeBytes: limits.freeDiskBytes == 0 ? .max : try store.blobs.freeBytes()))
  }

  /// Number of objects at the beginning.
  package var total: Int { uses.count }

  /// The next objects to ask about, the least recently used first: as many as must be evicted if all of them
  /// may, beyond those chosen before, up to `batchObjects`.
  ///
  /// Empty if the limits would then hold, or nothing else may be evicted.
  package func next() throws(StoreError) -> [EvictionCandidate] {
    var chosen: [EvictionCandidate] = []
    var bytes: UInt64 = 0
    while chosen.count < Self.batchObjects {
      let range = state.withLock { state -> Range<Int> in
        // As if everything chosen so far were evicted.
        var projected = state
        let chosenBytes = Self.sum(state.chosenBytes, bytes)
        projected.count -= min(state.chosenCount + UInt64(chosen.count), projected.count)
        projected.bytes -= min(chosenBytes, projected.bytes)
        projected.freeBytes = Self.sum(projected.freeBytes, chosenBytes)
        let end = min(uses.count, state.next + Self.batchObjects - chosen.count)
        var place = state.next
        var room = bytes
        while place < end, exceeds(projected, uses[place]) {
          if room > 0, room + uses[place].size > Self.batchBytes { break }
          room += uses[place].size
          projected.count -= 1
          projected.bytes -= min(uses[place].size, projected.bytes)
          projected.freeBytes = Self.sum(projected.freeBytes, uses[place].size)
          place += 1
        }
        defer { state.next = place }
        return state.next..<place
      }
      if range.isEmpty { break }
      let names = try store.blobs.names(of: uses[range])
      for (place, name) in zip(range, names) {
        guard let name else { continue }
        if let known = movable[name] {
          chosen.append(EvictionCandidate(blob: known.blob, dots: known.dots, name: name, use: uses[place]))
          bytes += uses[place].size
        } else {
          state.withLock { state in
            state.report.kept += 1
            state.report.keptBytes += uses[place].size
          }
        }
      }
    }
    state.withLock { state in
      state.chosenCount += UInt64(chosen.count)
      state.chosenBytes = Self.sum(state.chosenBytes, bytes)
    }
    return chosen
  }

  private static func sum(_ one: UInt64, _ other: UInt64) -> UInt64 {
    let (sum, overflow) = one.addingReportingOverflow(other)
    return overflow ? .max : sum
  }

  private func exceeds(_ state: State, _ use: BlobUse) -> Bool {
    state.count > limits.count || state.bytes > limits.bytes || use.milliseconds < oldest
      || state.freeBytes < limits.freeDiskBytes
  }

  /// Evicts those candidates that enough members have confirmed to hold during this pass.
  ///
  /// - Parameter holders: For each candidate the `DeviceID`s of its holders; only members that cover all the
  ///   writes that refer to it may be listed.
  package func evict(
    _ candidates: [EvictionCandidate], heldBy holders: [[[UInt8]]]
  ) throws(StoreError) {
    precondition(candidates.count == holders.count && !state.withLock { $0.isOver }, "no turn, no eviction")
    defer {
      state.withLock { state in
        state.chosenCount -= UInt64(candidates.count)
        state.chosenBytes -= min(candidates.reduce(0) { $0 + $1.use.size }, state.chosenBytes)
      }
    }
    var chosen: [Int] = []
    for index in candidates.indices {
      if Set(holders[index]).count >= max(limits.copies, 1) {
        chosen.append(index)
      } else {
        state.withLock { state in
          state.report.tooFewHolders += 1
          state.report.tooFewHoldersBytes += candidates[index].use.size
        }
      }
    }
    guard !chosen.isEmpty else { return }
    try store.recordAbsent(chosen.map { AbsentBlob(candidates[$0].blob, .evicted) })
    let blobs = try store.blobs
    let gone = try blobs.evict(chosen.map { (candidates[$0].name, candidates[$0].use) })
    var stayed: [BlobHash] = []
    var seen: [(name: BlobHash, member: [UInt8])] = []
    for (index, isGone) in zip(chosen, gone) {
      let candidate = candidates[index]
      if isGone {
        seen += holders[index].map { (candidate.name, $0) }
      } else {
        stayed.append(candidate.blob.hash)
      }
      state.withLock { state in
        guard isGone else {
          state.report.used += 1
          return
        }
        state.count -= 1
        state.bytes -= candidate.use.size
        state.freeBytes = Self.sum(state.freeBytes, candidate.use.size)
        state.report.evicted += 1
        state.report.evictedBytes += candidate.use.size
      }
    }
    if !stayed.isEmpty { try store.recordArrived(stayed) }
    recordHolders(seen, atLeast: Self.maxPendingHolders)
  }

  /// Records holders of evicted objects once `count` have been collected. Only a hint of whom to ask first.
  private func recordHolders(_ seen: [(name: BlobHash, member: [UInt8])] = [], atLeast count: Int) {
    let due = state.withLock { state -> [(name: BlobHash, member: [UInt8])] in
      state.holders += seen
      guard state.holders.count >= count else { return [] }
      defer { state.holders = [] }
      return state.holders
    }
    guard !due.isEmpty, let blobs = try? store.blobs else { return }
    // Sorted, so that each page is written once; in parts, because others may be waiting for the catalogue.
    let sorted = due.sorted { $0.name < $1.name }
    for start in stride(from: 0, to: sorted.count, by: Self.batchObjects) {
      blobs.ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.recordHolders(
          sorted[start..<min(start + Self.batchObjects, sorted.count)], at: store.environment.now())
      }
    }
  }

  /// The result so far.
  package var report: BlobTrimReport { state.withLock { $0.report } }

  /// Ends the pass, and reclaims space.
  @discardableResult
  package func end() -> BlobTrimReport {
    let (report, wasOver) = state.withLock { state in
      defer { state.isOver = true }
      // All candidates were tried: the remaining objects could not be evicted.
      state.report.holds =
        state.count <= limits.count && state.bytes <= limits.bytes && state.freeBytes >= limits.freeDiskBytes
      return (state.report, state.isOver)
    }
    guard !wasOver else { return report }
    recordHolders(atLeast: 1)
    _ = try? lock.lock(byte: 0, .none, wait: false)
    if report.evicted > 0 { try? store.blobs.reclaim() }
    return report
  }
}

extension BlobStore {
  private static let evictionLock = "eviction.lock"

  /// Begins an eviction pass; nil if another process has one, or is just confirming holdings to a member.
  func lockForEviction() throws(StoreError) -> (any StorageFile)? {
    try requireWritable()
    let file = try files.storage.open(Self.evictionLock, beneath: files.directory, .openOrCreate)
    return try file.lock(byte: 0, .exclusive, wait: false) ? file : nil
  }

  /// Runs `body` with eviction excluded; nil if a pass is under way.
  func withEvictionExcluded<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result? {
    let file = try files.storage.open(Self.evictionLock, beneath: files.directory, .openOrCreate)
    guard try file.lock(byte: 0, .shared, wait: false) else { return nil }
    defer { _ = try? file.lock(byte: 0, .none, wait: false) }
    return try body()
  }

  /// Free bytes on the file system of the objects.
  func freeBytes() throws(StoreError) -> UInt64 { try files.storage.freeBytes(files.directory) }
}
