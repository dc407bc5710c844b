internal import SyncStore

/// Fetches missing blobs from the other side.
///
/// Invariants: each blob is requested once at a time, and at most `WireLimits.wholeBlobs` are incomplete;
/// ranges are stored in order, each where the previous one ended, with one store action in flight (ranges of
/// one blob, or several blobs of one range each); an unavailable blob is counted and does not hold up others.
struct BlobFetch {
  private struct Transfer {
    var need: BlobNeed
    /// Discards ranges until the other side ends the blob: it is complete, or must be requested again.
    var isSkipped = false
    var isComplete = false
    /// Whether the last range has arrived; it may not be stored yet.
    var hasArrived = false
    /// Ranges that have arrived and are not stored.
    var queued = 0
  }

  /// Maximum number of blobs that have arrived and are not stored.
  private static let unstoredBlobs = 4096

  /// Not yet requested.
  private var waiting = Queue<BlobNeed>()
  /// Waiting or in flight.
  private var wanted: Set<BlobHash> = []
  private var transfers: [BlobHash: Transfer] = [:]
  /// Requested blobs whose last range has not arrived.
  private var underway = 0
  private var retried: Set<BlobHash> = []
  /// Ranges that have arrived and are not stored.
  private var ranges = ArrivedRanges()
  /// Bytes that have arrived and are not stored.
  var unstoredBytes: Int { ranges.bytes + (assembly?.unstoredBytes ?? 0) }
  /// Whether blobs may be assembled from chunks.
  var takesRecipes = false
  /// The blob being assembled, and those that wait for it.
  private var assembly: BlobAssembly?
  private var kin = Queue<BlobNeed>()
  private var availability = Availability()
  /// Blobs that the other side does not hold, or not intact.
  var unavailable: Set<BlobHash> { availability.unavailable }
  /// Number of blobs that are `unavailable` and that not only beaten values refer to.
  var lacking: Int { availability.lacking }
  private var requests = Requests()
  /// Whether requests outside the plan have ended, and were not taken.
  var hasFinishedRequests: Bool { !requests.finished.isEmpty }
  /// Results of requests outside the plan.
  var finishedRequests: [(hash: BlobHash, isHere: Bool)] { requests.finished }

  /// Number of blobs waited for.
  var count: Int { wanted.count }
  /// Whether nothing is waiting or in flight.
  var isComplete: Bool { wanted.isEmpty && transfers.isEmpty && !ranges.isStoring && assembly == nil }

  /// Queues blobs that are missing.
  mutating func need(_ blobs: [BlobNeed]) {
    for need in blobs where need.isSpare { availability.markSpare(need.hash) }
    for need in blobs where !availability.unavailable.contains(need.hash) && wanted.insert(need.hash).inserted
    {
      if takesRecipes, need.hasKin { kin.append(need) } else { waiting.append(need) }
    }
  }

  /// Whether the blob is requested or about to be.
  func isFetching(_ hash: BlobHash) -> Bool { wanted.contains(hash) || transfers[hash] != nil }

  /// Requests blobs now, even if they were unavailable before.
  mutating func want(_ blobs: [BlobNeed]) {
    for need in blobs {
      requests.begin(need)
      availability.reconsider(need.hash)
      retried.remove(need.hash)
    }
    need(blobs)
  }

  /// The size of a blob that was requested outside the plan, while its request lasts.
  func requestedSize(_ hash: BlobHash) -> UInt64? { requests.sizes[hash] }

  /// Takes the results of requests outside the plan.
  mutating func drainFinishedRequests() -> [(hash: BlobHash, isHere: Bool)] { requests.drain() }

  /// Marks the blob as unavailable.
  private mutating func giveUp(_ hash: BlobHash) {
    wanted.remove(hash)
    if availability.giveUp(hash) { requests.finish(hash, isHere: false) }
  }

  // MARK: Assembly from chunks

  private mutating func pumpAssembly(_ port: inout SessionPort) {
    if let result = assembly?.result {
      let hash = assembly?.hash
      assembly = nil
      switch result {
      case .complete:
        if let hash {
          wanted.remove(hash)
          requests.finish(hash, isHere: true)
        }
      case .plainly(let need): waiting.append(need)
      case .lacking:
        if let hash { giveUp(hash) }
      }
    }
    // An earlier transfer of the blob ends first: otherwise its results would reach the new assembly.
    if assembly == nil, let need = kin.first, ranges.storing?.hash != need.hash, transfers[need.hash] == nil {
      _ = kin.popFirst()
      assembly = BlobAssembly(need, &port)
    }
    assembly?.pump(&port)
  }

  mutating func arrived(_ recipe: EncryptedRecipe) throws(SessionEnd) {
    guard assembly?.hash == recipe.hash else { throw .violation("a recipe came that was not asked for") }
    try assembly?.arrived(recipe)
  }

  mutating func recipeLacking(_ hash: BlobHash) throws(SessionEnd) {
    guard assembly?.hash == hash else { throw .violation("a recipe is not there that was not asked for") }
    try assembly?.recipeLacking()
  }

