import SyncTestSupport
import Testing

@testable import SyncStore

/// A full state is closed in parts, between which other threads and processes work.
@Suite("Closing a full state concurrently with other rounds (R8)")
struct FullStateConcurrencyTests {
  /// The copy that receives the full state, its sender, and another one.
  private let hosts = (1...3).map { SimulatedHost(seed: UInt64($0), machine: "machine \($0)") }
  private let receiver: Store
  private let sender: Store
  private let other: Store
  private let between = Locked<(@Sendable () -> Void)?>(nil)

  init() throws {
    sender = try Store.create(on: hosts[1])
    other = try Store.create(on: hosts[2], id: sender.id)
    var environment = hosts[0].environment
    environment.onScanYield = { [between] in between.withLock { $0 }?() }
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

  /// The sender purges its deletes without waiting for any other member.
  private func purgeAtSender() throws {
    pass(Limits.retirementMilliseconds + 1000)
    try sender.acknowledge(as: PurgeTests.device[1])
    #expect(try sender.purge() == 2)
  }

  /// A round of the other copy with a value that no other copy has.
  private func late() throws -> IncomingBatch {
    try sender.put("doomed", "1")
    try meet()
    try other.put("late", "2")
    let round = try other.openRound(since: nil, covered: receiver.versionVector())
    return try #require(try round.next(maximumBytes: 1000))
  }

  /// The receiver's store in another process.
  private func beside() throws -> Store {
    try Store.open(
      at: "/store", configuration: hosts[0].configured(SharedModeTests.shared),
      environment: hosts[0].otherProcess)
  }

  /// Sends the sender's full state to the receiver, and the batch between two parts of its closing, possibly
  /// in another process.
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

  @Test("a record of another copy that the full state knows to be dead stays dead", arguments: [false, true])
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
    "a record of another copy that the full state does not know is issued again", arguments: [false, true])
  func unknown(inOtherProcess: Bool) throws {
    let batch = try late()
    pass(1)
    try sender.put("late", "3")
    for key in ["doomed", "late"] as [Key] { try sender.delete(key) }
    try purgeAtSender()
    try receive(between: batch, inOtherProcess: inOtherProcess)
    let held = try #require(try receiver.core.engine.withLock { try $0.held(Array("late".utf8)) })
    #expect(held.dot.actor == (try receiver.actor))
    for _ in 0..<2 { try meet() }
    for copy in copies {
      #expect(try copy.text("late") == "2")
      #expect(try copy.digest() == sender.digest())
    }
  }

  // MARK: Tombstones purged by the receiver

  /// A copy that knows the receiver's delete, and nothing else.
  private let witness = SimulatedHost(seed: 4, machine: "machine 4")

  /// The receiver has purged a delete of a value that the other copy wrote earlier and that no further copy
  /// has; the sender has purged an older delete. Returns the witness, which has both deletes.
  private func purgeAtReceiver() throws -> Store {
    let witness = try Store.create(on: witness, id: sender.id)
    try sender.put("doomed", "1")
    try meet()
    pass(1)
    try sender.delete("doomed")
    pass(1)
    // This one was counted on arrival.
    try other.put("calm", "1")
    try receiver.receive(from: other)
    pass(1)
    try other.put("late", "2")
    pass(1)
    try receiver.put("late", "3")
    try receiver.delete("late")
    self.witness.time = hosts[0].time
    for copy in [sender, receiver] { try witness.receive(from: copy) }
    pass(1)
    #expect(try sender.purge() == 1 && receiver.purge() == 1)
    return witness
  }

  /// All converge, and none has brought back, under its old dot, a value that the witness knows to be
  /// deleted.
  private func expectIssuedAgain(_ witness: Store) throws {
    let held = try ["late", "calm"].map { key in
      try #require(try receiver.core.engine.withLock { try $0.held(Array(key.utf8)) }).dot.actor
    }
    #expect(try held == [receiver.actor, other.actor])
    for _ in 0..<3 {
      pass(1)
      self.witness.time = hosts[0].time
      let all = copies + [witness]
      for copy in all { for peer in all where peer !== copy { try copy.receive(from: peer) } }
    }
    for copy in copies + [witness] {
      #expect(try copy.text("late") == "2" && copy.digest() == sender.digest())
    }
  }

  @Test(
    "a record possibly beaten by a tombstone purged here is issued again, also if its round is closed",
    arguments: [false, true])
  func purgedHere(isClosed: Bool) throws {
    let witness = try purgeAtReceiver()
    let turns = Locked(0)
    between.withLock {
      $0 = { [receiver, other] in
        guard
          turns.withLock({
            $0 += 1; return $0 == 1
          })
        else { return }
        #expect(throws: Never.self) { try receiver.receive(from: other, batches: isClosed ? .max : 1) }
      }
    }
    try receiver.receive(from: sender)
    between.withLock { $0 = nil }
    #expect(turns.withLock { $0 } > 0)
    try expectIssuedAgain(witness)
  }

  @Test("the next closing makes up for an interrupted one", arguments: [false, true])
  func brokenOff(coversFloorBefore: Bool) throws {
    let witness = try purgeAtReceiver()
    between.withLock {
      $0 = { [receiver, other] in
        #expect(throws: Never.self) { try receiver.receive(from: other, batches: 1) }
        receiver.control.setPoisoned()
      }
    }
    #expect(throws: StoreError.self) { try receiver.receive(from: sender) }
    between.withLock { $0 = nil }
    hosts[0].killProcesses()
    let again = try Store.open(on: hosts[0], configuration: SharedModeTests.shared)
    // A copy whose own floor is lower tells it of the delete in an ordinary round.
    if coversFloorBefore { try again.receive(from: witness) }
    #expect(try again.replicaSummary().health == (coversFloorBefore ? .unconfirmed : .healthy))
    try again.receive(from: sender)
    let held = try #require(try again.core.engine.withLock { try $0.held(Array("late".utf8)) })
    #expect(held.dot.actor == (try again.actor))
    #expect(again.core.engine.withLock { $0.state.reconcileFrom } == nil)
    #expect(try again.replicaSummary().health == .healthy)
  }
}
