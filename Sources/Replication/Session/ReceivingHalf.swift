internal import SyncStore

/// The half of a session that receives rounds.
///
/// Invariants: batches are applied in order, each number of the round exactly once (F66, F67), the next ones
/// being decrypted while one becomes durable; positions rise (in a full state they do not fall) and stay
/// within the round; the round is closed only after its last batch is durable; the receipt is sent only after
/// the close is durable and every blob has arrived or is known to be unavailable, in a live session without
/// waiting for blobs.
struct ReceivingHalf {
  private enum State: Equatable {
    case idle
    case receiving(RoundBegin)
    case finishing
    case fetching
    case digesting
    case received
  }

  private var state = State.idle {
    didSet { if state == .received { hasReceivedRound = true } }
  }
  /// Whether any round of the session was received completely.
  private(set) var hasReceivedRound = false
  private var sender: Sender
  /// The scope expansion of the current round, if it brings missing keys.
  private var scopeExpansion: ScopeExpansion?
  /// The scope expansion of a later round.
  private var nextScopeExpansion: ScopeExpansion?
  /// The state of this copy when the session began. It may cover more by now, never less.
  private var own: ReplicaSummary
  private var batches: Batches
  private var end: RoundEnd?
  /// The live round being received, as its end will state it.
  private var liveUpdate: RoundEnd?
  /// Whether an ordinary round is still expected.
  private var expectsRound = true
  private(set) var fetch: BlobFetch
  /// How far the sender's journal has been received.
  var cursor: Cursor?

  init(
    sender: ReplicaSummary, own: ReplicaSummary, cursor: Cursor?,
    batchesInFlight: Int = WireLimits.batchesInFlight
  ) {
    batches = Batches(most: batchesInFlight)
    self.sender = Sender(sender)
    (self.own, self.cursor) = (own, cursor)
    fetch = BlobFetch()
  }

  /// Whether no round is in flight.
  var isQuiet: Bool { state == .idle || state == .received }
  /// Whether a round was received completely and the receipt sent.
  var isReceived: Bool { state == .received }
  /// Whether a live round is in flight.
  var isInLiveUpdate: Bool { liveUpdate != nil }
  /// Whether the round in flight brings missing keys.
  var isScopeExpansion: Bool { scopeExpansion != nil && !isQuiet }
  /// Whether the state for the receipt is being digested.
  var isDigesting: Bool { state == .digesting }
  /// Bytes that have arrived and are not stored.
  var unstoredBytes: Int { batches.arrivedBytes + fetch.unstoredBytes }

  /// Another round will be requested.
  mutating func expectAnother() { (state, expectsRound) = (.idle, true) }

  /// A round of missing keys will be requested.
  mutating func expectScopeExpansion(_ expansion: ScopeExpansion) {
    self.scopeExpansion = expansion
    expectAnother()
  }

  /// A round of missing keys was requested; it follows all other rounds.
  mutating func expectLaterScopeExpansion(_ expansion: ScopeExpansion) { nextScopeExpansion = expansion }

  mutating func roundBegan(_ begin: RoundBegin, _ port: inout SessionPort) throws(SessionEnd) {
    guard isQuiet else { throw .violation("a round begins inside a round") }
    if begin.kind == .scopeExpansion, scopeExpansion == nil, let nextScopeExpansion, hasReceivedRound {
      scopeExpansion = nextScopeExpansion
      self.nextScopeExpansion = nil
    }
    guard (begin.kind == .scopeExpansion) == (scopeExpansion != nil), !sender.isNarrow || begin.kind != .full
    else {
      throw .violation("another kind of round was wanted")
    }
    batches.beginRound()
    (end, liveUpdate) = (nil, nil)
    state = .receiving(begin)
    port.figures.announced.addReceived(begin.records)
  }

  mutating func batchArrived(index: UInt32, encrypted: [UInt8], _ port: inout SessionPort) throws(SessionEnd)
  {
    guard case .receiving = state, end == nil else { throw .violation("a batch outside a round") }
    try batches.arrived(index, encrypted)
  }

  mutating func closed(_ end: RoundEnd, _ port: inout SessionPort) throws(SessionEnd) {
    guard case .receiving(let begin) = state, self.end == nil else {
      throw .violation("a close outside a round")
    }
    guard end.mark == begin.mark, end.position == begin.position, end.batches == batches.nextArrival
    else {
      throw .violation("the close does not fit its round")
    }
    try sender.addStated(by: end)
    self.end = end
  }

  /// Takes the next step that need not wait.
  mutating func pump(_ port: inout SessionPort) {
    fetch.pump(&port)
    switch state {
    case .receiving(let begin):
      while batches.hasRoom(isCrowded: port.isCrowded) { apply(begin, &port) }
      if batches.areApplied, let end { finish(end, isFull: begin.kind == .full, &port) }
    case .fetching:
      guard fetch.isComplete else { return }
      state = .digesting
      port.actions.append(.digestState(at: nil))
    case .idle, .finishing, .digesting, .received: return
    }
  }

