internal import SyncStore

/// Fetches the large values that readers wait for, from any member that has them, and asks members what they
/// hold. Confined to its loop's thread.
///
/// It uses live sessions first; where they do not help, it dials a control-only session, which moves no
/// records. That session lingers for the next read.
///
/// Invariants: a value is asked of one member at a time, and of each member once per request, except for
/// values fetched by `BlobSwarm`; every request ends, with the value or with each member's reason.
final class BlobFetchCoordinator {
  typealias Completion = (Result<Void, ReplicationError>) -> Void

  struct Request {
    let blob: BlobReference
    var completions: [Completion] = []
    var progress: [(UInt64, UInt64) -> Void] = []
    /// Members asked so far, including `current`, the one being asked.
    var tried: Set<DeviceID> = []
    var current: DeviceID?
    /// The session in which `current` is asked: its device may have another one.
    var driver: SessionDriver?
    /// Detects that the asked member has stalled.
    var watch = StallWatch()
    /// Known holders, asked first.
    var holders: [[UInt8]] = []
    /// Reasons of failed attempts, for the error message.
    var failures: [String] = []
    /// Members that are not connected and were not dialled yet for this request.
    var routes: [Route.Known]?
    /// Whether a swarm was tried; whether the request is queued for one.
    var hasSwarmed = false, isQueued = false
    /// Whether local state or routes are being looked up.
    var isResolving = false
  }

  /// Milliseconds for which an idle control-only session stays open.
  private static let lingerMilliseconds = 5_000
  /// Milliseconds that members have to state their holdings: they read all of it.
  static let answerMilliseconds = 60_000

  unowned let core: NodeCore
  var context: NodeContext { core.context }
  var loop: EventLoop { core.loop }
  var requests: [BlobHash: Request] = [:]
  var swarms: [BlobHash: BlobSwarm] = [:]
  /// Values that a swarm fetches, or may be about to; and those queued for a slot.
  var activeSwarms: Set<BlobHash> = []
  var swarmQueue: [BlobHash] = []
  private var controlSessions: [DeviceID: SessionDriver] = [:]
  /// Peers being dialled, with the callbacks that wait.
  private var dialling: StringDictionary<[(ReplicationError?) -> Void]> = [:]
  /// The names of the peers whose control-only sessions have begun and cannot be asked yet.
  private var opening: [ObjectIdentifier: String] = [:]
  var questions: [UInt64: Question] = [:]
  var lastQuestion: UInt64 = 0
  private var lingerTimer: UInt64?
  private var stallTimer: UInt64?
  /// Trims that keep sessions open.
  var sessionHolds = 0
  /// Values of at least this many bytes are fetched by a swarm; tests lower it.
  var leastSwarmBytes = BlobSwarm.leastBytes
  var isStopped = false

  struct Question {
    var waiting: Set<DeviceID>
    var answers: [DeviceID: HoldingsStated.Statement] = [:]
    var timer: UInt64?
    let completion: ([DeviceID: HoldingsStated.Statement]) -> Void
  }

  init(_ core: NodeCore) { self.core = core }

  /// Ends all requests.
  func stop() {
    isStopped = true
    swarmQueue = []
    for hash in Array(requests.keys) {
      finish(hash, result: .failure(ReplicationError(.unavailable, "this node shuts down: start it again")))
    }
    for number in Array(questions.keys) { conclude(number) }
    for driver in Array(controlSessions.values) { driver.stop() }
  }

  // MARK: Fetching

  /// Fetches a value unless it is here. Calls `completion` once, on the loop.
  func fetch(
    _ blob: BlobReference, progress: ((UInt64, UInt64) -> Void)? = nil, completion: @escaping Completion
  ) {
    guard !isStopped else {
      return completion(.failure(ReplicationError(.unavailable, "this node shuts down: start it again")))
    }
    let isNew = requests[blob.hash] == nil
    requests[blob.hash, default: Request(blob: blob)].completions.append(completion)
    if let progress { requests[blob.hash]?.progress.append(progress) }
    guard isNew else { return }
    keepTicking()
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    context.workers.later {
      let holders = (try? context.store.blobs.holders(of: blob.hash)) ?? []
      loop.execute {
        this.value.requests[blob.hash]?.holders = holders
        this.value.advance(blob.hash)
      }
    }
  }

  /// Asks the next member for the value.
  func advance(_ hash: BlobHash) {
    guard let request = requests[hash], request.current == nil, !request.isResolving, swarms[hash] == nil
    else {
      return
    }
    if !request.hasSwarmed, request.blob.size >= leastSwarmBytes { return prepareSwarm(request.blob) }
    let open = fetching().filter { !request.tried.contains($0.device) }
    let chosen = open.min { one, other in
      let (first, second) = (rank(one.device, for: request), rank(other.device, for: request))
      return first == second ? load(one.device) < load(other.device) : first < second
    }
    guard let chosen else { return dialNext(hash) }
    requests[hash]?.isResolving = true
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    let (blob, device, driver) = (request.blob, chosen.device, LoopBound(chosen.driver, to: loop))
    context.workers.later {
      let need = Result { () throws(StoreError) in try SessionStore.need(blob, in: context.store) }
      loop.execute { this.value.needResolved(hash, need: need, device: device, driver: driver.value) }
    }
  }

