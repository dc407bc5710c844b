internal import SyncStore

/// The session between the hellos and the goodbye: the two halves, the blobs, and the client's plan.
///
/// A syncing client makes a second pass if the first one moved anything: the records that each side received
/// lie after the other's cursor, and digests can be compared only when each cursor is at the other's end.
///
/// A live session then stays open: each half opens a round whenever its journal has grown
/// (`Exchange+Live.swift`).
struct Exchange {
  /// Progress of the client's plan.
  enum Progress: Equatable {
    /// Server: no plan, it answers.
    case answering
    /// The client's cursor for the server is being loaded.
    case loadingCursor
    case firstPass
    case secondPass
    /// The own state is being digested, for comparison with this receipt.
    case comparing(Receipt)
    /// All else is done; the keys of a wider scope are being transferred.
    case expandingScope
    /// In step with different digests: the differing keys are located and repaired (`Exchange+Repair.swift`).
    case repairing
    /// The plan is done, and the session stays open.
    case live
    /// No records are transferred; only requests of the own side are served (`Exchange+Tier.swift`).
    case controlOnly
    /// No records are transferred; the keys of both sides are compared (`Comparison`).
    case comparingKeys
  }

  var own: Hello
  var peer: Hello
  var progress: Progress
  var sending: SendingHalf?
  var receiving: ReceivingHalf?
  private var source = BlobSource()
  /// Whether the session goes live once the client's plan is done.
  let staysOpen: Bool
  var live = LiveState()
  var repair: Repair
  var tier = TierState()
  var comparison: Comparison
  private let mode: SessionMode
  /// Whether the other side has sent group keys.
  var hasGroupKeys = false
  var keyTransfer = KeyTransfer()
  /// The client's cursor for the server when the session began.
  private var ownCursor: Cursor?

  /// Creates the server's side, after it sent its hello.
  init(serverOf peer: Hello, own: Hello, missing: [BlobNeed], _ port: inout SessionPort) {
    (self.own, self.peer, progress, mode) = (own, peer, .answering, .once)
    comparison = Comparison(own: own)
    staysOpen = Self.agrees(own: own, peer: peer)
    repair = Repair(own: own, peer: peer)
    let most = Self.batchesInFlight(own: own, peer: peer)
    sending = own.sends ? SendingHalf(batchesInFlight: most) : nil
    receiving =
      own.receives
      ? ReceivingHalf(sender: peer.summary, own: own.summary, cursor: own.cursor, batchesInFlight: most) : nil
    sendMissingGroupKeys(&port)
    if knowsChunks { receiving?.enableRecipes() }
    receiving?.need(missing, &port)
    requestMissingKeys(&port)
  }

  /// Creates the client's side, after the server's hello arrived.
  init(
    client direction: SessionDirection, own: Hello, peer: Hello, missing: [BlobNeed],
    mode: SessionMode = .once,
    _ port: inout SessionPort
  ) {
    (self.own, self.peer, progress, self.mode) = (own, peer, .loadingCursor, mode)
    comparison = Comparison(own: own)
    staysOpen = Self.agrees(own: own, peer: peer)
    repair = Repair(own: own, peer: peer)
    let most = Self.batchesInFlight(own: own, peer: peer)
    sending = direction.sends ? SendingHalf(batchesInFlight: most) : nil
    receiving =
      direction.receives
      ? ReceivingHalf(sender: peer.summary, own: own.summary, cursor: nil, batchesInFlight: most) : nil
    sendMissingGroupKeys(&port)
    if knowsChunks { receiving?.enableRecipes() }
    receiving?.need(missing, &port)
    port.actions.append(.loadCursor(peer.summary.actor))
  }

  /// Whether this is the server's side, with nothing in flight.
  var isQuietServer: Bool {
    progress == .answering && source.isQuiet && (sending?.isQuiet ?? true) && (receiving?.isQuiet ?? true)
      && repair.isQuiet
  }

  /// Begins a round for the other side, by its latest summary.
  private mutating func open(since cursor: Cursor?, _ port: inout SessionPort) throws(SessionEnd) {
    let receipt = sending?.receipt
    let receiver = RoundReceiver(
      cursor: cursor, covered: receipt?.state.vector ?? peer.summary.vector, floor: peer.summary.floor,
      health: receipt == nil ? peer.summary.health : .healthy, scope: peer.summary.scope)
    let isHeld = receivesFirst && receiving?.hasReceivedRound == false
    try sending?.open(for: receiver, isHeld: isHeld, &port)
  }

