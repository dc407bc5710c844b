internal import SyncStore

/// Statements about large values.
extension SessionStore {
  /// Reads the requested blobs through and states which this copy holds. One question per device at a time,
  /// and only while its session lasts; the statement is nil if the question is not admitted now.
  func stateHoldings(_ wanted: HoldingsWanted) throws(StoreError) -> SessionEvent {
    let unsaid = SessionEvent.holdingsStated(HoldingsStated(number: wanted.number, statement: nil))
    if let remotePeer {
      let bytes = wanted.blobs.reduce(0) { $0 + $1.size }
      let now = MonotonicClock.milliseconds()
      guard remotePeer.scans.begin(for: remotePeer.device, remotePeer.right, bytes: bytes, at: now) else {
        return unsaid
      }
    }
    defer {
      if let remotePeer { remotePeer.scans.end(for: remotePeer.device, at: MonotonicClock.milliseconds()) }
    }
    do throws(StoreError) {
      let said = try store.holdings(of: wanted.blobs) { self.isOver }
      return .holdingsStated(
        HoldingsStated(
          number: wanted.number,
          statement: said.map { HoldingsStated.Statement(covered: $0.covered, held: $0.held) }))
    } catch {
      guard error.code == .cancelled else { throw error }
      return unsaid
    }
  }

  func decrypt(_ range: BlobRange, from sender: ActorID) throws -> SessionEvent {
    let context = BatchContext.blobRange(store: store.id, sender: sender, offset: range.offset)
    let bytes = try BatchCodec.decrypt(range.encrypted, expecting: context, keys: ring())
    return .blobRangeDecrypted(range.hash, offset: range.offset, bytes)
  }

  /// The parts that are needed of a blob; nil if it is here.
  static func need(_ blob: BlobReference, in store: Store) throws(StoreError) -> BlobNeed? {
    guard try !store.blobs.has(blob) else { return nil }
    return try SessionStore(store).needs([blob]).first
  }
}
