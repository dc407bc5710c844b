internal import SyncStore

/// The half of a session that gives rounds to the other side.
///
/// Invariants: at most one round is open; at most `WireLimits.batchesInFlight` batches are sent and not
/// reported durable; a round counts as given only on the other side's receipt.
struct SendingHalf {
  private enum State: Equatable {
    case idle
    case held(RoundReceiver)
    case opening
    case streaming
    case sealing
    case awaitingReceipt
    case given
  }

  private var state = State.idle
  private var close: RoundClose?
  private var nextIndex: UInt32 = 0
  private var unacknowledged: [UInt64] = []
  /// The other side's last receipt.
  private(set) var receipt: Receipt?

  /// Was nothing asked for, or all that was asked for given?
  var isQuiet: Bool { state == .idle || state == .given }
  /// Did the other side receive a round to its end?
  var isGiven: Bool { state == .given }
  /// The other side's cursor once it has given its receipt.
  var cursor: Cursor? {
    guard isGiven, let close else { return nil }
    return Cursor(position: close.position, mark: close.mark, closed: true)
  }

  /// Begins a round for a receiver as it last described itself. While `isHeld` it waits: the other side's full state comes first
  /// (rule R8).
  mutating func open(for receiver: RoundReceiver, isHeld: Bool, _ port: inout SessionPort) throws(SessionEnd)
  {
    guard isQuiet else { throw .violation("a round was wanted while one is under way") }
    (state, nextIndex) = (.held(receiver), 0)
    if !isHeld { release(&port) }
  }

  /// Begins the round that waits, if one does.
  mutating func release(_ port: inout SessionPort) {
    guard case .held(let receiver) = state else { return }
    state = .opening
    port.actions.append(.openRound(for: receiver))
  }

  mutating func opened(records: UInt64, close: RoundClose, _ port: inout SessionPort) {
    precondition(state == .opening, "no round was being opened")
    self.close = close
    state = .streaming
    port.figures.announcedSentRecords += records
    port.send(
      .roundBegin(
        RoundBegin(
          mark: close.mark, kind: close.isFull ? .full : .increment, position: close.position,
          records: records)))
  }

  /// Asks for the next batch if there is room for one.
  mutating func pump(_ port: inout SessionPort) {
    guard state == .streaming, let close, unacknowledged.count < WireLimits.batchesInFlight,
      port.queued <= Limits.connectionBytes - WireLimits.sealedBatchBytes
    else { return }
    state = .sealing
    port.actions.append(.nextBatch(mark: close.mark, index: nextIndex))
  }

  mutating func sealed(_ bytes: [UInt8], position: UInt64, records: Int, _ port: inout SessionPort) {
    precondition(state == .sealing, "no batch was being sealed")
    precondition(bytes.count <= WireLimits.sealedBatchBytes, "a batch beyond its bound")
    state = .streaming
    port.send(.batch(index: nextIndex, sealed: bytes))
    nextIndex += 1
    unacknowledged.append(position)
    port.figures.sentRecords += records
  }

  mutating func exhausted(_ port: inout SessionPort) {
    precondition(state == .sealing, "no batch was being sealed")
    guard let close else { return }
    state = .awaitingReceipt
    port.send(
      .roundClose(
        RoundEnd(
          mark: close.mark, position: close.position, batches: nextIndex, vector: close.vector,
          floor: close.floor,
          horizon: close.horizon)))
  }

  mutating func acknowledged(_ position: UInt64) throws(SessionEnd) {
    guard unacknowledged.first == position else {
      throw .violation("position \(position) reported durable, which is not the next one sent")
    }
    unacknowledged.removeFirst()
  }

  mutating func received(_ receipt: Receipt) throws(SessionEnd) {
    guard state == .awaitingReceipt, let close, unacknowledged.isEmpty, receipt.received == close.position
    else {
      throw .violation("a receipt for what was not sent")
    }
    state = .given
    self.receipt = receipt
  }
}
