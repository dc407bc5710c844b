import Replication
import SyncStore
import SyncTestSupport

/// One history played both in the model and in real stores on simulated machines. After every step both must
/// show the same records, vectors and conflicts.
///
/// One unit of model time is 20 s, which makes the drift limits equal; stamps are those of the stores. The
/// stores' actors have the names of the model's.
final class Twin {
  /// Model and store disagree.
  struct Mismatch: Error, CustomStringConvertible {
    let description: String
    init(_ text: String) { description = text }
  }

  /// A machine with one store, and its past states in the model.
  final class Machine {
    let host: SimulatedHost
    var path: String
    var store: Store
    /// The copy after each of its steps: after a power loss the store must equal one of them.
    var past: [Model.State] = []
    /// Index of the last durable one.
    var durable = 0
    var backups: [(files: [String: [UInt8]], path: String, known: Int)] = []
    /// When values beaten here became known, in units.
    var beaten: [Model.Dot: Int] = [:]

    init(_ host: SimulatedHost, _ path: String, _ store: Store) {
      (self.host, self.path, self.store) = (host, path, store)
    }
  }

  static let unit = 20_000
  /// Stamps per unit.
  static let tick = unit << 16
  /// In units: some day in 2023.
  static let start = 85_000_000
  private static let localKey = Array("twin".utf8)
  static let configuration = Configuration(segmentBytes: 64 << 10)

  var model: Model.World
  var machines: [Machine] = []
  let names = ActorNames()
  var rounds: [[Int]: (round: DeltaStream, full: FullState?)] = [:]
  /// Candidate states of each backup.
  var backups: [Int: [[Model.State]]] = [:]
  /// Whether one dot may get two contents.
  let forks: Bool
  /// Whether copies meet in whole sessions.
  private let usesSessions: Bool
  private let ring = GroupKeyRing(key: [UInt8](repeating: 7, count: GroupKeyRing.keyBytes))
  private let seed: UInt64
  var random: SplitMix64
  /// What the copies have in common, if it is a relay.
  var relay: TwinRelay?
  /// Bytes that each value has in addition: large values fill the heads of a relay.
  var padding = 0
  /// A batch takes as many records as fit: this small size makes it one.
  private let batchBytes = 1

  init(copies: Int, keys: Int, seed: UInt64, usesSessions: Bool = false, forks: Bool = false) throws {
    var rules = Model.Rules()
    // Decision 5.
    rules.parksOwn = false
    self.forks = forks
    model = Model.World(rules, copies: 0, keys: keys, forks: forks, now: Self.start, tick: Self.tick)
    model.isLikeStore = true
    model.retirement = Int(Limits.retirementMilliseconds) / Self.unit
    (self.seed, self.usesSessions) = (seed, usesSessions)
    random = SplitMix64(seed: seed)
    for _ in 0..<copies { try add() }
  }

  /// A new, empty member; with `scope`, of those keys only.
  func add(scope: [Int]? = nil) throws {
    names.next = model.actorCount + 1
    model.addCopy(scope: scope)
    let host = machine(skew: 0)
    let store = try Store.create(on: host, id: machines.first?.store.id, configuration: Self.configuration)
    if let scope { try store.narrow(to: KeyScope(prefixes: scope.map { Array("\($0)".utf8) })) }
    // Each append states the durable length before it: from now on a copied directory knows its first actor.
    for number in 0..<2 { try store.setLocal(Self.localKey, [UInt8(number)]) }
    try StoreKeys(store).replaceGroupKeys(with: ring)
    if relay != nil { _ = try StoreKeys(store).makeIdentity() }
    machines.append(Machine(host, "/store", store))
    capture(machines.count - 1)
    settle(machines.count - 1)
  }

  func machine(skew: Int) -> SimulatedHost {
    SimulatedHost(
      seed: seed &* 31 &+ UInt64(machines.count), time: UInt64((model.now + skew) * Self.unit),
      machine: "machine \(machines.count)", encrypted: false, actors: { [names] in names.take() })
  }

  // MARK: Comparison of store and model

  /// The model took a step at this copy.
  func capture(_ copy: Int) {
    let states = model.between.filter { $0.copy == copy }.map(\.state) + [model.copies[copy].live]
    for state in states where machines[copy].past.last != state { machines[copy].past.append(state) }
    model.between.removeAll { $0.copy == copy }
  }

