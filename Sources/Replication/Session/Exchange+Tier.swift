package import SyncStore

/// Results of requests that the own side made outside the session's plan.
package enum SessionNotification: Hashable, Sendable {
  /// Progress of a requested blob: bytes stored here.
  case progress(BlobHash, held: UInt64, size: UInt64)
  /// A requested blob is complete, verified and durable.
  case arrived(BlobHash)
  /// The other side does not hold the blob.
  case lacking(BlobHash)
  /// Bytes of a requested part of a blob.
  case part(BlobHash, offset: UInt64, [UInt8])
  /// Requested parts of it are not available, or no longer.
  case partsLacking(BlobHash)
  /// The other side's holdings.
  case holdings(HoldingsStated)
  /// Keys that differ: the next part of a comparison.
  case differences([KeyDifference])
}

/// Requests in flight outside the session's plan.
struct TierState {
  /// Number of the own unanswered question.
  var asked: UInt64?
  /// Number of the other side's unanswered question.
  var stating: UInt64?
  /// Expected parts of blobs, which are passed to the requester.
  var parts: [BlobHash: [BlobPart]] = [:]
  /// Ranges of those parts that await decryption, with the bytes that each must hold. `decryptingBytes` is
  /// that number for the range being decrypted.
  var encryptedRanges = Queue<(range: BlobRange, count: UInt64)>()
  /// Sum of `queuedBytes` of those ranges.
  var encryptedBytes = 0
  var decryptingBytes: UInt64?

  var isQuiet: Bool {
    asked == nil && stating == nil && parts.isEmpty && encryptedRanges.isEmpty && decryptingBytes == nil
  }
}

// Requested blobs and questions about holdings, in live sessions and in control-only ones.
extension Exchange {
  /// Whether both sides answer questions about holdings.
  var knowsHoldings: Bool { own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.holdings != 0 }

  /// Fetches blobs, whatever the policy.
  mutating func want(_ needs: [BlobNeed], _ port: inout SessionPort) throws(SessionEnd) {
    guard receiving != nil else {
      port.notifications += needs.map { .lacking($0.hash) }
      return
    }
    receiving?.want(needs, &port)
  }

  // MARK: Blob parts

  /// Requests parts of a blob. Refused while the whole blob is being fetched, or while parts of too many
  /// other blobs are.
  mutating func want(_ wanted: BlobPartsWanted, _ port: inout SessionPort) {
    guard receiving?.fetch.isFetching(wanted.hash) == false, knowsChunks, tier.parts[wanted.hash] == nil,
      tier.parts.count < WireLimits.blobsInParts
    else {
      return port.notifications.append(.partsLacking(wanted.hash))
    }
    tier.parts[wanted.hash] = wanted.parts
    port.send(.partsWant(wanted))
  }

  /// Accepts a range if it belongs to a requested part.
  mutating func acceptPart(_ range: BlobRange, _ port: inout SessionPort) throws(SessionEnd) -> Bool {
    guard var expected = tier.parts[range.hash] else { return false }
    guard var part = expected.first, range.offset == part.offset else {
      throw .violation("a part of a blob came that was not asked for")
    }
    let count = min(part.count, UInt64(Limits.blobRangeBytes))
    (part.offset, part.count) = (part.offset + count, part.count - count)
    if part.count == 0 { expected.removeFirst() } else { expected[0] = part }
    guard range.isLast == expected.isEmpty else {
      throw .violation("parts of a blob end where they must not")
    }
    tier.parts[range.hash] = expected.isEmpty ? nil : expected
    tier.encryptedRanges.append((range, count))
    tier.encryptedBytes += range.queuedBytes
    decryptNext(&port)
    return true
  }

  private mutating func decryptNext(_ port: inout SessionPort) {
    guard tier.decryptingBytes == nil, let (range, count) = tier.encryptedRanges.popFirst() else { return }
    tier.encryptedBytes -= range.queuedBytes
    tier.decryptingBytes = count
    port.actions.append(.decryptBlobRange(range))
  }

  mutating func lacksParts(_ hash: BlobHash, _ port: inout SessionPort) -> Bool {
    guard tier.parts.removeValue(forKey: hash) != nil else { return false }
    port.notifications.append(.partsLacking(hash))
    return true
  }

  mutating func rangeDecrypted(
    _ hash: BlobHash, offset: UInt64, bytes: [UInt8], _ port: inout SessionPort
  ) throws(SessionEnd) {
    guard let count = tier.decryptingBytes else { preconditionFailure("no range was being opened") }
    tier.decryptingBytes = nil
    // The requester counts the bytes and would wait for missing ones.
    guard UInt64(bytes.count) == count else {
      throw .violation("\(CountText.of(bytes.count, noun: "byte")) of a blob came where \(count) must")
    }
    port.notifications.append(.part(hash, offset: offset, bytes))
    decryptNext(&port)
  }

  func reportProgress(_ hash: BlobHash, held: UInt64, _ port: inout SessionPort) {
    port.figures.blobSteps += 1
    if let size = receiving?.fetch.requestedSize(hash) {
      port.notifications.append(.progress(hash, held: held, size: size))
    }
  }

  mutating func notifyFetched(_ port: inout SessionPort) {
    guard receiving?.fetch.hasFinishedRequests == true else { return }
    for (hash, isHere) in receiving?.drainFinishedRequests() ?? [] {
      port.notifications.append(isHere ? .arrived(hash) : .lacking(hash))
    }
  }

  /// Asks what the other side holds; one question at a time.
  mutating func ask(_ wanted: HoldingsWanted, _ port: inout SessionPort) throws(SessionEnd) {
    guard knowsHoldings, tier.asked == nil else {
      port.notifications.append(.holdings(HoldingsStated(number: wanted.number, statement: nil)))
      return
    }
    tier.asked = wanted.number
    port.send(.holdingsWant(wanted))
  }

  mutating func wasAsked(_ wanted: HoldingsWanted, _ port: inout SessionPort) throws(SessionEnd) {
    guard knowsHoldings else { throw .violation("what is held was asked, but not agreed") }
    guard tier.stating == nil else { throw .violation("what is held was asked twice at once") }
    var left = WireLimits.holdingsBytes
    for blob in wanted.blobs where wanted.blobs.count > 1 {
      guard blob.size <= left else { throw .violation("it was asked for more than can be read at once") }
      left -= blob.size
    }
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
    port.notifications.append(.holdings(stated))
  }
}
