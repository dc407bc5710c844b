/// The changes of a store, read from its journal. Made by `Store.changes`.
///
/// ```swift
/// for try await change in try store.changes(prefix: "order/", from: last) {
///   try apply(change)
///   last = change.position
/// }
/// ```
///
/// - *Included*: every write whose record the journal still has, in journal order, once: local ones, those of
///   other processes and of peers. After the start position the journal has the latest record of each key
///   written since, and those older ones that were not compacted yet; a deleted key's latest record is its
///   delete. Applying these changes to the state at that position gives the store's state, and then follows
///   it write by write.
/// - *Not included* is what changes no value: the losing side of a conflict, an expiry, the store's reserved
///   keys, and parked records, which a peer has stamped too far ahead: they follow when they are due. A
///   record that was found damaged at an opening is skipped (`verify` names it); the peer that sends it again
///   causes a new one.
/// - *Transactions* are delivered whole, in the requested range: their changes follow one another after the
///   commit, and `endsTransaction` marks the last one. They need not be durable by then.
/// - *Back-pressure*: records are read on demand, some dozens at a time. A slow reader delays no other thread
///   and takes no memory: the journal is the buffer.
/// - *The end*: `next` returns nil at once when the task is cancelled. It throws `.closed` when the store is
///   closed, because there may have been more changes.
///
/// The task waits without a thread. Several iterators are independent of each other.
public struct Changes: AsyncSequence, Sendable {
  /// The error type.
  public typealias Failure = StoreError

  let store: Store
  let range: KeyRange
  /// The position after which it begins.
  public let start: ChangePosition

  /// An iterator that begins after `start`.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }

  /// Iterates over changes.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let follower: JournalFollower<[Change]>
    private var changes: [Change] = []
    private var index = 0
    private var isAtEnd = false

    init(_ sequence: Changes) {
      let (store, range) = (sequence.store, sequence.range)
      let reader = Locked(ChangeReader(sequence.start, range))
      follower = JournalFollower(store.changeSignal) { () throws(StoreError) in
        try reader.withLock { reader throws(StoreError) in try reader.poll(store) }
      }
    }

    /// The next change; nil once the task is cancelled.
    ///
    /// - Throws: `.closed`; `.rolledBack` if the position is not one of this copy, or of writes that it has
    ///   lost; `.changesLost` if deletes after the position are no longer kept, which those at the last
    ///   `Limits.changesKept` positions always are; `.damaged` if records were damaged while the store was
    ///   open.
    public mutating func next() async throws(StoreError) -> Change? { try await next(isolation: nil) }

    /// `next()` for callers isolated to an actor.
    public mutating func next(
      isolation actor: isolated (any Actor)?
    ) async throws(StoreError) -> Change? {
      guard !isAtEnd, !Task.isCancelled else {
        isAtEnd = true
        return nil
      }
      if index == changes.count {
        switch await follower.next() {
        case .found(let found): (changes, index) = (found, 0)
        case .cancelled:
          isAtEnd = true
          return nil
        case .failed(let error):
          isAtEnd = true
          throw error
        }
      }
      defer { index += 1 }
      return changes[index]
    }
  }
}

extension Store {
  /// The end of the journal: changes from there on are those not written yet.
  ///
  /// With `interval` and `relaxed` durability a power loss may take the last writes, and with them the
  /// positions: call `sync` before storing a position elsewhere.
  ///
  /// - Throws: `.damaged` if the journal has lost this copy's actor record; `.closed`, `.forked`.
  public func changePosition() throws(StoreError) -> ChangePosition {
    try reading { engine throws(StoreError) in try changePosition(engine) }
  }

  /// A snapshot, and the position of the changes that follow it: state first, then changes, with no write
  /// missed or seen twice.
  ///
  /// - Throws: as `snapshot` and `changePosition`.
  public func snapshotAndPosition() throws(StoreError) -> (snapshot: Snapshot, position: ChangePosition) {
    // Sorts the keys, if they are not sorted yet, while writers go on: under the engine's lock only what was
    // appended since is merged.
    _ = try snapshotState()
    let (view, position) = try reading { engine throws(StoreError) in
      (try SnapshotState(&engine), try changePosition(engine))
    }
    return (Snapshot(of: self, view, at: environment.now()), position)
  }

  private func changePosition(_ engine: borrowing Engine) throws(StoreError) -> ChangePosition {
    let actor = try changeActor(engine)
    let stamp = try engine.write(at: engine.position)?.stamp ?? .zero
    return ChangePosition(
      actor: actor, position: engine.position, stamp: stamp,
      pending: engine.parked.isEmpty ? [] : try engine.parkedPositions())
  }

  /// The changes of keys with a prefix; see `Changes`.
  ///
  /// - Parameters:
  ///   - prefix: of the keys; by default all.
  ///   - position: that of a change, `changePosition()`, or `.beginning`; by default the end of the journal.
  /// - Throws: `.closed`. An invalid position fails at the first change.
  public func changes(prefix: String = "", from position: ChangePosition? = nil) throws(StoreError) -> Changes
  {
    try changes(in: KeyRange(prefix: prefix), from: position)
  }

  /// The changes of the keys in a range; see `Changes`.
  ///
  /// - Throws: `.closed`, as `changes(prefix:from:)`.
  public func changes(in range: KeyRange, from position: ChangePosition? = nil) throws(StoreError) -> Changes
  {
    try checkUsable()
    if let position { return Changes(store: self, range: range, start: position) }
    return Changes(store: self, range: range, start: try changePosition())
  }

  func changeActor(_ engine: borrowing Engine) throws(StoreError) -> ActorID {
    guard let actor = engine.state.actor else { throw missingActorError }
    return actor
  }
}