  /// Everything in the copy is durable.
  func settle(_ copy: Int) {
    model.sync(copy)
    machines[copy].durable = machines[copy].past.count - 1
  }

  /// Applies due parked records, in both.
  func wake(_ copy: Int) throws {
    guard !model.copies[copy].live.parked.isEmpty else { return }
    try model.unpark(copy)
    try machines[copy].store.updateLocal(Self.localKey) { $0 }
    capture(copy)
  }

  /// Performs one operation in both, and compares.
  func step(_ operation: Model.Operation) throws {
    if let first = operation.copies.first, first >= machines.count { return }
    if let copy = operation.copies.first, operation.copies.count == 1, !model.copies[copy].isAlive { return }
    names.next = model.actorCount + 1
    model.touched = Set(operation.copies.filter { $0 < machines.count })
    let touched = model.touched
    try perform(operation)
    model.touched = touched
    try model.checkStep()
    for copy in touched.sorted() where model.copies[copy].isAlive { try compare(copy, operation) }
    guard names.next == model.actorCount + 1 else { throw Mismatch("\(operation): not the same new actors") }
  }

  private func perform(_ operation: Model.Operation) throws {
    switch operation {
    case .time(let length):
      // The store's retirement period is longer than in the histories.
      let units = length > Model.retirement ? model.retirement + 5 : length
      try model.step(.time(units))
      for machine in machines { machine.host.time += UInt64(units * Self.unit) }
    case .skew(let copy, let units):
      try model.step(operation)
      machines[copy].host.time = UInt64((model.now + units) * Self.unit)
    case .put(let copy, let key, let life): try put(copy, key, life, operation)
    case .delete(let copy, let key): try delete(copy, key, operation)
    case .future(let copy, let key, let isDelete): try future(copy, key, isDelete)
    case .sync(let copy): try sync(copy)
    case .crash(let copy): try crash(copy)
    case .open(let sender, let receiver): try open(sender, receiver)
    case .deliver(let sender, let receiver, let count): try deliver(sender, receiver, count)
    case .close(let sender, let receiver): try close(sender, receiver)
    case .cut(let sender, let receiver): try cut(sender, receiver)
    case .meet(let one, let other): try meet(one, other)
    case .acknowledge(let copy):
      try wake(copy)
      try model.step(operation)
      try machines[copy].store.acknowledge(as: device(copy))
      capture(copy)
      settle(copy)
    case .purge(let copy): try purge(copy) { try $0.purge() }
    case .compact(let copy):
      // A compaction's own purge spares the latest writes: all of this history.
      try purge(copy) { store in
        try store.purge()
        try store.compact()
      }
      try model.step(operation)
      capture(copy)
    case .away(let copy, let isAway):
      try model.step(operation)
      if isAway { dropRounds(of: copy) }
    case .lose(let copy):
      try model.step(operation)
      if !model.copies[copy].isAlive { dropRounds(of: copy) }
    case .backup(let copy): try backUp(copy)
    case .restore(let copy, let which): try restore(copy, which)
    case .clone(let copy, let ofBackup): try clone(copy, ofBackup)
    case .join(let copy, _):
      guard machines.count < Model.mostCopies else { return }
      try add()
      try meet(copy, machines.count - 1)
    case .damage(let copy, let key): try damage(copy, key)
    case .rollback(let copy, let which): try rollBack(copy, which)
    case .duplicate(let copy): try duplicate(copy)
    case .relay(let operation): try perform(operation)
    }
  }

  /// A member has one key, even if its directory is copied.
  private func device(_ copy: Int) -> DeviceID {
    DeviceID(bytes: [UInt8](repeating: UInt8(model.copies[copy].member), count: 32))!
  }

  private func purge(_ copy: Int, _ body: (Store) throws -> Void) throws {
    // A copy with a wrong clock treats live values as expired: the model does not.
    guard abs(model.copies[copy].skew) <= Model.drift else { return }
    try wake(copy)
    // A copied directory that has not acknowledged yet does not know which frontier is its own, and waits for
    // it, too.
    let own = Model.member + model.copies[copy].member
    if model.copies[copy].live.held(own) != nil,
      try machines[copy].store.local(Array("replica/member".utf8)) == nil
    {
      return
    }
    try model.step(.purge(copy))
    try body(machines[copy].store)
    capture(copy)
  }

