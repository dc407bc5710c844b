import Replication
import SyncStore

/// One side of a simulated connection: a real session, the real store's answers, the data in transit to the
/// other side, and the pending work of its two workers.
///
/// It has no clock: the driver decides when bytes arrive and when work is done.
final class SessionSide {
  /// Each half of a session waits only for its own work.
  enum Lane: Int, CaseIterable {
    case sending, receiving
  }

  let store: Store
  private let answers: SessionStore
  private var session: Session
  /// The outcome, once the session has ended.
  private(set) var outcome: SessionOutcome?
  private(set) var isPaused = false
  /// Bytes not yet received by the other side.
  private(set) var outgoing: [UInt8] = []
  /// Store actions, in order.
  private var work: [[SessionAction]] = [[], []]
  /// The running timers: delay in seconds from the request, and the number of the setting.
  private(set) var timers: [SessionTimer: (seconds: Int, setting: Int)] = [:]
  private var settings = 0
  /// Called with each store action just before it runs.
  var onWork: (SessionAction) throws -> Void = { _ in }

  /// Whether it speaks the first version of the protocol: without group keys, repair and chunks.
  private let isOld: Bool

  /// A new session.
  init(
    _ role: Session.Role, _ store: Store, peerName: String, peerRight: MemberRight = .readWrite,
    mode: SessionMode = .once, capabilities: SessionCapabilities = [], isOld: Bool = false,
    pingSeconds: Int = Limits.pingSeconds
  ) {
    self.store = store
    self.isOld = isOld
    answers = SessionStore(store)
    session = Session(
      role: role, peerName: peerName, peerRight: peerRight, mode: isOld ? .once : mode,
      capabilities: isOld ? [] : capabilities, pingSeconds: pingSeconds)
    perform(session.start())
  }

  /// The store's own error, if any.
  var failure: StoreError? { answers.failure }
  private var takenFailure: StoreError.Code?
  /// Number of completed full states.
  private(set) var fullStates = 0
  /// Number of those that were needed because the sender had purged what this copy did not cover.
  private(set) var returns = 0

  /// The store's own error, if any was not taken yet.
  func takeFailure() -> StoreError? {
    guard let failure, failure.code != takenFailure else { return nil }
    takenFailure = failure.code
    return failure
  }

  var figures: SessionFigures { session.figures }
  var isAtRest: Bool { session.isAtRest }
  private var followed: UInt64?

  /// Tells a live session that the journal has grown, if it has.
  func grow() -> Bool {
    guard outcome == nil, let position = followed, store.journalPosition > position else { return false }
    followed = nil
    handle(.journalGrown)
    return true
  }

  func handle(_ event: SessionEvent) {
    guard outcome == nil else { return }
    perform(session.handle(event))
  }

  /// Removes up to `count` bytes from those in transit.
  func take(_ count: Int) -> [UInt8] {
    let bytes = Array(outgoing.prefix(count))
    outgoing.removeFirst(bytes.count)
    handle(.sent(bytes.count))
    return bytes
  }

  /// Whether that lane has pending work.
  func hasWork(_ lane: Lane) -> Bool { !work[lane.rawValue].isEmpty }

  /// Performs the next piece of work of a lane.
  func doWork(_ lane: Lane) throws {
    guard hasWork(lane) else { return }
    let action = work[lane.rawValue].removeFirst()
    try onWork(action)
    var lacked = false
    if case .finishRound(let close) = action, close.isFull, let vector = try? store.versionVector() {
      lacked = !Oracle.Coverage(vector).has(Oracle.Coverage(close.floor))
    }
    guard var event = answers.answer(action, peer: session.peer?.summary.actor) else { return }
    if case .finishRound(let close) = action, close.isFull, case .roundFinished = event {
      fullStates += 1
      if lacked { returns += 1 }
    }
    if isOld, case .replica(var replica) = event {
      (replica.epochs, replica.repairs) = ([], false)
      event = .replica(replica)
    }
    handle(event)
  }

  private func perform(_ actions: [SessionAction]) {
    for action in actions {
      switch action {
      case .send(let bytes): outgoing += bytes
      case .pauseReading: isPaused = true
      case .resumeReading: isPaused = false
      case .close(let outcome):
        self.outcome = outcome
        timers = [:]
      case .setTimer(let timer, let seconds):
        settings += 1
        timers[timer] = (seconds, settings)
      case .cancelTimer(let timer): timers[timer] = nil
      case .followJournal(let position):
        answers.goLive()
        followed = position
      case .openRound, .nextBatch, .readBlob, .makeRecipe, .openLiveUpdate, .readGroupKeys:
        work[Lane.sending.rawValue].append(action)
      case .loadReplica, .loadCursor, .applyBatch, .applyLast, .finishRound, .mergeGroupKeys,
        .storeBlobRanges,
        .storeBlobs,
        .matchRecipe, .assembleBlob, .digestState, .digestBuckets, .fingerprint, .exchangeRecords, .repair,
        .stateKeys, .compareKeys, .stateHoldings, .decryptBlobRange,
        .becomeNewActor:
        work[Lane.receiving.rawValue].append(action)
      }
    }
  }
}

/// Two sides, stepped in seeded random order, without time.
enum SessionPair {
  /// Runs until nothing is left to do, or that many steps are taken; then the connection breaks.
  static func run(
    _ client: SessionSide, _ server: SessionSide, _ random: inout some RandomNumberGenerator,
    steps: Int = .max
  ) throws {
    try move(client, server, &random, steps: steps)
    client.handle(.disconnected)
    server.handle(.disconnected)
  }

  /// Runs until nothing is left to do, or that many steps are taken. The connection stays up.
  static func move(
    _ client: SessionSide, _ server: SessionSide, _ random: inout some RandomNumberGenerator,
    steps: Int = .max
  ) throws {
    var taken = 0
    while taken < steps {
      var choices: [() throws -> Void] = []
      for (from, to) in [(client, server), (server, client)] {
        if !from.outgoing.isEmpty, !to.isPaused {
          let count =
            Bool.random(using: &random)
            ? from.outgoing.count : Int.random(in: 1...from.outgoing.count, using: &random)
          choices.append { to.handle(.received(from.take(count))) }
        } else if from.outcome != nil, to.outcome == nil, from.outgoing.isEmpty {
          choices.append { to.handle(.disconnected) }
        }
        // Requested actions may still run after the end: a new actor must be adopted.
        for lane in SessionSide.Lane.allCases where from.hasWork(lane) {
          choices.append { try from.doWork(lane) }
        }
      }
      guard let choice = choices.randomElement(using: &random) else {
        if client.grow() || server.grow() { continue }
        return
      }
      try choice()
      taken += 1
    }
  }
}
