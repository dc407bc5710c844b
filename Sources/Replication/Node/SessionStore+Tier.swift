internal import SyncStore

/// What is said of large values.
extension SessionStore {
  func stateHoldings(_ wanted: HoldingsWanted) throws(StoreError) -> SessionEvent {
    let said = try store.holdings(of: wanted.blobs)
    return .holdingsStated(
      HoldingsStated(
        number: wanted.number,
        statement: said.map { HoldingsStated.Statement(covered: $0.covered, held: $0.held) }))
  }

  func open(_ range: BlobRange, from sender: ActorID) throws -> SessionEvent {
    let context = BatchContext.blobRange(store: store.id, sender: sender, offset: range.offset)
    let bytes = try BatchCodec.open(range.sealed, expecting: context, keys: ring())
    return .blobRangeOpened(range.hash, offset: range.offset, bytes)
  }

  /// What is needed of a blob that somebody waits for; nil if it is here.
  static func need(_ blob: BlobReference, in store: Store) throws(StoreError) -> BlobNeed? {
    guard try !store.blobs.has(blob) else { return nil }
    return try SessionStore(store).needs([blob]).first
  }
}
