import Foundation
import Replication
import SyncStore
import SyncTestSupport

/// A relay that all machines of a network use, and what fails there.
final class SimulatedRelay {
  let objects: VirtualObjectStore
  var random: SplitMix64
  var snapshots: [VirtualObjectStore.Snapshot] = []
  /// The program's memory of the relay, lost with its process.
  var clients: [Int: (store: Store, client: RelayClient)] = [:]
  /// Whether machines meet in the relay only.
  let isOnly: Bool
  /// The error of the last operation.
  var error: ReplicationError?
  private(set) var counts: [String: Int] = [:]

  init(seed: UInt64, time: UInt64) {
    random = SplitMix64(seed: seed ^ 0x52_454C_4159)
    objects = VirtualObjectStore(seed: random.next(), time: time)
    isOnly = random.chance(60)
    var faults = VirtualObjectStore.Faults()
    (faults.fails, faults.losesAnswer) = (random.pick([0, 2, 10]), random.pick([0, 2, 5]))
    (faults.listsPart, faults.repeats) = (random.pick([0, 20]), random.pick([0, 5]))
    objects.faults = faults
  }

  func count(_ what: String, _ number: Int = 1) { counts[what, default: 0] += number }
}

extension Simulation {
  /// Makes the machine's keys, and it and all others members of each other.
  func admit(_ machine: Machine) throws {
    machine.device = try StoreKeys(machine.store).makeIdentity().id
    for one in machines {
      for other in machines {
        try Membership(one.store).put(
          Member(device: other.device, name: "m\(other.number)", right: .readWrite, addresses: [], joined: 0))
      }
    }
  }

  private func client(_ machine: Machine, _ relay: SimulatedRelay) throws -> RelayClient {
    if let known = relay.clients[machine.number], known.store === machine.store { return known.client }
    let client = try RelayClient(store: machine.store, objects: relay.objects, name: "relay")
    relay.clients[machine.number] = (machine.store, client)
    return client
  }

  /// A machine uses the relay: it may die on the way.
  func relay(_ machine: Machine, _ relay: SimulatedRelay) throws {
    guard machine.awayUntil <= now else { return }
    wake(machine)
    relay.objects.time = now
    // Time for which its journal is looked at in smaller steps than its sessions are.
    if relay.random.chance(10) { relay.objects.faults.diesAfter = relay.random.below(12) }
    defer { relay.objects.faults.diesAfter = nil }
    let drawn = relay.random.below(10)
    let before =
      try machine.received
      ?? Received(vector: machine.store.versionVector(), actor: machine.store.actor)
    let actor = try machine.store.actor
    let report = try use(machine, relay) { client throws(ReplicationError) in
      switch drawn {
      case 0...1: try await client.push()
      case 2...3: try await client.pull()
      case 4: try await client.collect(isDryRun: false)
      case 5: try await client.publish()
      default: try await client.sync()
      }
    }
    // An entry that was written before its writer died, is taken back with the relay, and comes again once
    // another one took its place looks as if a clone had written it. Rule R9 costs a name then, and no write.
    if relay.counts["put back"] != nil, try machine.store.actor != actor {
      relay.count("mistaken for clones")
      oracle.doubt(actor, above: try machine.store.versionVector()[actor])
    }
    let isPull = drawn == 2 || drawn == 3 || drawn > 5
    if report == nil { machine.received = before } else if isPull { machine.received = nil }
    if relay.objects.faults.diesAfter == 0 {
      relay.count("deaths")
      try crash(machine)
    }
    try acknowledge(machine)
    try look(machine)
    try check(machine)
  }

  /// Runs one operation of the relay, and accepts the errors that its faults explain.
  @discardableResult
  private func use(
    _ machine: Machine, _ relay: SimulatedRelay,
    _ body: @escaping @Sendable (RelayClient) async throws(ReplicationError) -> RelayReport
  ) throws -> RelayReport? {
    let client = try client(machine, relay)
    relay.count("operations")
    switch waiting({ () throws(ReplicationError) in try await body(client) }) {
    case .success(let report):
      relay.count("read", report.receivedRecords)
      relay.count("published", report.sentRecords)
      relay.count("checkpoints", report.checkpoints)
      relay.count("blobs", report.receivedBlobs)
      relay.count("collected", report.collectedObjects)
      relay.count("set aside", report.setAside.count)
      relay.count("remarks", report.remarks.count)
      return report
    case .failure(let error):
      relay.count("\(error.code)")
      relay.error = error
      if let failure = error.store {
        // In doubt about itself, or overtaken: the next pull helps.
        guard failure.code != .unsettled, failure.code != .overtaken, failure.code != .rolledBack else {
          return nil
        }
        try endure(failure, machine)
        return nil
      }
      switch error.code {
      case .network, .unavailable: return nil
      case .digestsDiffer where counts.rollbacks > 0: return nil
      default: throw error
      }
    }
  }

  /// The relay is put back to an earlier state, or kept for that.
  func strike(_ relay: SimulatedRelay) {
    guard relay.random.chance(30), let earlier = relay.snapshots.randomElement(using: &relay.random) else {
      relay.snapshots.append(relay.objects.snapshot)
      if relay.snapshots.count > 4 { relay.snapshots.removeFirst() }
      return
    }
    relay.count("put back")
    relay.objects.putBack(earlier)
  }

  /// All use the relay until they agree. Machines that also meet directly need not get there.
  func heal(_ relay: SimulatedRelay) throws {
    relay.objects.faults = VirtualObjectStore.Faults()
    relay.objects.time = now
    var last: [Int: String] = [:]
    for pass in 0..<12 {
      for machine in machines {
        wake(machine)
        relay.error = nil
        let report = try use(machine, relay) { client throws(ReplicationError) in try await client.sync() }
        try look(machine)
        last[machine.number] =
          "\(machine.name): \(report.map { "waiting \($0.waitingEntries), aside \($0.setAside), \($0.remarks)" } ?? "\(relay.error.map { "\($0)" } ?? "")"), \(try machine.store.relayReplica().health), \(try machine.store.digest(at: now)), lacks \(try machine.store.missingBlobs().map(\.hash)), \(try machine.store.versionVector())"
      }
      if try areInStep() {
        relay.count("passes", pass + 1)
        return
      }
    }
    // Copies that are all in doubt publish nothing, and have to meet.
    let isAnySure = try machines.contains { try $0.store.relayReplica().health == .healthy }
    guard relay.isOnly, isAnySure, counts.rollbacks == 0 else { return }
    throw Oracle.Violation(
      "the relay does not bring the machines into step: \(last.sorted { $0.key < $1.key }.map(\.value))")
  }
}

/// Waits for asynchronous work: the simulation runs in one thread.
func waiting<Answer: Sendable>(
  _ body: @escaping @Sendable () async throws(ReplicationError) -> Answer
) -> Result<Answer, ReplicationError> {
  let done = DispatchSemaphore(value: 0)
  let result = Locked<Result<Answer, ReplicationError>?>(nil)
  Task.detached {
    let outcome: Result<Answer, ReplicationError>
    do throws(ReplicationError) { outcome = .success(try await body()) } catch { outcome = .failure(error) }
    result.withLock { $0 = outcome }
    done.signal()
  }
  done.wait()
  guard let outcome = result.withLock({ $0 }) else { preconditionFailure("it has ended") }
  return outcome
}
