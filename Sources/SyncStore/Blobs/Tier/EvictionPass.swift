/// An object that may leave if enough other members hold it.
package struct EvictionCandidate: Sendable {
  /// The value.
  package let blob: BlobReference
  /// The writes that name it: who covers them all does not sweep it for as long as this copy has use for it.
  package let dots: [Dot]
  let name: BlobHash
  let use: BlobUse

  /// Bytes that it takes on the disk.
  package var storedBytes: UInt64 { use.size }
}

/// What became of an attempt to keep the limits.
public struct BlobTrimReport: Hashable, Sendable {
  /// Objects that have left, and the bytes that they took.
  public var evicted = 0, evictedBytes: UInt64 = 0
  /// Objects that were to leave, and stayed because too few members confirmed to hold them and to have the writes that name them, or
  /// could be asked.
  public var tooFewHolders = 0, tooFewHoldersBytes: UInt64 = 0
  /// Objects that were used meanwhile, and stayed.
  public var used = 0
  /// Objects that were to leave, and stayed because something here counts on them alone: pins, beaten or expired values,
  /// transfers, or that no record names them and their grace is not over.
  public var kept = 0, keptBytes: UInt64 = 0
  /// Do the limits hold now?
  public var holds = true

  /// Nothing was done.
  public init() {}
}

/// The span in which a copy makes objects leave. Of all processes that use a store one at a time has it, and as long as it
/// has, this copy confirms to nobody that it holds anything.
///
/// That, and nothing else, is why no two members make the last copies leave (`docs/decisions/0030-eviction.md`): whoever counts on
/// another's word has begun before that word was given, and who gave it had not begun. So of all who have made an object leave
/// the one that began last counts on others who never began.
package final class EvictionPass: Sendable {
  /// Objects asked about at once, at most; at least 1.
  package static let batchObjects = 1024
  /// Bytes of the objects asked about at once, unless one alone has more: who is asked reads them.
  package static let batchBytes: UInt64 = 64 << 20
  /// Holders of what has left that wait to be noted, about. They lie in the order of names, which is random: to note them as they come would
  /// write a page of the catalogue for each.
  private static let maxPendingHolders = 16_384

  private struct State {
    /// Behind the last that was looked at, in the order of last use.
    var next = 0
    var count: UInt64
    var bytes: UInt64
    var freeBytes: UInt64
    /// Chosen, and not decided.
    var chosenCount: UInt64 = 0, chosenBytes: UInt64 = 0
    var report = BlobTrimReport()
    /// Members that hold what has left, to be noted.
    var holders: [(name: BlobHash, member: [UInt8])] = []
    var isOver = false
  }

  /// The store.
  package let store: Store
  /// What is to hold at the end.
  package let limits: BlobLimits
  private let lock: any StorageFile
  private let uses: [BlobUse]
  /// By the names on the disk: what may leave.
  private let movable: [BlobHash: MovableBlob]
  private let oldest: UInt64
  private let state: LockedField<State>

  init?(_ store: Store, _ limits: BlobLimits) throws(StoreError) {
    guard let lock = try store.blobs.lockForEviction() else { return nil }
    (self.store, self.limits, self.lock) = (store, limits, lock)
    // The uses first: what is put or referred to from now on is counted on, and stays.
    uses = try store.blobs.uses()
    movable = try store.movableBlobs()
    let now = store.environment.now()
    oldest = limits.ageMilliseconds < now ? now - limits.ageMilliseconds : 0
    state = LockedField(
      State(
        count: UInt64(uses.count), bytes: uses.reduce(0) { $0 + $1.size },
        freeBytes: limits.freeDiskBytes == 0 ? .max : try store.blobs.freeBytes()))
  }

  /// How many objects there were at the beginning.
  package var total: Int { uses.count }

  /// The next objects to ask about, the least recently used first: as many as must leave if all of them may, and those that were
  /// chosen before, up to `batchObjects`. Empty if the limits hold then, or nothing else may leave.
  package func next() throws(StoreError) -> [EvictionCandidate] {
    var chosen: [EvictionCandidate] = []
    var bytes: UInt64 = 0
    while chosen.count < Self.batchObjects {
      let range = state.withLock { state -> Range<Int> in
        // Together with what is chosen already.
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

  /// Makes those leave of what was chosen that enough members have confirmed to hold, in this turn. `holders` are their `DeviceID`s, of each
  /// candidate; only those count that cover all the writes that name it.
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

  /// Notes who holds what has left, once that is so much: whom to ask first for it. Nothing depends on it.
  private func recordHolders(_ seen: [(name: BlobHash, member: [UInt8])] = [], atLeast count: Int) {
    let due = state.withLock { state -> [(name: BlobHash, member: [UInt8])] in
      state.holders += seen
      guard state.holders.count >= count else { return [] }
      defer { state.holders = [] }
      return state.holders
    }
    guard !due.isEmpty, let blobs = try? store.blobs else { return }
    // In the order in which they lie each page is come to once; in parts, because others may be waiting for the catalogue.
    let sorted = due.sorted { $0.name < $1.name }
    for start in stride(from: 0, to: sorted.count, by: Self.batchObjects) {
      blobs.ignoringCatalogueErrors { (catalogue) throws(StoreError) in
        try catalogue.recordHolders(
          sorted[start..<min(start + Self.batchObjects, sorted.count)], at: store.environment.now())
      }
    }
  }

  /// What has become of it so far.
  package var report: BlobTrimReport { state.withLock { $0.report } }

  /// Ends the turn, and gives space back.
  @discardableResult
  package func end() -> BlobTrimReport {
    let (report, wasOver) = state.withLock { state in
      defer { state.isOver = true }
      // Whatever could be asked about has been: what is left over is what could not leave.
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

  /// Takes the turn; nil if another has it, or somebody is just being told what is here.
  func lockForEviction() throws(StoreError) -> (any StorageFile)? {
    try requireWritable()
    let file = try files.storage.open(Self.evictionLock, beneath: files.directory, .openOrCreate)
    return try file.lock(byte: 0, .exclusive, wait: false) ? file : nil
  }

  /// Works while nobody makes anything leave here; nil if somebody does.
  func withEvictionExcluded<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result? {
    let file = try files.storage.open(Self.evictionLock, beneath: files.directory, .openOrCreate)
    guard try file.lock(byte: 0, .shared, wait: false) else { return nil }
    defer { _ = try? file.lock(byte: 0, .none, wait: false) }
    return try body()
  }

  /// Bytes that are free where the objects lie.
  func freeBytes() throws(StoreError) -> UInt64 { try files.storage.freeBytes(files.directory) }
}