  mutating func matched(_ hash: BlobHash, end: UInt64, missing: [BlobPart], _ port: inout SessionPort) {
    precondition(assembly?.hash == hash, "no recipe of that blob was being matched")
    assembly?.matched(end: end, missing: missing, &port)
  }

  /// Requests blobs and stores ranges as far as there is room.
  mutating func pump(_ port: inout SessionPort) {
    pumpAssembly(&port)
    storeNext(&port)
    var wants: [BlobNeed] = []
    while let need = waiting.first, underway < WireLimits.wholeBlobs, transfers.count < Self.unstoredBlobs {
      // A blob whose ranges are being discarded ends first.
      guard transfers[need.hash] == nil else { break }
      _ = waiting.popFirst()
      transfers[need.hash] = Transfer(need: need)
      underway += 1
      wants.append(need)
    }
    if !wants.isEmpty { port.send(.blobWant(wants)) }
  }

  private mutating func storeNext(_ port: inout SessionPort) {
    guard !ranges.isStoring else { return }
    var sizes: [UInt64] = []
    while let range = ranges.first {
      guard var transfer = transfers[range.hash] else {
        takeRange()
        continue
      }
      if !transfer.isSkipped && range.offset != transfer.need.offset {
        // Another session stored some of it concurrently, or the other side skipped a range.
        transfer.isSkipped = true
        transfers[range.hash] = transfer
      }
      if transfer.isSkipped {
        takeRange()
        if range.isLast { end(transfer) }
      } else if range.isLast, range.offset == 0, transfer.need.size <= UInt64(Limits.blobRangeBytes) {
        takeRange()
        ranges.storingWhole.append(range)
        sizes.append(transfer.need.size)
      } else {
        guard ranges.storingWhole.isEmpty else { break }
        let group = takeRanges()
        ranges.storing = group.last
        return port.actions.append(.storeBlobRanges(group, size: transfer.need.size))
      }
    }
    let whole = ranges.storingWhole
    if !whole.isEmpty { port.actions.append(.storeBlobs(whole, sizes: sizes)) }
  }

  /// Takes the next range and those of the same blob that follow it.
  private mutating func takeRanges() -> [BlobRange] {
    var group: [BlobRange] = []
    while let range = ranges.first, group.last.map({ $0.hash == range.hash && !$0.isLast }) ?? true,
      group.count < Self.rangesAtOnce
    {
      takeRange()
      group.append(range)
    }
    return group
  }

  /// Maximum ranges of one blob per store action. It also bounds how often progress is reported.
  private static let rangesAtOnce = 2

  /// Removes the next range from the queue, to be stored or discarded.
  private mutating func takeRange() {
    if let range = ranges.popFirst() { transfers[range.hash]?.queued -= 1 }
  }

  mutating func arrived(_ range: BlobRange) throws(SessionEnd) {
    if let current = assembly, current.hash == range.hash {
      try assembly?.arrived(range)
      return
    }
    guard transfers[range.hash]?.hasArrived == false else {
      throw .violation("a blob came that was not asked for")
    }
    if range.isLast {
      transfers[range.hash]?.hasArrived = true
      underway -= 1
    }
    ranges.append(range)
    transfers[range.hash]?.queued += 1
  }

  mutating func lacking(_ hash: BlobHash) throws(SessionEnd) {
    if assembly?.hash == hash {
      try assembly?.lacking()
      return
    }
    guard let transfer = transfers[hash], !transfer.hasArrived else {
      throw .violation("a blob is not there that was not asked for")
    }
    transfers[hash] = nil
    underway -= 1
    if transfer.queued > 0 { ranges.drop(hash) }
    if transfer.isComplete { wanted.remove(hash) } else { giveUp(hash) }
  }

  mutating func stored(_ hash: BlobHash, held: UInt64, isComplete: Bool, _ port: inout SessionPort) {
    if assembly?.hash == hash {
      if isComplete { port.figures.receivedBlobs += 1 }
      assembly?.stored(held: held, isComplete: isComplete, &port)
      return
    }
    stored(ranges.endStoring(hash), held: held, isComplete: isComplete, &port)
  }

  /// Handles the results of the blobs that were stored together.
  mutating func stored(whole outcomes: [Bool], _ port: inout SessionPort) {
    for (range, isComplete) in zip(ranges.endStoringWhole(outcomes.count), outcomes) {
      if isComplete {
        stored(range, held: transfers[range.hash]?.need.size ?? 0, isComplete: true, &port)
      } else {
        rejected(range)
      }
    }
  }

  private mutating func stored(
    _ range: BlobRange, held: UInt64, isComplete: Bool, _ port: inout SessionPort
  ) {
    let hash = range.hash
    if isComplete { port.figures.receivedBlobs += 1 }
    guard var transfer = transfers[hash] else {
      // The other side gave up half-way, but the bytes stored here sufficed.
      if isComplete {
        availability.reconsider(hash)
        wanted.remove(hash)
        kin.removeAll { $0.hash == hash }
        requests.finish(hash, isHere: true)
      } else {
        beginKin(hash, at: held)
      }
      return
    }
    let progressed = held > transfer.need.offset
    transfer.need.offset = held
    transfer.isComplete = isComplete
    if isComplete {
      wanted.remove(hash)
      requests.finish(hash, isHere: true)
    }
    transfer.isSkipped = isComplete || !progressed
    transfers[hash] = transfer
    if range.isLast { end(transfer) }
  }

