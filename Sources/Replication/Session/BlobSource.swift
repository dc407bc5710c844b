internal import SyncStore

/// Sends the blobs that the other side requests.
///
/// Invariants: blobs are sent in request order; at most `WireLimits.blobReadsInFlight` ranges are being read,
/// and none while more than `WireLimits.blobQueueBytes` are queued in the transport, so that records overtake
/// blobs.
struct BlobSource {
  /// A contiguous range of a requested blob.
  private struct Request {
    /// The number of the request that it belongs to.
    var number: UInt64
    var hash: BlobHash
    var size: UInt64
    var offset: UInt64
    var end: UInt64
    /// Whether it completes the request.
    var isFinal: Bool
  }

  private struct Read {
    var request: UInt64
    var hash: BlobHash
    var offset: UInt64
    var isLast: Bool
  }

  private var waiting = Queue<Request>()
  private var questions: UInt64 = 0
  /// Requested recipes; the first one is being made.
  private var recipes: [BlobNeed] = []
  private var isMaking = false
  private var reading: [Read] = []
  /// The request whose blob turned out to be missing: other ranges read for it are not sent.
  private var failed: UInt64?

  /// Whether every request was answered.
  var isQuiet: Bool { waiting.isEmpty && reading.isEmpty && recipes.isEmpty }

  mutating func wanted(_ needs: [BlobNeed]) throws(SessionEnd) {
    for need in needs {
      questions += 1
      waiting.append(
        Request(
          number: questions, hash: need.hash, size: need.size, offset: need.offset, end: need.size,
          isFinal: true))
    }
    try bound()
  }

  mutating func wanted(_ wanted: BlobPartsWanted) throws(SessionEnd) {
    questions += 1
    for (index, part) in wanted.parts.enumerated() {
      waiting.append(
        Request(
          number: questions, hash: wanted.hash, size: wanted.size, offset: part.offset, end: part.end,
          isFinal: index == wanted.parts.count - 1))
    }
    try bound()
  }

  mutating func wantedRecipe(_ need: BlobNeed) throws(SessionEnd) {
    recipes.append(need)
    guard recipes.count <= Limits.blobsInFlight else {
      throw .violation("more than \(Limits.blobsInFlight) recipes asked for at once")
    }
  }

  private func bound() throws(SessionEnd) {
    // The other side still counts a blob whose last range is being read.
    guard waiting.count(where: \.isFinal) <= Limits.blobsInFlight else {
      throw .violation("more than \(Limits.blobsInFlight) blobs asked for at once")
    }
    guard waiting.count <= WireLimits.wantedParts else {
      throw .violation("more than \(WireLimits.wantedParts) parts of blobs asked for at once")
    }
  }

  /// Reads ranges as far as there is room.
  mutating func pump(_ port: inout SessionPort) {
    if !isMaking, let need = recipes.first {
      isMaking = true
      port.actions.append(.makeRecipe(hash: need.hash, size: need.size, offset: need.offset))
    }
    while let need = waiting.first, reading.count < WireLimits.blobReadsInFlight,
      port.queued + reading.count * Limits.blobRangeBytes < WireLimits.blobQueueBytes
    {
      let count = min(UInt64(Limits.blobRangeBytes), need.end - need.offset)
      let isEnd = need.offset + count == need.end
      reading.append(
        Read(request: need.number, hash: need.hash, offset: need.offset, isLast: isEnd && need.isFinal))
      port.actions.append(.readBlob(hash: need.hash, size: need.size, offset: need.offset, count: Int(count)))
      if isEnd { _ = waiting.popFirst() } else { waiting.first?.offset += count }
    }
  }

  mutating func made(_ recipe: EncryptedRecipe, _ port: inout SessionPort) {
    precondition(isMaking && recipes.first?.hash == recipe.hash, "another recipe was being made")
    recipes.removeFirst()
    isMaking = false
    port.send(.recipe(recipe))
  }

  mutating func cannotMake(_ hash: BlobHash, _ port: inout SessionPort) {
    precondition(isMaking && recipes.first?.hash == hash, "another recipe was being made")
    recipes.removeFirst()
    isMaking = false
    port.send(.recipeUnavailable(hash))
  }

  mutating func blobRead(_ hash: BlobHash, offset: UInt64, encrypted: [UInt8], _ port: inout SessionPort) {
    let read = answered(hash)
    precondition(read.offset == offset, "another range was being read")
    guard read.request != failed else { return }
    port.send(.blobRange(BlobRange(hash: hash, offset: offset, isLast: read.isLast, encrypted: encrypted)))
    if read.isLast { port.figures.sentBlobs += 1 }
  }

  mutating func lacks(_ hash: BlobHash, _ port: inout SessionPort) {
    let read = answered(hash)
    guard read.request != failed else { return }
    failed = read.request
    waiting.removeAll { $0.number == read.request }
    port.send(.blobUnavailable(hash))
  }

  private mutating func answered(_ hash: BlobHash) -> Read {
    precondition(reading.first?.hash == hash, "another blob was being read")
    return reading.removeFirst()
  }
}