  func dropRounds(of copy: Int) {
    rounds = rounds.filter { !$0.key.contains(copy) }
  }

  // MARK: Writes

  /// Text that sorts like the numbers: which of two contents is greater depends on it.
  private func value(_ number: Int) -> [UInt8] {
    Array("\(10_000_000 + number)".utf8) + [UInt8](repeating: 0x2E, count: padding)
  }

  static func key(_ number: Int) throws -> Key { try Key("\(number)") }

  private func put(_ copy: Int, _ key: Int, _ life: Int, _ operation: Model.Operation) throws {
    guard model.copies[copy].wants(key) else { return }
    try wake(copy)
    try model.step(operation)
    let deadline = life == 0 ? nil : UInt64((model.wall(copy) + life) * Self.unit)
    try machines[copy].store.put(
      Self.key(key), value(model.values), expiration: deadline.map { .at($0) }, durability: .relaxed)
    capture(copy)
  }

  private func future(_ copy: Int, _ key: Int, _ isDelete: Bool) throws {
    let skew = model.copies[copy].skew
    try perform(.skew(copy, Model.ahead))
    try perform(isDelete ? .delete(copy, key: key) : .put(copy, key: key, life: 0))
    try perform(.skew(copy, skew))
  }

  func sync(_ copy: Int) throws {
    guard model.copies[copy].isAlive else { return }
    try wake(copy)
    try machines[copy].store.sync()
    settle(copy)
  }

  // MARK: Rounds

  func canTalk(_ sender: Int, _ receiver: Int) -> Bool {
    sender != receiver && max(sender, receiver) < machines.count
      && [sender, receiver].allSatisfy { model.copies[$0].isAlive && !model.copies[$0].isAway }
  }

  private func open(_ sender: Int, _ receiver: Int) throws {
    guard canTalk(sender, receiver), model.round(sender, receiver) == nil else { return }
    // An acknowledged vector has been made durable.
    try sync(sender)
    try sync(receiver)
    try shakeHands(sender, receiver)
    let refused = model.count(of: .refusedFullState) + model.count(of: .refusedMending)
    let isOpen = try model.open(sender, receiver)
    for copy in forks ? [sender, receiver] : [sender] {
      capture(copy)
      settle(copy)
    }
    if model.count(of: .refusedFullState) + model.count(of: .refusedMending) > refused {
      try expectRefusal(sender, receiver)
    }
    guard isOpen, let round = model.rounds.last else { return }
    let (from, to) = (machines[sender].store, machines[receiver].store)
    let opened = try from.openRound(for: try self.receiver(to, of: from))
    let isFull = opened.close.isFull
    guard isFull == round.isFull else {
      throw Mismatch("a round \(sender) to \(receiver) is \(isFull ? "" : "not ")a full state")
    }
    rounds[[sender, receiver]] = (opened, isFull ? FullState() : nil)
    // A resumed full state sends less; one for an unconfirmed copy sends everything.
    let isInDoubt = !model.copies[receiver].live.suspects.isEmpty
    guard isFull ? isInDoubt || opened.count <= round.items.count : opened.count == round.items.count else {
      throw Mismatch("a round \(sender) to \(receiver) of \(opened.count), not \(round.items.count) records")
    }
  }

  /// A copy's summary when it receives from another one.
  func receiver(_ receiver: Store, of sender: Store) throws -> RoundReceiver {
    let summary = try receiver.replicaSummary()
    return RoundReceiver(
      cursor: try receiver.cursor(for: sender.actor), covered: summary.vector, floor: summary.floor,
      health: summary.health)
  }

  private func deliver(_ sender: Int, _ receiver: Int, _ count: Int) throws {
    guard let index = model.round(sender, receiver), let (round, full) = rounds[[sender, receiver]],
      full == nil
    else { return }
    try wake(receiver)
    var left = min(count, model.rounds[index].items.count - model.rounds[index].next)
    while left > 0 {
      guard let batch = try round.next(maximumBytes: batchBytes) else {
        throw Mismatch("a round ends too early")
      }
      // Records received in one append leave in one batch.
      try model.deliver(sender, receiver, batch.records.count)
      left -= batch.records.count
      capture(receiver)
      _ = try machines[receiver].store.apply(batch)
      settle(receiver)
    }
  }