  // MARK: Sequential fetching

  private func rank(_ device: DeviceID, for request: Request) -> Int {
    request.holders.firstIndex(of: device.bytes) ?? .max
  }

  private func load(_ device: DeviceID) -> Int { requests.values.count { $0.current == device } }

  private func needResolved(
    _ hash: BlobHash, need: Result<BlobNeed?, StoreError>, device: DeviceID, driver: SessionDriver
  ) {
    requests[hash]?.isResolving = false
    guard requests[hash] != nil else { return }
    switch need {
    case .failure(let error): finish(hash, result: .failure(ReplicationError(error)))
    case .success(nil): arrived(hash, from: nil)
    case .success(let need?):
      guard driver.canFetch else { return advance(hash) }
      requests[hash]?.current = device
      requests[hash]?.driver = driver
      requests[hash]?.watch = StallWatch()
      requests[hash]?.tried.insert(device)
      driver.want([need])
    }
  }

  /// Handles the outcome of a request that was made in the session.
  func handle(_ news: SessionNotification, from driver: SessionDriver) {
    let device = driver.remotePeer.device
    switch news {
    case .progress(let hash, let held, let size):
      for progress in requests[hash]?.progress ?? [] { progress(held, size) }
    case .arrived(let hash): arrived(hash, from: device)
    case .lacking(let hash):
      guard requests[hash]?.driver === driver else { return }
      failed(hash, reason: "\(driver.peerName) does not have it")
      let context = context
      context.workers.later {
        try? context.store.blobs.recordHolder(hash, member: device.bytes, holds: false)
      }
    case .part(let hash, let offset, let bytes):
      swarms[hash]?.arrived(offset: offset, bytes: bytes, from: device)
    case .partsLacking(let hash): swarms[hash]?.lost(device)
    case .holdings(let stated): answered(stated, by: device)
    // Passed to the caller that compares.
    case .differences: break
    }
  }

  /// Runs `tick` periodically while requests are open.
  private func keepTicking() {
    guard stallTimer == nil, !requests.isEmpty, !isStopped else { return }
    stallTimer = loop.schedule(after: StallWatch.tickMilliseconds) { [weak self] in
      self?.stallTimer = nil
      self?.tick()
      self?.keepTicking()
    }
  }

  /// `StallWatch.tickMilliseconds` have passed: gives up members that have stalled.
  func tick() {
    for swarm in Array(swarms.values) { swarm.tick() }
    for hash in Array(requests.keys) {
      guard let driver = requests[hash]?.driver,
        requests[hash]?.watch.tick(driver.transferProgress) == true
      else { continue }
      failed(hash, reason: "\(driver.peerName) answers, but does not give it")
    }
  }

  private func failed(_ hash: BlobHash, reason why: String) {
    requests[hash]?.current = nil
    requests[hash]?.driver = nil
    requests[hash]?.failures.append(why)
    advance(hash)
  }

  func arrived(_ hash: BlobHash, from device: DeviceID?) {
    // Recorded even if no request waits for it any more.
    let (context, loop, this) = (context, loop, LoopBound(self, to: loop))
    context.workers.later {
      let result = Result { () throws(StoreError) in
        try context.store.recordArrived([hash])
        if let device { try context.store.blobs.recordHolder(hash, member: device.bytes, holds: true) }
      }
      loop.execute { this.value.finish(hash, result: result.mapError { ReplicationError($0) }) }
    }
  }

  private func finish(_ hash: BlobHash, result: Result<Void, ReplicationError>) {
    guard let request = requests.removeValue(forKey: hash) else { return }
    if request.isQueued { swarmQueue.removeAll { $0 == hash } }
    for completion in request.completions { completion(result) }
    lingerIfIdle()
  }

  // MARK: Unconnected members

  private func dialNext(_ hash: BlobHash) {
    guard let request = requests[hash] else { return }
    guard var routes = request.routes else { return resolveRoutes(hash) }
    guard !routes.isEmpty else {
      let said = request.failures.joined(separator: "; ")
      let why = said.isEmpty ? "no member is connected, and no address of one is known" : said
      return finish(hash, result: .failure(ReplicationError(.unavailable, why)))
    }
    let route = routes.removeFirst()
    requests[hash]?.routes = routes
    if let device = route.target.device, request.tried.contains(device) { return dialNext(hash) }
    connect(route) { [weak self] error in
      if let error { self?.requests[hash]?.failures.append(error.message) }
      self?.advance(hash)
    }
  }

  private func resolveRoutes(_ hash: BlobHash) {
    requests[hash]?.isResolving = true
    routes { [weak self] result in
      self?.requests[hash]?.isResolving = false
      switch result {
      case .failure(let error): self?.finish(hash, result: .failure(error))
      case .success(let known):
        guard let self, let request = requests[hash] else { return }
        let ranked = known.enumerated().sorted { one, other in
          let ranks = [one, other].map { $0.element.target.device.map { rank($0, for: request) } ?? .max }
          return ranks[0] == ranks[1] ? one.offset < other.offset : ranks[0] < ranks[1]
        }
        requests[hash]?.routes = ranked.map(\.element)
        advance(hash)
      }
    }
  }

