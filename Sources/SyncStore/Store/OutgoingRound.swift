extension Store {
  /// Fixes a durable snapshot of what a receiver lacks: what lies behind its cursor, is current and is not covered. Who must
  /// have full state (rule R8) is also told what else is held here.
  ///
  /// - Throws: `.rolledBack` if the receiver knows a round or a write of this copy that it does not know itself;
  ///   `.unsettled` if full state is needed and this copy cannot give it.
  package func openRound(for receiver: RoundReceiver) throws(StoreError) -> OutgoingRound {
    try openRound(for: receiver, behind: receiver.cursor?.position ?? 0, isLive: false)
  }

  /// The same for what lies behind a position that may be greater than the cursor's. A live session has no full state.
  func openRound(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool
  ) throws(StoreError) -> OutgoingRound {
    let (round, tail) = try append { composer throws(StoreError) in
      let state = composer.state
      guard let actor = state.actor else { preconditionFailure("a writable store has an actor") }
      if let cursor = receiver.cursor, state.marks[cursor.mark] == nil {
        throw StoreError(
          .rolledBack, "a peer has received a round that this copy knows nothing of", path: path)
      }
      guard receiver.covered[actor] <= state.sequence else {
        throw StoreError(.rolledBack, "a peer covers writes of this copy that it does not have", path: path)
      }
      let isFull =
        !isLive && receiver.standing != .settled
        || !isLive && !receiver.covered.covers(state.floor)
      if isFull { try checkGivesFullState(state, to: receiver) }
      let position = engine.withLock { $0.position }
      let pin = SnapshotPin()
      let mark = try self.mark(&composer, position: position, isLive: isLive)
      let items: (all: [OutgoingRound.Item], start: UInt64) = try engine.withLock {
        engine throws(StoreError) in
        engine.hold(pin)
        return isFull
          ? try Self.fullItems(for: receiver, in: engine)
          : (all: try Self.items(behind: begin, receiver.covered, in: engine), start: 0)
      }
      let close = RoundClose(
        sender: actor, mark: mark, position: position, vector: state.mending ? VersionVector() : state.vector,
        floor: state.floor, horizon: state.horizon, isFull: isFull)
      return OutgoingRound(store: self, close: close, items: items.all, start: items.start, pin: pin)
    }
    // The mark and all records of the snapshot are durable before any of them leaves (rules R7, R9).
    try sync(upTo: tail)
    return round
  }

  private func checkGivesFullState(
    _ state: ReplicaState, to receiver: RoundReceiver
  ) throws(StoreError) {
    let canMend = state.isSettled && state.vector.covers(receiver.floor)
    guard !state.mending, state.vector.covers(state.floor), receiver.standing != .mending || canMend else {
      throw StoreError(
        .unsettled,
        "a peer needs the full state, and this copy waits for the full state of another one itself: let both synchronize with "
          + "another member", path: path)
    }
  }

  /// What lies behind a position, is current and is not covered; at most so many.
  static func items(
    behind position: UInt64, _ covered: VersionVector, in engine: borrowing Engine, limit: Int = .max
  ) throws(StoreError) -> [OutgoingRound.Item] {
    try items(behind: position, in: engine, limit: limit) { view, dot in
      view.position > position && !covered.covers(dot) ? false : nil
    }
  }

  /// All that is current, and up to where the receiver has had an earlier full state.
  private static func fullItems(
    for receiver: RoundReceiver, in engine: borrowing Engine
  ) throws(StoreError) -> (all: [OutgoingRound.Item], start: UInt64) {
    // A copy in doubt about its own records compares them with all that is held here.
    let start = receiver.standing == .suspect ? 0 : receiver.cursor?.position ?? 0
    let covered = receiver.standing == .settled ? receiver.covered : VersionVector()
    let items = try items(behind: 0, in: engine, limit: .max) { view, dot in
      view.position <= start || covered.covers(dot)
    }
    return (items, start)
  }

  /// The current records behind a position for which `isPresent` says something: whether the receiver has them already.
  private static func items(
    behind position: UInt64, in engine: borrowing Engine, limit: Int,
    _ isPresent: (RecordView, Dot) -> Bool?
  ) throws(StoreError) -> [OutgoingRound.Item] {
    var items: [OutgoingRound.Item] = []
    var group = 0
    // A record passed over here would be one that the receiver believes it has (rule R6).
    try engine.visit(from: engine.start(of: position + 1), isComplete: true) { view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { group += 1 } }
      guard view.isWrite, let dot = view.dot, let isPresent = isPresent(view, dot), engine.isCurrent(view),
        !engine.state.isSuspect(dot)
      else { return true }
      items.append(
        OutgoingRound.Item(
          location: view.location, position: view.position, group: group, isPresent: isPresent))
      return items.count < limit
    }
    return items
  }
}

