/// What a session asks of the store: rounds out, batches in (rules R6, R7, R9, R10). All of it blocks.
extension Store {
  /// What this copy says of itself at the handshake; all of it is durable when this returns.
  package func replicaSummary() throws(StoreError) -> ReplicaSummary {
    try replicaSummary(digestAt: environment.now()).summary
  }

  /// What this copy says of itself, and the digest of what is live at `time` (milliseconds since 1970), both of one
  /// moment; all of it is durable when this returns.
  package func replicaSummary(
    digestAt time: UInt64
  ) throws(StoreError) -> (summary: ReplicaSummary, digest: StateDigest) {
    let (summary, digest, tail) = try readingAlone { engine, isAlone throws(StoreError) in
      let state = engine.state
      guard let actor = state.actor else {
        throw StoreError(.damaged, "the journal names no actor: restore the store from a backup", path: path)
      }
      let summary = ReplicaSummary(
        store: id, actor: actor, sequence: state.sequence, vector: state.vector, floor: state.floor,
        horizon: state.horizon, position: engine.position)
      return (summary, try engine.digest(at: time, keeps: isAlone), engine.applied.packed)
    }
    if isWritable { try sync(upTo: tail) }
    return (summary, digest)
  }

  /// How far the journal of `sender` has been received here.
  package func cursor(for sender: ActorID) throws(StoreError) -> Cursor? {
    try reading { engine throws(StoreError) in engine.state.cursors[sender] }
  }

  /// Fixes a durable snapshot of what lies behind `cursor`, is current and is not covered by the receiver.
  ///
  /// - Throws: `.rolledBack` if the receiver knows a round or a write of this copy that it does not know itself.
  package func openRound(since cursor: Cursor?, covered: VersionVector) throws(StoreError) -> OutgoingRound {
    try openRound(since: cursor, behind: cursor?.position ?? 0, covered: covered, isLive: false)
  }

  /// The same for what lies behind a position that may be greater than the cursor's.
  func openRound(
    since cursor: Cursor?, behind begin: UInt64, covered: VersionVector, isLive: Bool
  ) throws(StoreError) -> OutgoingRound {
    let (round, tail) = try append { composer throws(StoreError) in
      let state = composer.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      if let cursor, state.marks[cursor.mark] == nil {
        throw StoreError(
          .rolledBack, "a peer has received a round that this copy knows nothing of", path: path)
      }
      guard covered[actor] <= state.sequence else {
        throw StoreError(.rolledBack, "a peer covers writes of this copy that it does not have", path: path)
      }
      let position = engine.withLock { $0.position }
      let pin = SnapshotPin()
      let mark = try self.mark(&composer, position: position, isLive: isLive)
      let items = try engine.withLock { engine throws(StoreError) in
        engine.hold(pin)
        return try Self.items(behind: begin, covered, in: engine)
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.mending ? VersionVector() : state.vector,
        floor: state.floor, horizon: state.horizon)
      return OutgoingRound(store: self, close: close, items: items, pin: pin)
    }
    // The mark and all records of the snapshot are durable before any of them leaves (rules R7, R9).
    try sync(upTo: tail)
    return round
  }

  /// The present mark, or a new one if anything was written since it was made.
  func mark(
    _ composer: inout Composer, position: UInt64, isLive: Bool = false
  ) throws(StoreError) -> RoundMark {
    if let last = composer.state.lastMark, let made = composer.state.marks[last], made.position == position,
      made.isLive ? isLive && live.isOwn(last) : !isLive
    {
      return last
    }
    if composer.state.marks.count >= Self.keptMarks,
      let oldest = composer.state.marks.min(by: { $0.value.position < $1.value.position })
    {
      try composer.setLocal(StateKey.mark(oldest.key), nil)
    }
    let mark = environment.newMark()
    let made = ReplicaState.Mark(position: position, sequence: composer.state.sequence, isLive: isLive)
    try composer.setLocal(StateKey.mark(mark), ReplicaState.encode(made))
    if isLive { live.made(mark) }
    return mark
  }

