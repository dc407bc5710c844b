internal import SyncStore

/// The half of a session that sends rounds to the other side.
///
/// Invariants: at most one round is open; at most the negotiated number of batches is sent and not reported
/// durable; a round counts as delivered only on the other side's receipt; the vector that a live round
/// states, added to those of earlier rounds, is the vector of its snapshot.
struct SendingHalf {
  private enum State: Equatable {
    case idle
    case held(RoundReceiver)
    case opening
    case streaming
    case preparingBatch
    case awaitingReceipt
    case delivered
  }

  private var state = State.idle
  private let batchesInFlight: Int
  /// Whether the round is a live one.
  private var isLiveUpdate = false
  /// Whether the round brings keys that the receiver was missing.
  private(set) var isScopeExpansion = false
  /// State before that round, for reverting it.
  private var before: (close: RoundClose?, receipt: Receipt?, stated: VersionVector, floor: VersionVector)?
  private var close: RoundClose?
  private var nextIndex: UInt32 = 0
  private var unacknowledged: [UInt64] = []
  /// Batches of this session that the other side has reported durable.
  private(set) var acknowledgedBatches = 0
  /// The other side's last receipt.
  private(set) var receipt: Receipt?
  /// The own vector as stated in the rounds of this session.
  private var stated = VersionVector()
  private var statedFloor = VersionVector()
  /// Position up to which the journal holds nothing more for the other side.
  private(set) var scanned: UInt64 = 0

  /// Creates an idle half.
  init(batchesInFlight: Int = WireLimits.batchesInFlight) { self.batchesInFlight = batchesInFlight }

  /// Whether nothing was requested, or everything requested was delivered.
  var isQuiet: Bool { state == .idle || state == .delivered }
  /// Whether the other side received a round completely.
  var isDelivered: Bool { state == .delivered }
  /// The other side's cursor, once it has sent its receipt.
  var cursor: Cursor? {
    guard isDelivered, let close else { return nil }
    return Cursor(position: close.position, mark: close.mark, closed: true)
  }
  /// What the last live round added to the stated vector.
  private(set) var vectorDelta = VersionVector()
  /// The own coverage as stated in the last round.
  var covered: VersionVector? { close?.vector }

  /// Begins a round for a receiver, by its latest summary. While `isHeld` it waits: the other side's full
  /// state comes first (rule R8).
  mutating func open(for receiver: RoundReceiver, isHeld: Bool, _ port: inout SessionPort) throws(SessionEnd)
  {
    guard isQuiet else { throw .violation("a round was wanted while one is under way") }
    (state, nextIndex, isLiveUpdate) = (.held(receiver), 0, false)
    isScopeExpansion = receiver.missingScope != nil
    if isScopeExpansion, before == nil { before = (close, receipt, stated, statedFloor) }
    if !isHeld { release(&port) }
  }

  /// Begins the waiting round, if there is one.
  mutating func release(_ port: inout SessionPort) {
    guard case .held(let receiver) = state else { return }
    state = .opening
    port.actions.append(.openRound(for: receiver))
  }

  mutating func opened(records: UInt64, close: RoundClose, _ port: inout SessionPort) {
    precondition(state == .opening, "no round was being opened")
    self.close = close
    state = .streaming
    port.figures.announced.addSent(records)
    let kind: RoundBegin.Kind = close.isFull ? .full : isScopeExpansion ? .scopeExpansion : .increment
    port.send(
      .roundBegin(
        RoundBegin(mark: close.mark, kind: kind, position: close.position, records: records)))
    guard records == 0, !close.isFull else { return }
    state = .preparingBatch
    exhausted(&port)
  }

  /// Requests the next batch if there is room for it.
  mutating func pump(_ port: inout SessionPort) {
    guard state == .streaming, let close, unacknowledged.count < batchesInFlight,
      port.queued
        <= (port.isCrowded
          ? WireLimits.crowdedBytes : Limits.connectionBytes - WireLimits.encryptedBatchBytes)
    else { return }
    state = .preparingBatch
    port.actions.append(.nextBatch(mark: close.mark, index: nextIndex))
  }

  mutating func batchEncrypted(_ bytes: [UInt8], position: UInt64, records: Int, _ port: inout SessionPort) {
    precondition(state == .preparingBatch, "no batch was being prepared")
    state = .streaming
    send(bytes, position: position, records: records, &port)
  }