  /// Whether this side receives the other's full state before it sends (rule R8).
  ///
  /// If both need it, the only side with unconfirmed state receives first, since it may be able to send its
  /// own only afterwards; otherwise the server does.
  private var receivesFirst: Bool {
    guard receiving != nil, own.summary.needsFullState(of: peer.summary) else { return false }
    if sending == nil || !peer.summary.needsFullState(of: own.summary) { return true }
    let isUnconfirmed = (own: own.summary.health == .unconfirmed, peer: peer.summary.health == .unconfirmed)
    return isUnconfirmed.own == isUnconfirmed.peer ? progress == .answering : isUnconfirmed.own
  }

  /// Whether no records and no blobs are in flight.
  var isAtRest: Bool {
    source.isQuiet && (sending?.isQuiet ?? true) && (receiving?.isQuiet ?? true)
      && (receiving?.fetch.isComplete ?? true) && repair.isQuiet && tier.isQuiet
  }

  /// Bytes that have arrived and are not stored.
  var unstoredBytes: Int { (receiving?.unstoredBytes ?? 0) + tier.encryptedBytes }

  // MARK: Messages

  mutating func accept(_ message: Message, _ port: inout SessionPort) throws(SessionEnd) {
    if repair.isRenewed, progress == .answering { throw renewed }
    switch message {
    case .want(let cursor):
      guard progress == .answering, sending != nil else {
        throw .violation("a round was wanted, but not agreed")
      }
      try open(since: cursor, &port)
    case .roundBegin(let begin):
      try requireReceiving()
      try receiving?.roundBegan(begin, &port)
    case .batch(let index, let encrypted):
      try requireReceiving()
      try receiving?.batchArrived(index: index, encrypted: encrypted, &port)
    case .roundClose(let end):
      try requireReceiving()
      guard receiving?.isInLiveUpdate == false else { throw .violation("the close of another kind of round") }
      try receiving?.closed(end, &port)
    case .blobRange(let range):
      try requireReceiving()
      if try acceptPart(range, &port) { return }
      try receiving?.arrived(range, &port)
    case .blobUnavailable(let hash):
      try requireReceiving()
      if lacksParts(hash, &port) { return }
      try receiving?.lacking(hash, &port)
    case .batchReceived(let position):
      try requireSending()
      try sending?.acknowledged(position)
    case .receipt(let receipt):
      try requireSending()
      try sending?.received(receipt)
      port.figures.receipt = receipt
      // Positions after the last ordinary round are not covered by a round of missing keys.
      if sending?.isScopeExpansion == false { port.figures.acknowledged = receipt.received }
    case .blobWant(let needs):
      try requireSending()
      try source.wanted(needs)
    case .recipeWant(let need):
      try requireSending()
      try requireChunks()
      try source.wantedRecipe(need)
    case .partsWant(let wanted):
      try requireSending()
      try requireChunks()
      try source.wanted(wanted)
    case .recipe(let recipe):
      try requireReceiving()
      try receiving?.arrived(recipe)
    case .recipeUnavailable(let hash):
      try requireReceiving()
      try receiving?.recipeLacking(hash)
    case .live: try goLive(&port)
    case .liveUpdate(let update):
      try requireLive()
      try requireReceiving()
      try receiving?.liveUpdateBegan(update, &port)
      try mergePeerCoverage(statedBy: update)
    case .liveUpdateEnd(let batches):
      try requireReceiving()
      try receiving?.liveUpdateEnded(batches: batches, &port)
    case .liveUpdateReceived(let position, _):
      try requireSending()
      try liveUpdateReceived(position, &port)
    case .groupKeys(let text): try groupKeysReceived(text, &port)
    case .holdingsWant(let wanted): try wasAsked(wanted, &port)
    case .holdings(let stated): try heard(stated, &port)
    case .stateClaim, .digestGroups, .groupBuckets, .bucketPrints, .differingRecords, .repaired, .keysWant,
      .keyStates:
      try acceptRepair(message, &port)
    case .scopeWant(let want): try keysRequested(want, &port)
    case .hello, .foreignHello, .ping, .pong, .goodbye, .refuse, .joinRequest, .joinAccept:
      throw .violation("a message out of place")
    }
  }

  /// Whether blobs are assembled from chunks.
  var knowsChunks: Bool {
    own.compatibleFeatures & peer.compatibleFeatures & SessionFeature.chunks != 0
  }

  private func requireChunks() throws(SessionEnd) {
    guard knowsChunks else { throw .violation("chunks of blobs were not agreed") }
  }

