package import SyncStore

extension Store {
  /// One whole round from `sender` to this copy, as a session would drive it. `batches` bounds how many are delivered
  /// before the connection breaks; nil delivers all and closes the round.
  package func receive(
    from sender: Store, batches: Int? = nil, maximumBytes: Int = 1 << 20
  ) throws(StoreError) {
    let mine = try replicaSummary()
    let theirs = try sender.replicaSummary()
    let round = try sender.openRound(
      for: RoundReceiver(
        cursor: try cursor(for: theirs.actor), covered: mine.vector, floor: mine.floor,
        standing: mine.standing))
    let full = round.close.isFull ? FullState() : nil
    var delivered = 0
    while batches.map({ delivered < $0 }) ?? true, let batch = try round.next(maximumBytes: maximumBytes) {
      _ = try apply(batch, full)
      delivered += 1
    }
    if batches == nil { try finish(round.close, full) }
  }

  /// A round for a receiver that is settled and has purged nothing.
  package func openRound(since cursor: Cursor?, covered: VersionVector) throws(StoreError) -> OutgoingRound {
    try openRound(for: RoundReceiver(cursor: cursor, covered: covered))
  }

  /// Both rounds of a whole session.
  package func synchronize(with other: Store) throws(StoreError) {
    try receive(from: other)
    try other.receive(from: self)
  }
}