  private func close(_ sender: Int, _ receiver: Int) throws {
    guard model.round(sender, receiver) != nil, let (round, full) = rounds[[sender, receiver]] else { return }
    try deliver(sender, receiver, .max)
    try wake(receiver)
    try closeInSteps(sender, receiver)
    // A full state is applied at once: the model delivers again what this store had before.
    if full != nil {
      while let batch = try round.next(maximumBytes: batchBytes) {
        _ = try machines[receiver].store.apply(batch, full)
      }
    }
    guard try round.next(maximumBytes: batchBytes) == nil else { throw Mismatch("a round ends too late") }
    try machines[receiver].store.finish(round.close, full)
    settle(receiver)
    rounds[[sender, receiver]] = nil
  }

  func cut(_ sender: Int, _ receiver: Int) throws {
    try model.step(.cut(sender, receiver))
    rounds[[sender, receiver]] = nil
  }

  private func meet(_ one: Int, _ other: Int) throws {
    guard max(one, other) < machines.count else { return }
    if usesSessions { return try meetBySession(one, other) }
    for (sender, receiver) in [(one, other), (other, one)] {
      try cut(sender, receiver)
      try open(sender, receiver)
      try close(sender, receiver)
    }
    if canTalk(one, other) { try compareDigests(one, other) }
  }

  func compareDigests(_ one: Int, _ other: Int) throws {
    if forks { return try compareAndRepair(one, other) }
    try model.compare(one, other)
    let (left, right) = (machines[one].store, machines[other].store)
    let time = UInt64(min(model.wall(one), model.wall(other)) * Self.unit)
    let isSame =
      model.digest(one, at: Int(time) / Self.unit) == model.digest(other, at: Int(time) / Self.unit)
    guard try (left.digest(at: time) == right.digest(at: time)) == isSame else {
      throw Mismatch("the digests of \(one) and \(other) are \(isSame ? "not equal" : "equal")")
    }
  }

  // MARK: Comparing

  func compare(_ copy: Int, _ operation: Model.Operation) throws {
    try wake(copy)
    for loser in model.copies[copy].live.losers where machines[copy].beaten[loser.dot] == nil {
      machines[copy].beaten[loser.dot] = model.now
    }
    try forgetAged(copy)
    try adoptLookedBack(copy)
    let real = try facts(of: machines[copy].store, wall: model.wall(copy))
    let ideal = facts(of: model.copies[copy].live)
    guard try machines[copy].store.actor.low == model.copies[copy].live.actor.number else {
      throw Mismatch("after \(operation) copy \(copy) is not the same actor")
    }
    guard real != ideal else { return }
    throw Mismatch("after \(operation) copy \(copy) has\n\(real)\nand in the model\n\(ideal)")
  }

  /// Ends all faults and all sessions. Returns the machines that are alive.
  func endFaults() throws -> [Int] {
    for copy in machines.indices where model.copies[copy].isAlive {
      try step(.skew(copy, 0))
      try step(.away(copy, false))
      dropRounds(of: copy)
    }
    model.rounds = []
    try step(.time(Model.ahead + 3 * Model.drift))
    return machines.indices.filter { model.copies[$0].isAlive }
  }

  /// All faults stop, every pair meets repeatedly.
  func heal() throws {
    let alive = try endFaults()
    for copy in alive { try step(.sync(copy)) }
    for _ in 0..<3 {
      for one in alive { for other in alive where one < other { try step(.meet(one, other)) } }
    }
    // No copy covers what it had purged: it must join again.
    if alive.contains(where: { model.copies[$0].live.isMending }) { return }
    try model.checkHealed()
    try step(.time(Model.retirement + 5))
    for _ in 0..<3 {
      for copy in alive { try step(.acknowledge(copy)) }
      for one in alive { for other in alive where one < other { try step(.meet(one, other)) } }
      for copy in alive { try step(.purge(copy)) }
      try step(.time(1))
    }
    for one in alive { for other in alive where one < other { try step(.meet(one, other)) } }
    try model.checkHealed()
  }
}
