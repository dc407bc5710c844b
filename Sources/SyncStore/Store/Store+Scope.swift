/// Copies of some of the keys: what they hold, and how they come to hold more. docs/replication.md, Selective copies.
extension Store {
  /// Which keys this copy holds; nil for all.
  ///
  /// - Throws: `.closed`, `.forked`.
  public var scope: KeyScope? {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.scope } }
  }

  /// Is it to hold more than it holds, and has not got all of that yet?
  ///
  /// - Throws: `.closed`, `.forked`.
  public var isWidening: Bool {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.state.scopeExpansion != nil } }
  }

  /// Lets a new copy, which has received nothing yet and written nothing, hold some of the keys only. Durable on return.
  ///
  /// - Throws: `.outOfBounds` if there is something in it already: to hold less, a copy joins anew.
  package func narrow(to scope: KeyScope) throws(StoreError) {
    let (_, tail) = try append { composer throws(StoreError) in
      guard composer.state.vector.isEmpty, composer.state.sequence == 0, composer.state.cursors.isEmpty else {
        throw StoreError(
          .outOfBounds, "a copy that holds something already cannot hold less: join anew", path: path)
      }
      try composer.setLocal(StateKey.scope, scope.bytes)
    }
    try sync(upTo: tail)
  }

  /// Has this copy hold more keys, nil for all of them, once they have come. Durable on return. What it holds already is not
  /// sent again. False if it holds them already, and is to hold no more than that.
  @discardableResult
  package func widen(to wanted: KeyScope?) throws(StoreError) -> Bool {
    let before = try reading { engine throws(StoreError) in engine.state.scopeExpansion }
    if let before, before.scope != wanted { try discardPartialExpansion() }
    let (isWider, tail) = try append { composer throws(StoreError) in
      let state = composer.state
      guard wanted.covers(state.scope) else {
        throw StoreError(
          .outOfBounds, "a copy cannot give up keys that it holds: it is to hold all that it has, and more",
          path: path)
      }
      let isWider = wanted != state.scope
      if isWider, state.scopeExpansion?.scope != wanted || state.scopeExpansion == nil {
        try composer.setLocal(StateKey.scopeExpansion, ScopeExpansion(to: wanted).bytes)
      } else if !isWider, state.scopeExpansion != nil {
        try composer.setLocal(StateKey.scopeExpansion, nil)
      }
      return isWider
    }
    try sync(upTo: tail)
    return isWider
  }

  // MARK: Rounds

  /// The keys that a round brings, if this copy still is to hold them.
  func missingScope(_ widening: ScopeExpansion, state: ReplicaState) throws(StoreError) -> MissingScope {
    guard let held = state.scope, let present = state.scopeExpansion, present.scope == widening.scope else {
      throw scopeChangedError
    }
    return MissingScope(wanted: widening.scope, held: held)
  }

  /// Notes how far the keys that were lacking have come.
  func recordCursor(_ cursor: Cursor, of widening: ScopeExpansion, _ composer: inout TransactionBuilder)
    throws(StoreError)
  {
    var widening = widening
    widening.cursor = cursor
    try composer.setLocal(StateKey.scopeExpansion, widening.bytes)
  }

  /// Lets a session bring keys that this copy lacks, and no other one of this process before that has done so or is gone: two at
  /// once would give up what the other one has brought, again and again.
  package func claimScopeExpansion(for session: any AnyObject & Sendable) throws(StoreError) {
    try scopeExpansionClaim.withLock { claim throws(StoreError) in
      if let other = claim.session, other !== session {
        throw StoreError(
          .busy, "another session brings the keys that this copy lacks: wait for it", path: path)
      }
      claim.session = session
    }
  }

  /// The session has brought them.
  package func endScopeExpansion() { scopeExpansionClaim.withLock { $0.session = nil } }

  struct ScopeExpansionClaim {
    weak var session: (any AnyObject & Sendable)?
  }

  /// What has come of keys that were lacking is what this round has brought, or went on from. Another one may have begun
  /// meanwhile, with another peer or in another process, and given up what this one had brought: to close this one then would be
  /// to hold keys of which nothing is here.
  func requireOwn(
    _ widening: ScopeExpansion, in mark: RoundMark, behind: Cursor?, _ state: ReplicaState
  ) throws(StoreError) {
    let present = state.scopeExpansion?.cursor
    let isOwn =
      if let behind = behind ?? widening.cursor { present == behind } else {
        present == nil || present?.mark == mark
      }
    guard isOwn else { throw scopeChangedError }
  }

  /// A round of keys that were lacking goes on where an earlier one was left, or begins from nothing: what has come of them is
  /// given up then. Some of it may have been deleted since, and the deletes be purged.
  func prepareToApply(_ widening: ScopeExpansion?, in mark: RoundMark) throws(StoreError) {
    guard let widening, widening.cursor == nil else { return }
    let isUnderWay = try reading { engine throws(StoreError) in
      engine.state.scopeExpansion?.cursor?.mark == mark
    }
    if !isUnderWay { try discardPartialExpansion() }
  }

  /// Gives up what has come of keys that this copy does not hold yet. Should that be broken off, the next round does it again.
  private func discardPartialExpansion() throws(StoreError) {
    try append { composer throws(StoreError) in try composer.restartScopeExpansion() }
    let pin = SnapshotPin()
    let (places, parked) = try readingExclusively { engine, isAlone throws(StoreError) in
      engine.retainSegments(for: pin)
      return (try engine.locations(isExclusive: isAlone), engine.dueParked(upTo: .maximum))
    }
    try discard(places, isParked: false, pin)
    try discard(parked, isParked: true, pin)
  }

  private static let discardsPerStep = 256

  /// Gives up what is held, or waits, there under keys that this copy does not hold.
  private func discard(_ places: [Location], isParked: Bool, _ pin: SnapshotPin) throws(StoreError) {
    for start in stride(from: 0, to: places.count, by: Self.discardsPerStep) {
      let doomed = try reading { engine throws(StoreError) in
        try pin.check(path)
        var doomed: [TransactionBuilder.RecordToPurge] = []
        for place in places[start..<min(start + Self.discardsPerStep, places.count)] {
          guard let record = try? engine.record(at: place), !engine.state.scope.holds(record.key) else {
            continue
          }
          doomed.append(
            TransactionBuilder.RecordToPurge(
              key: record.key, version: record.version, isParked: isParked, hadValue: !record.isTombstone,
              held: isParked ? engine.readable(record.key) : nil))
        }
        return doomed
      }
      yieldEngineLock()
      guard !doomed.isEmpty else { continue }
      try append(limit: .max) { composer throws(StoreError) in try composer.dropDeadRecords(doomed) }
    }
  }

  /// Closes a round of keys that were lacking. The copy holds them from now on, if whoever sent them covers all that this copy does:
  /// of what it does not cover there may be something under those keys, which somebody else must bring. Not this copy's own writes:
  /// there are none under keys that it does not hold.
  func finishScopeExpansion(_ close: RoundClose, _ composer: inout TransactionBuilder) throws(StoreError) {
    guard let closing = close.scopeExpansion else { return }
    _ = try missingScope(closing, state: composer.state)
    let state = composer.state
    var others = state.vector
    if let actor = state.actor { others[actor] = 0 }
    guard state.isHealthy, close.vector.covers(others), state.vector.covers(close.floor) else {
      return try recordCursor(
        Cursor(position: close.position, mark: close.mark, closed: true), of: closing, &composer)
    }
    // What was purged there under those keys is purged here (rule R8).
    try composer.raiseFloor(to: close.floor, horizon: close.horizon)
    try composer.resetCursors()
    try composer.setLocal(StateKey.scope, closing.scope?.bytes)
    try composer.setLocal(StateKey.scopeExpansion, nil)
  }

  /// What a session brings is for a copy of the keys that this one held when the session began: of any other keys its sender has said
  /// nothing.
  func requireScope(_ scope: KeyScope?, state: ReplicaState) throws(StoreError) {
    guard scope == state.scope else { throw StoreError(.overtaken, Self.otherKeys, path: path) }
  }

  private var scopeChangedError: StoreError { StoreError(.busy, Self.otherKeys, path: path) }

  private static let otherKeys =
    "this copy holds other keys than when the session began, or is to hold others: begin another one"
}