  /// A peer whose cursor bears an older mark makes this copy a new actor: tiresome, not wrong.
  private static let keptMarks = 1 << 16

  static func items(
    behind position: UInt64, _ covered: VersionVector, in engine: borrowing Engine, limit: Int = .max
  ) throws(StoreError) -> [OutgoingRound.Item] {
    var items: [OutgoingRound.Item] = []
    var group = 0
    // A record passed over here would be one that the receiver believes it has (rule R6).
    try engine.visit(from: engine.start(of: position + 1), isComplete: true) { view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { group += 1 } }
      guard view.isWrite, view.position > position, let dot = view.dot, !covered.covers(dot),
        engine.isCurrent(view), !engine.state.isSuspect(dot)
      else { return true }
      items.append(OutgoingRound.Item(location: view.location, position: view.position, group: group))
      return items.count < limit
    }
    return items
  }

  /// Takes in a batch and moves the cursor, in one atomic append that is durable when this returns. Returns the blobs
  /// that its records refer to and that are not here.
  ///
  /// - Throws: `.rolledBack` if a record bears a sequence of this copy's actor that it never wrote.
  package func apply(_ batch: IncomingBatch) throws(StoreError) -> [BlobReference] {
    try apply(batch, closing: nil)
  }

  /// The same for the last batch of a round, which is closed (`finish`) in the same step.
  package func apply(
    _ batch: IncomingBatch, closing close: RoundClose?
  ) throws(StoreError) -> [BlobReference] {
    let missing = try missing(of: batch)
    var isOpen = false
    let (_, tail) = try append(limit: 2 * Limits.batchBytes) { composer throws(StoreError) in
      for item in batch.records {
        let record = item.record
        if record.dot.actor == composer.state.actor, record.dot.sequence > composer.state.sequence {
          throw StoreError(.rolledBack, "a peer holds a write of this copy that it does not have", path: path)
        }
        let (held, parked, kept) = engine.withLock { engine in
          (
            try? engine.held(record.key),
            (engine.parked[record.key] ?? []).compactMap { try? engine.record(at: $0) }, engine.keptLosers
          )
        }
        try composer.receive(record, held: held, parked: parked, kept: kept)
      }
      for blob in missing {
        var writer = ByteWriter()
        writer.write(blob.size)
        writer.write(counted: blob.metadata)
        try composer.setLocal(Self.wantedKey(blob.hash), writer.bytes)
      }
      let cursor = Cursor(position: batch.position, mark: batch.mark, closed: false)
      // Coming to rest looks at what is held: there the batch must be in the journal first.
      if let close, !composer.state.mending, composer.state.suspects.isEmpty {
        try merge(close, &composer)
      } else {
        isOpen = close != nil
        try composer.setLocal(StateKey.cursor(batch.sender), ReplicaState.encode(cursor))
      }
    }
    try sync(upTo: tail)
    if isOpen, let close { try finish(close) }
    return missing
  }

  /// Closes a round that has come in whole: only now is the sender's vector merged (rule R6). Durable on return.
  package func finish(_ close: RoundClose) throws(StoreError) {
    let (_, tail) = try append(limit: .max) { composer throws(StoreError) in
      try merge(close, &composer)
      if composer.state.mending || !composer.state.suspects.isEmpty {
        let held = try engine.withLock { engine throws(StoreError) in
          try engine.locations().compactMap { try? engine.record(at: $0) }
        }
        try composer.comeToRest(held.sorted { $0.version < $1.version })
      }
    }
    try sync(upTo: tail)
  }

  private func merge(_ close: RoundClose, _ composer: inout Composer) throws(StoreError) {
    var vector = composer.state.vector
    vector.merge(close.vector)
    guard vector.count <= Limits.actors else {
      throw StoreError(
        .outOfBounds, "the peer's vector names more than \(Limits.actors) actors", path: path)
    }
    if vector != composer.state.vector {
      try composer.setLocal(StateKey.vector, ReplicaState.encode(vector))
    }
    let cursor = Cursor(position: close.position, mark: close.mark, closed: true)
    if composer.state.cursors[close.sender] != cursor {
      try composer.setLocal(StateKey.cursor(close.sender), ReplicaState.encode(cursor))
    }
  }

  /// Becomes a new actor, because a peer knows more of this copy than it does itself (rule R9).
  package func becomeNewActor() throws(StoreError) {
    let actor = environment.newActor()
    let (_, tail) = try append(limit: .max) { composer throws(StoreError) in
      try composer.renew(.rolledBack, as: actor)
    }
    try sync(upTo: tail)
  }

  /// The digest of what is live at a time, in milliseconds since 1970.
  package func digest(at time: UInt64) throws(StoreError) -> StateDigest {
    try readingAlone { engine, isAlone throws(StoreError) in try engine.digest(at: time, keeps: isAlone) }
  }

  // MARK: Blobs that have not arrived

  static let wantedPrefix = Array("want/".utf8)
  private static func wantedKey(_ hash: BlobHash) -> [UInt8] { wantedPrefix + hash.bytes }

  private func missing(of batch: IncomingBatch) throws(StoreError) -> [BlobReference] {
    var seen: Set<BlobHash> = []
    var missing: [BlobReference] = []
    for item in batch.records {
      guard case .blob(let blob) = item.record.content, seen.insert(blob.hash).inserted,
        try !blobs.has(blob.hash)
      else { continue }
      missing.append(blob)
    }
    return missing
  }

  /// Blobs that records here refer to and whose bytes have not arrived. Forgets those that have.
  package func missingBlobs() throws(StoreError) -> [BlobReference] {
    var missing: [BlobReference] = []
    var arrived: [[UInt8]] = []
    for (key, value) in try locals(prefix: Self.wantedPrefix) {
      var reader = ByteReader(value)
      guard let hash = BlobHash(bytes: key.dropFirst(Self.wantedPrefix.count)),
        let size = try? reader.read(UInt64.self),
        let metadata = try? reader.readCounted(limit: Limits.blobMetadataBytes)
      else { continue }
      if try blobs.has(hash) {
        arrived.append(key)
      } else {
        missing.append(BlobReference(hash: hash, size: size, metadata: metadata))
      }
    }
    if !arrived.isEmpty {
      let arrived = arrived
      try append(limit: .max) { composer throws(StoreError) in
        for key in arrived { try composer.setLocal(key, nil) }
      }
    }
    return missing.sorted { $0.hash < $1.hash }
  }

  /// Notes that a blob is to be fetched again (it was found rotten or gone).
  package func want(_ blob: BlobReference) throws(StoreError) {
    var writer = ByteWriter()
    writer.write(blob.size)
    writer.write(counted: blob.metadata)
    try setLocal(Self.wantedKey(blob.hash), writer.bytes)
  }

  // MARK: Keys of the store's own

  /// A value of this copy alone, never replicated.
  package func local(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    try reading { engine throws(StoreError) in engine.locals[key] }
  }

  /// Local keys that begin with `prefix`, in order.
  package func locals(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    let pairs = try reading { engine throws(StoreError) in
      engine.locals.filter { $0.key.starts(with: prefix) }
    }
    return pairs.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map { ($0.key, $0.value) }
  }

  /// Sets a local key, durably; nil ends it.
  package func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try updateLocal(key) { _ in value }
  }

  /// Changes a local key, durably, while nobody else can: `change` gets its value and returns the new one. Returns what
  /// was there before.
  @discardableResult
  package func updateLocal(
    _ key: [UInt8], _ change: ([UInt8]?) -> [UInt8]?
  ) throws(StoreError) -> [UInt8]? {
    precondition(
      !StateKey.isInternal(key) && key.count <= Limits.keyBytes, "the store keeps these keys itself")
    let (before, tail) = try append { composer throws(StoreError) in
      let before = engine.withLock { $0.locals[key] }
      let after = change(before)
      if after != before { try composer.setLocal(key, after) }
      return before
    }
    try sync(upTo: tail)
    return before
  }

  /// The values of replicated keys of the store's own (members) that begin with `prefix`, in order.
  package func reserved(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    let records = try reading { engine throws(StoreError) in
      var records: [Record] = []
      for key in engine.reserved where key.starts(with: prefix) {
        if let record = try engine.held(key) { records.append(record) }
      }
      return records
    }
    return records.sorted { $0.key.lexicographicallyPrecedes($1.key) }.compactMap { record in
      guard case .inline(let value) = record.content else { return nil }
      return (record.key, value)
    }
  }

  /// The value of one replicated key of the store's own; nil if it has none.
  package func reserved(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    precondition(ReservedKey.isReserved(key), "a user's key is read by `get`")
    let record = try reading { engine throws(StoreError) in try engine.held(key) }
    guard case .inline(let value) = record?.content else { return nil }
    return value
  }

  /// Sets a replicated key of the store's own, durably; nil deletes it.
  package func putReserved(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    precondition(ReservedKey.isReserved(key), "a user's key is written by `put`")
    let (_, tail) = try append { composer throws(StoreError) in
      let held = try self.heldForWriting(key, composer)
      try composer.issue(
        key: key, content: value.map { .inline($0) } ?? .tombstone, type: .bytes, deadline: nil, held: held)
    }
    try sync(upTo: tail)
  }
}