  private mutating func send(_ bytes: [UInt8], position: UInt64, records: Int, _ port: inout SessionPort) {
    precondition(bytes.count <= WireLimits.encryptedBatchBytes, "a batch beyond its bound")
    port.send(.batch(index: nextIndex, encrypted: bytes))
    nextIndex += 1
    unacknowledged.append(position)
    port.figures.sentRecords += records
    port.figures.batches += 1
  }

  mutating func exhausted(_ port: inout SessionPort) {
    precondition(state == .preparingBatch, "no batch was being prepared")
    guard let close else { return }
    state = .awaitingReceipt
    if isLiveUpdate { return port.send(.liveUpdateEnd(batches: nextIndex)) }
    port.send(
      .roundClose(
        RoundEnd(
          mark: close.mark, position: close.position, batches: nextIndex, vector: close.vector,
          floor: close.floor,
          horizon: close.horizon)))
    recordStated(close)
  }

  private mutating func recordStated(_ close: RoundClose) {
    // Usually the new vector is the greater one: sharing it saves memory, as the store and other sessions
    // hold it too.
    if close.vector.covers(stated) { stated = close.vector } else { stated.merge(close.vector) }
    if close.floor.covers(statedFloor) { statedFloor = close.floor } else { statedFloor.merge(close.floor) }
    scanned = close.position
  }

  mutating func acknowledged(_ position: UInt64) throws(SessionEnd) {
    guard unacknowledged.first == position else {
      throw .violation("position \(position) reported durable, which is not the next one sent")
    }
    unacknowledged.removeFirst()
    acknowledgedBatches += 1
  }

  mutating func received(_ receipt: Receipt) throws(SessionEnd) {
    guard state == .awaitingReceipt, !isLiveUpdate, let close, unacknowledged.isEmpty,
      receipt.received == close.position
    else {
      throw .violation("a receipt for what was not sent")
    }
    state = .delivered
    self.receipt = receipt
  }

  /// The keys of the last round do not count as held yet, so the receiver has merged nothing that it stated:
  /// further rounds continue after the one before it.
  mutating func revertScopeExpansion() {
    guard let before else { return }
    precondition(isDelivered, "a round is under way")
    (close, receipt, stated, statedFloor) = before
    (scanned, isScopeExpansion) = (close?.position ?? 0, false)
    self.before = nil
  }

  // MARK: Live updates

  /// Begins a live round after the last one.
  mutating func openLiveUpdate(covered: VersionVector, scope: KeyScope?, _ port: inout SessionPort) {
    precondition(isDelivered, "the other side's cursor is not known")
    port.actions.append(.openLiveUpdate(since: cursor, after: scanned, covered: covered, scope: scope))
    (state, nextIndex, isLiveUpdate) = (.opening, 0, true)
  }

  /// Nothing new is for the other side: its cursor does not move.
  mutating func liveUpdateWasEmpty(upTo position: UInt64) {
    precondition(state == .opening && isLiveUpdate, "no round was being opened")
    state = .delivered
    scanned = max(scanned, position)
  }

  mutating func opened(_ opening: LiveUpdateOpening, _ port: inout SessionPort) {
    precondition(state == .opening && isLiveUpdate, "no round was being opened")
    let close = opening.close
    self.close = close
    port.figures.announced.addSent(opening.records)
    vectorDelta = close.vector.beyond(stated)
    port.send(
      .liveUpdate(
        LiveUpdate(
          mark: close.mark, position: close.position, records: opening.records, vector: vectorDelta,
          floor: close.floor.beyond(statedFloor),
          horizon: close.horizon)))
    recordStated(close)
    if let first = opening.first {
      send(first.encrypted, position: first.position, records: first.records, &port)
    }
    state = opening.isWhole ? .preparingBatch : .streaming
    if opening.isWhole { exhausted(&port) }
  }

  mutating func received(liveUpdateUpTo position: UInt64) throws(SessionEnd) {
    guard state == .awaitingReceipt, isLiveUpdate, unacknowledged.isEmpty, position == close?.position else {
      throw .violation("a receipt for what was not sent")
    }
    state = .delivered
  }
}
