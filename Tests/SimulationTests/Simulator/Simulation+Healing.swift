import Replication
import SyncStore
import SyncTestSupport

/// Healing: all faults stop, and all copies must agree with each other and with the oracle.
extension Simulation {
  /// Every pair meets until all have converged.
  func heal() throws {
    links = [:]
    now += 2 * 3_600_000
    for machine in machines {
      (machine.skew, machine.awayUntil, machine.revokedUntil, machine.restrictedUntil) = (0, 0, 0, 0)
      // Old program versions cannot repair a dot with two contents.
      if counts.rollbacks > 0 { machine.isOld = false }
      machine.host.storage.free = nil
      wake(machine)
      try restart(machine)
      // A pending sync failure strikes now.
      for _ in 0..<6 {
        do {
          try machine.store.setLocal(Array("healed".utf8), random.bytes(8))
          break
        } catch {
          try endure(error, machine)
        }
      }
      machine.host.storage.endSyncFailures()
    }
    try shareKeys(machines)
    if let relay { try heal(relay) }
    // Where the machines meet in the relay only, it alone must have brought them into step.
    if relay?.isOnly == true, counts.rollbacks == 0 { return try checkHealed() }
    for pass in 0..<12 {
      for one in machines {
        for other in machines where one.number < other.number { try meet(one, other, isLast: pass == 11) }
      }
      if try areInStep() { break }
    }
    try checkHealed()
  }

  private func meet(_ one: Machine, _ other: Machine, isLast: Bool) throws {
    let client = SessionSide(
      .client(.sync), one.store, peerName: other.name, capabilities: .chunks, isOld: one.isOld)
    let server = SessionSide(
      .server, other.store, peerName: one.name, capabilities: .chunks, isOld: other.isOld)
    try SessionPair.run(client, server, &random)
    for (side, machine) in [(client, one), (server, other)] {
      count(side, machine)
      try look(machine)
      if let failure = side.takeFailure() { try endure(failure, machine) }
      switch side.outcome {
      case .done, .reconnect: break
      case .failed(.unavailable, _) where try isLeftNowhere(machine.store.missingBlobs()): break
      case let outcome where isLast:
        throw Oracle.Violation("\(machine.name) cannot come into step: \(String(describing: outcome))")
      default: break
      }
    }
  }

  /// Whether large values were lost with a rolled-back machine before any other copy had them.
  private func isLeftNowhere(_ blobs: [BlobReference]) throws -> Bool {
    guard counts.rollbacks + counts.restores > 0 else { return false }
    let isLost = try blobs.allSatisfy { blob in
      try machines.allSatisfy { try !$0.store.blobs.has(blob.hash) }
    }
    if isLost, !blobs.isEmpty { lostValues += 1 }
    return isLost
  }

  func areInStep() throws -> Bool {
    let first = machines[0].store
    let coverage = Oracle.Coverage(try first.versionVector())
    for machine in machines {
      let missing = try machine.store.missingBlobs()
      guard try Oracle.Coverage(machine.store.versionVector()) == coverage,
        try machine.store.digest(at: now) == first.digest(at: now),
        try missing.isEmpty || isLeftNowhere(missing)
      else { return false }
    }
    return true
  }

  private func checkHealed() throws {
    for machine in machines {
      try check(machine)
      promise(machine)
    }
    var promised: [ActorID: UInt64] = [:]
    for machine in machines { promised.merge(machine.promised, uniquingKeysWith: max) }
    try oracle.checkInStep(
      machines.map { ($0.name, $0.store) }, Oracle.Clocks(own: now, latest: latest), promised: promised,
      isLost: { try self.isLeftNowhere([$0]) })
  }
}