  mutating func rejected(_ hash: BlobHash) {
    if assembly?.hash == hash {
      assembly?.rejected()
      return
    }
    rejected(ranges.endStoring(hash))
  }

  private mutating func rejected(_ range: BlobRange) {
    guard var transfer = transfers[range.hash] else { return beginKin(range.hash, at: 0) }
    transfer.need.offset = 0
    transfer.isSkipped = true
    transfers[range.hash] = transfer
    if range.isLast { end(transfer) }
  }

  /// A blob waiting for assembly starts at the offset where its earlier transfer ended.
  private mutating func beginKin(_ hash: BlobHash, at offset: UInt64) {
    kin.change(first: { $0.hash == hash }) { $0.offset = offset }
  }

  /// The other side has sent the last range of a blob.
  private mutating func end(_ transfer: Transfer) {
    let hash = transfer.need.hash
    transfers[hash] = nil
    guard !transfer.isComplete else { return }
    // The stored part may have been damaged, or another session interfered: retry once.
    if retried.insert(hash).inserted {
      waiting.append(transfer.need)
    } else {
      giveUp(hash)
    }
  }
}

extension BlobFetch {
  /// Ranges that have arrived, in order, and those that are being stored.
  ///
  /// Invariant: one store action is in flight: the ranges up to `storing`, or the blobs of `storingWhole`.
  private struct ArrivedRanges {
    private var queue = Queue<BlobRange>()
    /// Sum of `BlobRange.queuedBytes` of the queue.
    private(set) var bytes = 0
    /// The last of the ranges being stored.
    var storing: BlobRange?
    /// Blobs of one range each that are being stored together.
    var storingWhole: [BlobRange] = []

    var first: BlobRange? { queue.first }
    var isStoring: Bool { storing != nil || !storingWhole.isEmpty }

    mutating func append(_ range: BlobRange) {
      queue.append(range)
      bytes += range.queuedBytes
    }

    mutating func popFirst() -> BlobRange? {
      guard let range = queue.popFirst() else { return nil }
      bytes -= range.queuedBytes
      return range
    }

    /// Drops the queued ranges of a blob.
    mutating func drop(_ hash: BlobHash) {
      queue.removeAll { $0.hash == hash }
      bytes = queue.reduce(0) { $0 + $1.queuedBytes }
    }

    /// The ranges of the blob are stored, or rejected. Returns the last of them.
    mutating func endStoring(_ hash: BlobHash) -> BlobRange {
      guard let range = storing.take(), range.hash == hash else {
        preconditionFailure("that range was not being stored")
      }
      return range
    }

    /// The blobs that were stored together have `count` results. Returns their ranges.
    mutating func endStoringWhole(_ count: Int) -> [BlobRange] {
      precondition(count == storingWhole.count, "other blobs were being stored")
      return exchange(&storingWhole, with: [])
    }
  }

  /// Which blobs the other side does not give.
  private struct Availability {
    /// Blobs that it does not hold, or not intact.
    private(set) var unavailable: Set<BlobHash> = []
    /// Blobs that only beaten values refer to.
    private var spare: Set<BlobHash> = []
    /// Number of blobs that are `unavailable` and not `spare`, updated incrementally.
    private(set) var lacking = 0

    mutating func markSpare(_ hash: BlobHash) {
      if spare.insert(hash).inserted, unavailable.contains(hash) { lacking -= 1 }
    }

    /// Marks the blob as unavailable. False if it is already.
    mutating func giveUp(_ hash: BlobHash) -> Bool {
      guard unavailable.insert(hash).inserted else { return false }
      if !spare.contains(hash) { lacking += 1 }
      return true
    }

    /// Clears the mark: the blob may be available after all.
    mutating func reconsider(_ hash: BlobHash) {
      if unavailable.remove(hash) != nil, !spare.contains(hash) { lacking -= 1 }
    }
  }

  /// Blobs requested outside the plan: their progress and their results are reported.
  private struct Requests {
    /// The sizes of those that have not ended.
    private(set) var sizes: [BlobHash: UInt64] = [:]
    private(set) var finished: [(hash: BlobHash, isHere: Bool)] = []

    mutating func begin(_ need: BlobNeed) { sizes[need.hash] = need.size }

    /// Ends the request for the blob, if there is one.
    mutating func finish(_ hash: BlobHash, isHere: Bool) {
      if sizes.removeValue(forKey: hash) != nil { finished.append((hash, isHere)) }
    }

    mutating func drain() -> [(hash: BlobHash, isHere: Bool)] { exchange(&finished, with: []) }
  }
}

extension BlobRange {
  /// Bytes that it counts for while queued. Never zero: otherwise a peer that sends empty ranges escapes
  /// every bound.
  var queuedBytes: Int { encrypted.count + WireLimits.rangeOverheadBytes }
}