  private mutating func apply(_ begin: RoundBegin, _ port: inout SessionPort) {
    let isClose = end != nil && begin.kind == .increment
    let (index, encrypted, isLast) = batches.beginApplying(closing: isClose)
    if let end, isClose, isLast {
      port.actions.append(
        .applyLast(
          sender: sender.actor, mark: begin.mark, index: index, encrypted: encrypted, close: close(end)))
    } else {
      port.actions.append(
        .applyBatch(
          sender: sender.actor, mark: begin.mark, index: index, encrypted: encrypted,
          isFull: begin.kind == .full, expansion: scopeExpansion))
    }
  }

  private mutating func finish(_ end: RoundEnd, isFull: Bool, _ port: inout SessionPort) {
    let reached = Cursor(position: end.position, mark: end.mark, closed: true)
    // An empty round needs no durable step: its state is durable already.
    if !isFull, liveUpdate == nil, scopeExpansion == nil, end.batches == 0, cursor == reached,
      own.vector.covers(end.vector),
      own.floor.covers(end.floor),
      own.horizon >= end.horizon
    {
      state = .fetching
      return pump(&port)
    }
    state = .finishing
    port.actions.append(.finishRound(close(end, isFull: isFull)))
  }

  private func close(_ end: RoundEnd, isFull: Bool = false) -> RoundClose {
    let (vector, floor) = sender.isNarrow ? sender.stated : (end.vector, end.floor)
    var close = RoundClose(
      sender: sender.actor, mark: end.mark, position: end.position, vector: vector, floor: floor,
      horizon: end.horizon, kind: isFull ? .fullState : sender.isNarrow ? .narrowDelta : .delta)
    (close.scope, close.scopeExpansion) = (own.scope, scopeExpansion)
    return close
  }

  mutating func applied(
    to position: UInt64, records: Int, missing: [BlobNeed], _ port: inout SessionPort
  ) throws(SessionEnd) {
    precondition(batches.areBeingApplied, "no batch was being applied")
    guard case .receiving(let begin) = state else { return }
    try batches.applied(to: position, in: begin)
    if scopeExpansion == nil { cursor = Cursor(position: position, mark: begin.mark, closed: false) }
    port.figures.receivedRecords += records
    port.figures.batches += 1
    port.send(.batchReceived(position: position))
    fetch.need(missing)
    if batches.endClosing() {
      state = .finishing
      finished(&port)
    } else {
      pump(&port)
    }
  }

  mutating func finished(_ port: inout SessionPort) {
    precondition(state == .finishing, "no round was being finished")
    if let end, scopeExpansion == nil {
      cursor = Cursor(position: end.position, mark: end.mark, closed: true)
    }
    if let liveUpdate {
      // Records do not wait for missing blobs.
      self.liveUpdate = nil
      state = expectsRound ? .idle : .received
      fetch.pump(&port)
      let missing = UInt64(fetch.lacking + fetch.count)
      return port.send(.liveUpdateReceived(position: liveUpdate.position, missingBlobs: missing))
    }
    state = .fetching
    pump(&port)
  }

  mutating func stateDigested(_ digested: DigestedState, _ port: inout SessionPort) {
    guard let end else { return }
    (state, expectsRound, scopeExpansion) = (.received, false, nil)
    port.send(
      .receipt(
        Receipt(received: end.position, state: digested, missingBlobs: UInt64(fetch.lacking))))
  }

  // MARK: Live updates

  /// The coverage that the sender stated in its last ordinary round.
  var coveredBySender: VersionVector? { end?.vector }

  /// The session goes live: frees what only catching up needed. Vectors are large where there are many
  /// members.
  mutating func goLive() {
    own.vector = VersionVector()
    (end, nextScopeExpansion) = (nil, nil)
  }

  mutating func liveUpdateBegan(_ update: LiveUpdate, _ port: inout SessionPort) throws(SessionEnd) {
    guard isQuiet else { throw .violation("a round begins inside a round") }
    batches.beginRound()
    end = nil
    self.liveUpdate = RoundEnd(
      mark: update.mark, position: update.position, batches: 0, vector: update.vector, floor: update.floor,
      horizon: update.horizon)
    state = .receiving(RoundBegin(mark: update.mark, position: update.position, records: update.records))
    port.figures.announced.addReceived(update.records)
  }

  mutating func liveUpdateEnded(batches: UInt32, _ port: inout SessionPort) throws(SessionEnd) {
    guard var end = liveUpdate else { throw .violation("an end outside a round") }
    end.batches = batches
    try closed(end, &port)
  }

  // MARK: Blobs

  mutating func need(_ blobs: [BlobNeed], _ port: inout SessionPort) {
    fetch.need(blobs)
    fetch.pump(&port)
  }

  /// Allows blobs to be assembled from chunks.
  mutating func enableRecipes() { fetch.takesRecipes = true }

  mutating func arrived(_ recipe: EncryptedRecipe) throws(SessionEnd) { try fetch.arrived(recipe) }

  mutating func recipeLacking(_ hash: BlobHash) throws(SessionEnd) { try fetch.recipeLacking(hash) }

  mutating func matched(_ hash: BlobHash, end: UInt64, missing: [BlobPart], _ port: inout SessionPort) {
    fetch.matched(hash, end: end, missing: missing, &port)
  }