  func routes(_ completion: @escaping (Result<[Route.Known], ReplicationError>) -> Void) {
    let (context, loop) = (context, loop)
    let then = LoopBound(Box(completion), to: loop)
    context.workers.later {
      let known = Result { () throws(ReplicationError) in
        try Route.all(in: context.store, own: context.identity.id).known
      }
      loop.execute { then.value.content(known) }
    }
  }

  /// Opens a control-only session to a member, trying each of its addresses until one answers. Calls
  /// `completion` once the session can be asked, or with the error.
  func connect(_ route: Route.Known, _ completion: @escaping (ReplicationError?) -> Void) {
    if dialling[route.name] != nil {
      dialling[route.name]?.append(completion)
      return
    }
    dialling[route.name] = [completion]
    connect(
      route, endpoints: route.endpoints[...],
      failure: ReplicationError(.network, "\(route.name) has no address here: name it with `Membership.add`"))
  }

  func connect(_ route: Route.Known, endpoints: ArraySlice<Endpoint>, failure: ReplicationError) {
    guard let endpoint = endpoints.first, !isStopped else { return connected(route.name, error: failure) }
    core.dial(route.target, endpoint: endpoint, direction: .pull, mode: .controlOnly) { [weak self] driver in
      if !driver.isOver { self?.opening[ObjectIdentifier(driver)] = route.name }
    } progress: { _ in
    } completion: { [weak self] result in
      // Once the session was open, `ended` reports its end.
      guard self?.dialling[route.name] != nil else { return }
      let error =
        switch result {
        case .failure(let error): error
        case .success(let end): Self.error(of: end)
        }
      self?.connect(route, endpoints: endpoints.dropFirst(), failure: error)
    }
  }

  private static func error(of end: DialEnd) -> ReplicationError {
    switch end.end.outcome {
    case .done: ReplicationError(.network, "\(end.peer) ended the session: ask again")
    case .reconnect(let why): ReplicationError(.unavailable, "\(end.peer): \(why)")
    case .failed(let code, let why): ReplicationError(code, why)
    }
  }

  private func connected(_ name: String, error: ReplicationError?) {
    for completion in dialling.removeValue(forKey: name) ?? [] { completion(error) }
    lingerIfIdle()
  }

  /// A session can be asked: if it was dialled for that, those who wait for it go on.
  func opened(_ driver: SessionDriver) {
    guard let name = opening.removeValue(forKey: ObjectIdentifier(driver)) else { return }
    controlSessions[driver.remotePeer.device] = driver
    joinSwarms()
    connected(name, error: nil)
  }

  /// A session is over: what was asked in it is asked of another member.
  func ended(_ driver: SessionDriver) {
    let device = driver.remotePeer.device
    opening[ObjectIdentifier(driver)] = nil
    if controlSessions[device] === driver { controlSessions[device] = nil }
    for swarm in Array(swarms.values) where swarm.uses(driver) { swarm.lost(device) }
    for (hash, request) in requests where request.driver === driver {
      // The session ended, not the device: it may be asked again through its other session.
      if isOpen(device, but: driver) { requests[hash]?.tried.remove(device) }
      failed(hash, reason: "\(driver.peerName) broke the connection")
    }
    for (number, question) in questions where question.waiting.contains(device) {
      questions[number]?.waiting.remove(device)
      if questions[number]?.waiting.isEmpty == true { conclude(number) }
    }
  }

  private func isOpen(_ device: DeviceID, but ended: SessionDriver) -> Bool {
    fetching().contains { $0.device == device && $0.driver !== ended }
  }

  /// Schedules the end of control-only sessions once no request or trim needs them.
  func lingerIfIdle() {
    guard requests.isEmpty, sessionHolds == 0, !controlSessions.isEmpty, lingerTimer == nil, !isStopped else {
      return
    }
    lingerTimer = loop.schedule(after: Self.lingerMilliseconds) { [weak self] in
      guard let self else { return }
      lingerTimer = nil
      guard requests.isEmpty, sessionHolds == 0 else { return }
      for driver in Array(controlSessions.values) { driver.stop() }
    }
  }

  func fetching() -> [(device: DeviceID, driver: SessionDriver)] {
    core.devices.filter { $0.driver.canFetch }
  }
}

/// Wraps a value in a class, for `LoopBound`.
final class Box<Content> {
  let content: Content
  init(_ content: Content) { self.content = content }
}

extension NodeCore {
  /// The sessions of this node, with their devices.
  var devices: [(device: DeviceID, driver: SessionDriver)] {
    let all = incoming.values.map { ($0.device, $0.driver) } + outgoing.values.map { ($0.device, $0.driver) }
    return all.compactMap { device, driver in
      guard let device, let driver else { return nil }
      return (device, driver)
    }
  }
}