  func requireReceiving() throws(SessionEnd) {
    guard receiving != nil else { throw .violation("something was sent, but sending was not agreed") }
  }

  func requireSending() throws(SessionEnd) {
    guard sending != nil else { throw .violation("something was received, but sending was not agreed") }
  }

  // MARK: Store results

  mutating func answered(_ event: SessionEvent, _ port: inout SessionPort) throws(SessionEnd) {
    switch event {
    case .cursor(let cursor): try loaded(cursor, &port)
    case .roundOpened(let records, let close): sending?.opened(records: records, close: close, &port)
    case .batchEncrypted(let encrypted, let position, let records):
      sending?.batchEncrypted(encrypted, position: position, records: records, &port)
    case .roundExhausted: sending?.exhausted(&port)
    case .batchApplied(let position, let records, let missing):
      try receiving?.applied(to: position, records: records, missing: missing, &port)
    case .roundFinished: receiving?.finished(&port)
    case .keysStillMissing:
      keyTransfer.areKeysStillMissing = true
      receiving?.finished(&port)
    case .blobRead(let hash, let offset, let encrypted):
      source.blobRead(hash, offset: offset, encrypted: encrypted, &port)
    case .blobUnavailable(let hash): source.lacks(hash, &port)
    case .blobStored(let hash, let held, let isComplete):
      reportProgress(hash, held: held, &port)
      receiving?.stored(hash, held: held, isComplete: isComplete, &port)
    case .blobRejected(let hash): receiving?.rejected(hash, &port)
    case .blobsStored(let outcomes): receiving?.stored(whole: outcomes, &port)
    case .recipeMade(let recipe): source.made(recipe, &port)
    case .recipeUnavailable(let hash): source.cannotMake(hash, &port)
    case .recipeMatched(let hash, let end, let missing):
      receiving?.matched(hash, end: end, missing: missing, &port)
    case .stateDigested(let state):
      if case .comparing(let receipt) = progress {
        repair.position = state.position
        if isDifferent(state, from: receipt) { return try beginRepair(at: state.at, &port) }
        try conclude(&port)
      } else if live.isDigesting {
        stateDigestedAtRest(state, &port)
      } else {
        repair.position = state.position
        try endIfScopeExpanded()
        receiving?.stateDigested(state, &port)
      }
    case .journalGrown: live.hasGrown = true
    case .liveUpdateOpened(let update): try liveUpdateOpened(update, &port)
    case .liveUpdateEmpty(let position): liveUpdateWasEmpty(upTo: position, &port)
    case .groupKeys(let text): port.send(.groupKeys(text))
    case .holdingsStated(let stated): state(stated, &port)
    case .blobRangeDecrypted(let hash, let offset, let bytes):
      try rangeDecrypted(hash, offset: offset, bytes: bytes, &port)
    case .bucketsDigested, .fingerprinted, .recordsExchanged, .repaired, .keysStated, .keysCompared:
      try answeredRepair(event, &port)
    case .received, .sent, .timer, .disconnected, .stop, .refuse, .probe, .replica, .rolledBack, .failed,
      .stale, .wanted,
      .asked, .wantedParts:
      preconditionFailure("not an answer: \(event)")
    }
  }

  /// Sends what there is room for, and takes the client's next step once the last is done.
  mutating func pump(_ port: inout SessionPort) throws(SessionEnd) {
    receiving?.pump(&port)
    notifyFetched(&port)
    if receiving?.hasReceivedRound ?? true { sending?.release(&port) }
    openLiveUpdate(&port)
    sending?.pump(&port)
    source.pump(&port)
    switch progress {
    case .answering, .loadingCursor, .comparing, .repairing, .live, .controlOnly, .comparingKeys: return
    case .firstPass, .secondPass:
      guard sending?.isDelivered ?? true, receiving?.isReceived ?? true, source.isQuiet else { return }
      try passed(&port)
    case .expandingScope:
      guard receiving?.isReceived ?? true, sending?.isDelivered ?? true, source.isQuiet else { return }
      try scopeExpanded(&port)
    }
  }

  // MARK: Client plan

  private mutating func loaded(_ cursor: Cursor?, _ port: inout SessionPort) throws(SessionEnd) {
    precondition(progress == .loadingCursor, "no cursor was being loaded")
    progress = .firstPass
    ownCursor = cursor
    receiving?.cursor = cursor
    switch mode {
    case .once, .live: break
    case .controlOnly: return progress = .controlOnly
    case .comparison: return try beginComparison(&port)
    }
    if isAlreadyInSync {
      recordImplicitReceipt(&port)
      return try conclude(&port)
    }
    if receiving != nil { port.send(.want(cursor)) }
    try open(since: peer.cursor, &port)
  }