  mutating func want(_ blobs: [BlobNeed], _ port: inout SessionPort) {
    fetch.want(blobs)
    pump(&port)
  }

  mutating func drainFinishedRequests() -> [(hash: BlobHash, isHere: Bool)] {
    fetch.drainFinishedRequests()
  }

  mutating func arrived(_ range: BlobRange, _ port: inout SessionPort) throws(SessionEnd) {
    try fetch.arrived(range)
  }

  mutating func lacking(_ hash: BlobHash, _ port: inout SessionPort) throws(SessionEnd) {
    try fetch.lacking(hash)
    pump(&port)
  }

  mutating func stored(
    _ hash: BlobHash, held: UInt64, isComplete: Bool, _ port: inout SessionPort
  ) {
    fetch.stored(hash, held: held, isComplete: isComplete, &port)
    pump(&port)
  }

  mutating func stored(whole outcomes: [Bool], _ port: inout SessionPort) {
    fetch.stored(whole: outcomes, &port)
    pump(&port)
  }

  mutating func rejected(_ hash: BlobHash, _ port: inout SessionPort) {
    fetch.rejected(hash)
    pump(&port)
  }
}

extension ReceivingHalf {
  /// The sender, and what it has stated about itself.
  private struct Sender {
    let actor: ActorID
    /// Whether it holds only some keys. Then its stated coverage is remembered.
    let isNarrow: Bool
    private(set) var stated = (vector: VersionVector(), floor: VersionVector())

    init(_ summary: ReplicaSummary) { (actor, isNarrow) = (summary.actor, summary.scope != nil) }

    /// Adds the coverage at the end of a round, if it is needed.
    mutating func addStated(by end: RoundEnd) throws(SessionEnd) {
      guard isNarrow else { return }
      // A live round states only additions: the sum tells whether this copy holds all that the sender holds.
      stated.vector.merge(end.vector)
      stated.floor.merge(end.floor)
      // No store merges it, so no store would refuse an oversized vector.
      guard max(stated.vector.count, stated.floor.count) <= Limits.actors else {
        throw .violation("its rounds name more than \(Limits.actors) actors")
      }
    }
  }

  /// The batches of a round, from their arrival until they are durable.
  ///
  /// Invariants: each number of the round arrives and is applied exactly once, in order; at most the agreed
  /// number is not durable; positions rise (in a full state they do not fall) and stay within the round.
  private struct Batches {
    /// Batches that may be decrypted and appended while one becomes durable; one if the node is crowded.
    private static let mostApplying: UInt32 = 4

    /// How many may have arrived and not be durable.
    private let most: Int
    private var arrived: [[UInt8]] = []
    /// Number of batches being applied.
    private var applying: UInt32 = 0
    /// Whether the close is part of what is being applied.
    private var isClosing = false
    private(set) var nextArrival: UInt32 = 0
    private var nextApplied: UInt32 = 0
    private var position: UInt64 = 0

    init(most: Int) { self.most = most }

    /// Bytes that have arrived and are not being applied.
    var arrivedBytes: Int { arrived.reduce(0) { $0 + $1.count } }
    var areBeingApplied: Bool { applying > 0 }
    /// Whether all that have arrived are durable.
    var areApplied: Bool { arrived.isEmpty && applying == 0 }

    /// Whether another batch has arrived that can be applied now.
    func hasRoom(isCrowded: Bool) -> Bool {
      !arrived.isEmpty && applying < (isCrowded ? 1 : Self.mostApplying)
    }

    mutating func beginRound() { (nextArrival, nextApplied, position) = (0, 0, 0) }

    mutating func arrived(_ index: UInt32, _ encrypted: [UInt8]) throws(SessionEnd) {
      guard index == nextArrival else { throw .violation("batch \(index) where \(nextArrival) must come") }
      guard nextArrival - nextApplied < UInt32(most) else {
        throw .violation("more than \(most) batches unconfirmed")
      }
      nextArrival += 1
      // If the close arrived together with the batch, both are one durable step: the session pumps after
      // reading on.
      arrived.append(encrypted)
    }

    /// Takes the next batch to apply it. With `closing`, the last one that has arrived closes the round.
    mutating func beginApplying(closing: Bool) -> (index: UInt32, encrypted: [UInt8], isLast: Bool) {
      let (encrypted, index) = (arrived.removeFirst(), nextApplied + applying)
      applying += 1
      let isLast = arrived.isEmpty
      if closing, isLast { isClosing = true }
      return (index, encrypted, isLast)
    }

    /// The next batch is durable, and reaches `position`.
    mutating func applied(to position: UInt64, in round: RoundBegin) throws(SessionEnd) {
      let isLater = round.kind == .full ? position >= self.position : position > self.position
      guard isLater, position <= round.position else {
        throw .violation("a batch reaches position \(position), outside its round")
      }
      applying -= 1
      nextApplied += 1
      self.position = position
    }

    /// Whether the close has become durable with the last batch. True is returned once.
    mutating func endClosing() -> Bool {
      guard isClosing, applying == 0 else { return false }
      isClosing = false
      return true
    }
  }
}