/// One transfer to a peer: what changed between two positions, or all that is held, closed by the sender's vector (rule
/// R10). The snapshot is fixed when it is opened; what is written later goes with the next round.
package final class OutgoingRound: Sendable {
  struct Item: Sendable {
    var location: Location
    var position: UInt64
    /// Records of one transaction share it; they leave in one batch.
    var group: Int
    /// Has the receiver got it already, and is only told that it is held here?
    var isPresent: Bool
  }

  /// What will close the round.
  package let close: RoundClose
  private let store: Store
  private let items: [Item]
  /// Of a full state: up to here the receiver has had an earlier one.
  private let start: UInt64
  private let next = Locked(0)
  /// Compaction leaves the places of the items readable.
  private let pin: SnapshotPin

  init(store: Store, close: RoundClose, items: [Item], start: UInt64, pin: SnapshotPin) {
    (self.store, self.close, self.items, self.start, self.pin) = (store, close, items, start, pin)
  }

  /// How many records it has.
  package var count: Int { items.count { !$0.isPresent } }

  /// Writes that a batch of a full state names beside its records.
  private static let mostPresent = 1 << 15

  /// The next batch of whole transactions, of about `maximumBytes` bytes of keys and values unless one transaction has
  /// more; nil at the end.
  package func next(maximumBytes: Int) throws(StoreError) -> IncomingBatch? {
    try next.withLock { next throws(StoreError) in
      guard next < items.count else { return nil }
      var records: [PositionedRecord] = []
      var present: [Dot] = []
      var bytes = 0
      var end = next
      while end < items.count, present.count < Self.mostPresent {
        var groupEnd = end + 1
        if items[end].isPresent {
          while groupEnd < items.count, items[groupEnd].isPresent,
            groupEnd - end < Self.mostPresent - present.count
          {
            groupEnd += 1
          }
          present += try store.dots(items[end..<groupEnd], pin)
        } else {
          while groupEnd < items.count, items[groupEnd].group == items[end].group, !items[groupEnd].isPresent
          {
            groupEnd += 1
          }
          var group = try store.records(items[end..<groupEnd], pin)
          // In the journal what follows may be no record of the round: superseded, or of this copy alone.
          for index in group.indices { group[index].record.continues = index < group.count - 1 }
          let size = group.reduce(0) { $0 + $1.record.transferSize }
          if !records.isEmpty, bytes + size > maximumBytes { break }
          records += group
          bytes += size
        }
        end = groupEnd
      }
      next = end
      return IncomingBatch(
        sender: close.sender, mark: close.mark, position: max(start, items[end - 1].position),
        records: records,
        present: present.sorted())
    }
  }
}

extension Store {
  /// What `body` makes of each item of a round whose snapshot still stands.
  private func read<Value>(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin,
    _ body: (borrowing Engine, OutgoingRound.Item) throws(StoreError) -> Value
  ) throws(StoreError) -> [Value] {
    try reading { engine throws(StoreError) in
      try pin.check(path)
      var values: [Value] = []
      values.reserveCapacity(items.count)
      for item in items { values.append(try body(engine, item)) }
      return values
    }
  }

  fileprivate func records(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin
  ) throws(StoreError) -> [PositionedRecord] {
    try read(items, pin) { engine, item throws(StoreError) in
      PositionedRecord(position: item.position, record: try engine.record(at: item.location))
    }
  }

  fileprivate func dots(
    _ items: ArraySlice<OutgoingRound.Item>, _ pin: SnapshotPin
  ) throws(StoreError) -> [Dot] {
    try read(items, pin) { engine, item throws(StoreError) in
      guard let dot = try engine.journal.record(at: item.location).dot else {
        throw StoreError(
          .damaged, "a record lost the definition of its actor: run `verify --repair`", path: path)
      }
      return dot
    }
  }
}
