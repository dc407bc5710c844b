import SyncTestSupport
import Testing

@testable import SyncStore

/// A full state is closed in parts, between which others go on.
@Suite("While a full state is being closed (R8)")
struct FullStateTurnsTests {
  /// The copy that is given the full state, the one that gives it, and another one.
  private let hosts = (1...3).map { SimulatedHost(seed: UInt64($0), machine: "machine \($0)") }
  private let receiver: Store
  private let sender: Store
  private let other: Store
  private let between = Locked<(@Sendable () -> Void)?>(nil)

  init() throws {
    sender = try Store.create(on: hosts[1])
    other = try Store.create(on: hosts[2], id: sender.id)
    var environment = hosts[0].environment
    environment.betweenTurns = { [between] in between.withLock { $0 }?() }
    receiver = try Store.create(
      at: "/store", name: nil, id: sender.id, configuration: hosts[0].configured(SharedModeTests.shared),
      environment: environment)
  }

  private var copies: [Store] { [receiver, sender, other] }

  private func pass(_ milliseconds: UInt64) { for host in hosts { host.time += milliseconds } }

  /// Each receives from each.
  private func meet() throws {
    pass(1)
    for copy in copies { for peer in copies where peer !== copy { try copy.receive(from: peer) } }
  }

  /// The sender purges what it has deleted; nobody else is waited for.
  private func purgeAtSender() throws {
    pass(Limits.retirementMilliseconds + 1000)
    try sender.acknowledge(as: PurgeTests.device[1])
    #expect(try sender.purge() == 2)
  }

  /// A round of the other copy with a value that nobody else has.
  private func late() throws -> IncomingBatch {
    try sender.put("doomed", "1")
    try meet()
    try other.put("late", "2")
    let round = try other.openRound(since: nil, covered: receiver.versionVector())
    return try #require(try round.next(maximumBytes: 1000))
  }

  /// The receiver as another process has it.
  private func beside() throws -> Store {
    try Store.open(
      at: "/store", configuration: hosts[0].configured(SharedModeTests.shared),
      environment: hosts[0].otherProcess)
  }

  /// The receiver is given the sender's full state, and the batch between two parts of its closing, maybe in another process.
  private func receive(between batch: IncomingBatch, inOtherProcess: Bool) throws {
    let turns = Locked(0)
    let taker = inOtherProcess ? try beside() : receiver
    between.withLock {
      $0 = {
        turns.withLock { $0 += 1 }
        #expect(throws: Never.self) { _ = try taker.apply(batch) }
      }
    }
    try receiver.receive(from: sender)
    between.withLock { $0 = nil }
    #expect(turns.withLock { $0 } == 1)
  }

  @Test("what another copy sends, and that state knows to be dead, stays dead", arguments: [false, true])
  func known(inOtherProcess: Bool) throws {
    let batch = try late()
    try sender.receive(from: other)
    for key in ["doomed", "late"] as [Key] { try sender.delete(key) }
    try purgeAtSender()
    try receive(between: batch, inOtherProcess: inOtherProcess)
    #expect(try receiver.get("late") == nil)
    #expect(try receiver.explain("late") == nil)
    #expect(try receiver.digest() == sender.digest())
  }

  @Test(
    "what another copy sends, and that state knows nothing of, is issued again", arguments: [false, true])
  func unknown(inOtherProcess: Bool) throws {
    let batch = try late()
    pass(1)
    try sender.put("late", "3")
    for key in ["doomed", "late"] as [Key] { try sender.delete(key) }
    try purgeAtSender()
    try receive(between: batch, inOtherProcess: inOtherProcess)
    let held = try #require(try receiver.engine.withLock { try $0.held(Array("late".utf8)) })
    #expect(held.dot.actor == (try receiver.actor))
    for _ in 0..<2 { try meet() }
    for copy in copies {
      #expect(try copy.text("late") == "2")
      #expect(try copy.digest() == sender.digest())
    }
  }
}