extension TransactionBuilder {
  /// Goes back to the beginning with every sender. What lies before a cursor has come for the keys that were held; what it has for others
  /// this copy covers only if it has taken over what the sender covered there, which it has not in the middle of a round, nor from a copy
  /// of some keys. The marks stay: they tell a sender that was put back.
  mutating func resetCursors() throws(StoreError) {
    for (sender, cursor) in state.cursors.sorted(by: { $0.key < $1.key }) where cursor.position > 0 {
      let start = Cursor(position: 0, mark: cursor.mark, closed: false)
      try setLocal(StateKey.cursor(sender), ReplicaState.encode(start))
    }
  }
}

extension RoundClose {
  /// What a receiver in this state covers once the round is closed, beyond what it covered. Of a sender that holds only some keys only its
  /// own writes count, and these only if the receiver has all else that it has.
  func covered(by state: ReplicaState) -> VersionVector {
    guard isNarrow else { return vector }
    var rest = vector
    rest[sender] = 0
    guard state.vector.covers(rest), state.vector.covers(floor) else { return VersionVector() }
    return VersionVector([sender: vector[sender]])
  }
}

extension KeyScope {
  fileprivate var bytes: [UInt8] {
    var writer = ByteWriter()
    write(to: &writer)
    return writer.bytes
  }
}
