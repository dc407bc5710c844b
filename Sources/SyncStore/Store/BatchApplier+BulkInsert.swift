/// Bulk insert: batches of simple records, each the first of its key here, as in a first copy.
///
/// The outcome of `TransactionBuilder.receive` is known beforehand: each record wins, against nothing. So the
/// bytes received go into the journal without becoming objects; a batch with any other record takes the
/// general path as a whole.
extension BatchApplier {
  /// Appends the records of a batch and those added by `conclude`. Nil, with nothing done, if the batch needs
  /// the general path.
  func bulkInsert(
    _ batch: CompactBatch, _ conclude: (inout TransactionBuilder) throws(StoreError) -> Void
  ) throws(StoreError) -> (echo: (after: UInt64, upTo: UInt64), tail: UInt64)? {
    try checkWritable()
    writes.compaction.throttleWriter()
    try writes.lockWriters()
    defer { control.unlock() }
    var builder = writes.newTransactionBuilder(limit: Limits.transactionBytes)
    var extent = AppendExtent()
    extent.add(batch)
    guard extent.bytes <= 2 * Limits.batchBytes,
      let intake = core.engine.withLock({ $0.prepareBulkInsert(of: batch, limit: builder.stampLimit) })
    else { return nil }
    try conclude(&builder)
    for entry in builder.entries { extent.add(entry) }
    return try core.engine.withLock { engine throws(StoreError) in
      let position = engine.position
      try writes.commit(builder.entries, extent: extent, after: intake, wall: builder.wall, &engine)
      return ((position, engine.position), control.tail)
    }
  }
}