  /// Whether the hellos show that there is nothing to do. Everything in a hello is durable, so it serves as a
  /// receipt.
  private var isAlreadyInSync: Bool {
    let (here, there) = (own.summary, peer.summary)
    guard !staysOpen, own.summary.scopeExpansion == nil, !serverRequestsKeys, own.epochs == peer.epochs,
      receiving?.fetch.isComplete ?? true,
      sending == nil || peer.compatibleFeatures & SessionFeature.isComplete != 0,
      !here.needsFullState(of: there), !there.needsFullState(of: here)
    else { return false }
    guard sending == nil || peerCursorIsAtEnd && there.vector.covers(here.vector),
      receiving == nil || ownCursorIsAtEnd && here.vector.covers(there.vector)
    else { return false }
    return !helloesDiffer
  }

  /// Whether the other side's cursor was at the end of the own journal when the session began.
  private var peerCursorIsAtEnd: Bool {
    peer.cursor.map { $0.closed && $0.position == own.summary.position } ?? false
  }
  /// Whether the own cursor was at the end of the other side's journal when the session began.
  private var ownCursorIsAtEnd: Bool {
    ownCursor.map { $0.closed && $0.position == peer.summary.position } ?? false
  }

  private func recordImplicitReceipt(_ port: inout SessionPort) {
    guard sending != nil, let cursor = peer.cursor else { return }
    let state = DigestedState(
      position: peer.summary.position, vector: peer.summary.vector, digest: peer.digest,
      at: own.wallMilliseconds)
    port.figures.receipt = Receipt(received: cursor.position, state: state, missingBlobs: 0)
    port.figures.acknowledged = cursor.position
  }

  private mutating func passed(_ port: inout SessionPort) throws(SessionEnd) {
    let isMoved = port.figures.batches > 0
    if progress == .firstPass, isMoved, sending != nil, receiving != nil {
      return try pass(.secondPass, &port)
    }
    if requestScopeExpansion(&port) { return }
    if try sendRequestedKeys(&port) { return }
    try compare(&port)
  }

  mutating func compare(_ port: inout SessionPort) throws(SessionEnd) {
    if let receipt = sending?.receipt {
      progress = .comparing(receipt)
      port.actions.append(.digestState(at: receipt.state.at))
    } else {
      if repair.passes == 0, helloesDiffer { return try beginRepair(at: own.wallMilliseconds, &port) }
      try conclude(&port)
    }
  }

  /// Runs the rounds once more, from the cursors reached.
  mutating func pass(_ next: Progress, _ port: inout SessionPort) throws(SessionEnd) {
    progress = next
    if receiving != nil {
      receiving?.expectAnother()
      port.send(.want(receiving?.cursor))
    }
    try open(since: sending?.cursor, &port)
  }

  /// Whether two copies in step, with equal vectors and each cursor at the other's end, have different
  /// digests (F61).
  private func isDifferent(_ state: DigestedState, from receipt: Receipt) -> Bool {
    let cursor = receiving?.cursor ?? ownCursor
    guard areComplete, state.vector == receipt.state.vector, receipt.received == state.position,
      let cursor, cursor.closed, cursor.position == receipt.state.position, state.at == receipt.state.at
    else { return false }
    return state.digest != receipt.state.digest
  }

  private var helloesDiffer: Bool {
    areComplete && peerCursorIsAtEnd && ownCursorIsAtEnd && own.summary.vector == peer.summary.vector
      && own.digest != peer.digest
  }

  private mutating func conclude(_ port: inout SessionPort) throws(SessionEnd) {
    if staysOpen {
      progress = .live
      port.send(.live)
      return beginLive(&port)
    }
    port.send(.goodbye)
    let lacking = receiving?.fetch.lacking ?? 0
    let lackingThere = sending?.receipt?.missingBlobs ?? 0
    guard lacking == 0, lackingThere == 0 else {
      let text =
        lacking > 0
        ? "\(lacking) large values did not come, \(port.peerName) does not have them: another member may"
        : "\(lackingThere) large values are missing at \(port.peerName) and here: another member may have them"
      throw SessionEnd(outcome: .failed(.unavailable, text))
    }
    throw SessionEnd(outcome: .done)
  }
}