/// One transfer to a peer: what changed between two positions, closed by the sender's vector (rule R10). The snapshot is
/// fixed when it is opened; what is written later goes with the next round.
package final class OutgoingRound: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Records of one transaction share it; they leave in one batch.
    var group: Int
  }

  /// What will close the round.
  package let close: RoundClose
  private let store: Store
  private let items: [Item]
  private let next = Locked(0)
  /// Compaction leaves the places of the items readable.
  private let pin: SnapshotPin

  init(store: Store, close: RoundClose, items: [Item], pin: SnapshotPin) {
    (self.store, self.close, self.items, self.pin) = (store, close, items, pin)
  }

  /// How many records it has.
  package var count: Int { items.count }

  /// The next batch of whole transactions, of about `maximumBytes` bytes of keys and values unless one transaction has
  /// more; nil at the end.
  package func next(maximumBytes: Int) throws(StoreError) -> IncomingBatch? {
    try next.withLock { next throws(StoreError) in
      guard next < items.count else { return nil }
      var records: [PositionedRecord] = []
      var bytes = 0
      var end = next
      while end < items.count {
        var groupEnd = end
        while groupEnd < items.count, items[groupEnd].group == items[end].group { groupEnd += 1 }
        var group = try store.records(items[end..<groupEnd], pin)
        // In the journal what follows may be no record of the round: superseded, or of this copy alone.
        for index in group.indices { group[index].record.continues = index < group.count - 1 }
        let size = group.reduce(0) { $0 + $1.record.transferSize }
        if !records.isEmpty, bytes + size > maximumBytes { break }
        records += group
        bytes += size
        end = groupEnd
      }
      next = end
      return IncomingBatch(
        sender: close.sender, mark: close.mark, position: items[end - 1].position, records: records)
    }
  }
}

extension Store {
  fileprivate func records(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin
  ) throws(StoreError) -> [PositionedRecord] {
    try reading { engine throws(StoreError) in
      try pin.check(path)
      return try items.map { item throws(StoreError) in
        PositionedRecord(position: item.position, record: try engine.record(at: item.location))
      }
    }
  }
}
