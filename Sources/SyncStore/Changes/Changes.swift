/// What is written to a store, as the journal has it. Made by `Store.changes`.
///
/// ```swift
/// for try await change in try store.changes(prefix: "order/", from: last) {
///   try apply(change)
///   last = change.position
/// }
/// ```
///
/// - *What is seen*: every write whose record the journal still has, in its order, once: own ones, those of
///   other processes and of peers. Behind the position that it is read from, the journal has the latest
///   record of each key that was written since, and those older ones that were not compacted yet; a deleted
///   key's latest record is its delete. So who applies what it sees to what it had at that position has what
///   the store has, and then follows it write by write.
/// - *Not seen* is what changes no value: a beaten side of a conflict, a deadline that passes, keys of the
///   store's own, and what a peer has stamped too far ahead, until its time has come: it follows then. A
///   record that was found damaged at an opening is passed over (`verify` names it); the peer from which it
///   comes again brings a new one.
/// - *Transactions* are seen whole, what counts of them: their changes come one behind the other, after all
///   of them were committed, and `endsTransaction` marks the last one. They need not be durable by then.
/// - *Back-pressure*: nothing is read before it is asked for, some dozens of records at a time. A slow reader
///   holds up nobody and keeps nothing in memory: the journal keeps for it what counts.
/// - *The end*: `next` returns nil once the task is cancelled, at once. It throws `.closed` when the store is
///   closed, for there may have been more to see.
///
/// The task waits without a thread. Several iterators are independent of each other.
public struct Changes: AsyncSequence, Sendable {
  /// What it throws.
  public typealias Failure = StoreError

  let store: Store
  let range: KeyRange
  /// Behind which it begins.
  public let start: ChangePosition

  /// Begins behind `start`.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(self) }

  /// Goes through changes.
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
    ///   lost; `.changesLost` if deletes behind the position are not kept any more, which those at the last
    ///   `Limits.changesKept` positions always are; `.damaged` if records were damaged while the store was open.
    public mutating func next() async throws(StoreError) -> Change? { try await next(isolation: nil) }

    /// The same, for who is isolated to an actor.
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
  /// Who waits for the journal to grow is told by this.
  @inline(__always)
  func signalChange() {
    if control.hasWaiters { changeSignal.wake() }
  }

  /// Where the journal ends now: changes from there on are those that are not written yet.
  ///
  /// With `interval` and `relaxed` durability a loss of power may take the last writes, and with them the
  /// positions; who keeps a position elsewhere calls `sync` first.
  ///
  /// - Throws: `.damaged` if the journal does not say under which name this copy writes; `.closed`,
  ///   `.forked`.
  public func changePosition() throws(StoreError) -> ChangePosition {
    try reading { engine throws(StoreError) in
      let actor = try changeActor(engine)
      let stamp = try engine.write(at: engine.position)?.stamp ?? .zero
      return ChangePosition(
        actor: actor, position: engine.position, stamp: stamp,
        pending: engine.parked.isEmpty ? [] : try engine.parkedPositions())
    }
  }

  /// What is written to keys with a prefix; see `Changes`.
  ///
  /// - Parameters:
  ///   - prefix: of the keys; by default all.
  ///   - position: a change's, or `changePosition()`, or `.beginning`; by default what is written from now on.
  /// - Throws: `.closed`. Whether the position holds turns out with the first change.
  public func changes(prefix: String = "", from position: ChangePosition? = nil) throws(StoreError) -> Changes
  {
    try changes(in: KeyRange(prefix: prefix), from: position)
  }

  /// What is written to the keys in a range; see `Changes`.
  ///
  /// - Throws: `.closed`, as the same with a prefix.
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
