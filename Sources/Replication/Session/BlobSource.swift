internal import SyncStore

/// Gives blobs that the other side asks for.
///
/// Invariants: blobs are given in the order in which they were asked for; at most
/// `WireLimits.blobReadsInFlight` ranges are being read, and none while `WireLimits.blobQueueBytes` wait in
/// the transport, so that records overtake blobs.
struct BlobSource {
  private struct Read {
    var request: UInt64
    var hash: BlobHash
    var offset: UInt64
    var isLast: Bool
  }

  private var waiting: [BlobNeed] = []
  /// The number of the request at the front of `waiting`.
  private var request: UInt64 = 0
  private var reading: [Read] = []
  /// The request whose blob turned out not to be here: what else was read of it is not sent.
  private var failed: UInt64?

  /// Is nothing asked for that was not given?
  var isQuiet: Bool { waiting.isEmpty && reading.isEmpty }

  mutating func wanted(_ needs: [BlobNeed]) throws(SessionEnd) {
    waiting += needs
    // A blob whose last range is being read is the other side's to count, too.
    guard waiting.count <= Limits.blobsInFlight else {
      throw .violation("more than \(Limits.blobsInFlight) blobs asked for at once")
    }
  }

  /// Reads as far as there is room.
  mutating func pump(_ port: inout SessionPort) {
    while let need = waiting.first, reading.count < WireLimits.blobReadsInFlight,
      port.queued + reading.count * Limits.blobRangeBytes < WireLimits.blobQueueBytes
    {
      let count = min(UInt64(Limits.blobRangeBytes), need.size - need.offset)
      let isLast = need.offset + count == need.size
      reading.append(Read(request: request, hash: need.hash, offset: need.offset, isLast: isLast))
      port.actions.append(.readBlob(hash: need.hash, size: need.size, offset: need.offset, count: Int(count)))
      if isLast { nextRequest() } else { waiting[0].offset += count }
    }
  }

  private mutating func nextRequest() {
    waiting.removeFirst()
    request += 1
  }

  mutating func read(_ hash: BlobHash, offset: UInt64, sealed: [UInt8], _ port: inout SessionPort) {
    let read = answered(hash)
    precondition(read.offset == offset, "another range was being read")
    guard read.request != failed else { return }
    port.send(.blobRange(BlobRange(hash: hash, offset: offset, isLast: read.isLast, sealed: sealed)))
    if read.isLast { port.figures.sentBlobs += 1 }
  }

  mutating func lacks(_ hash: BlobHash, _ port: inout SessionPort) {
    let read = answered(hash)
    guard read.request != failed else { return }
    failed = read.request
    if read.request == request, !waiting.isEmpty { nextRequest() }
    port.send(.blobUnavailable(hash))
  }

  private mutating func answered(_ hash: BlobHash) -> Read {
    precondition(reading.first?.hash == hash, "another blob was being read")
    return reading.removeFirst()
  }
}
