import Replication
import SyncStore
import SyncTestSupport

/// The end: all faults stop, and all copies must agree with each other and with the oracle.
extension Simulation {
  /// Everybody meets everybody until all are in step.
  func heal() throws {
    links = [:]
    now += 2 * 3_600_000
    for machine in machines {
      (machine.skew, machine.awayUntil, machine.revokedUntil) = (0, 0, 0)
      // One dot with two contents is for programs to mend that know how.
      if counts.rollbacks > 0 { machine.isOld = false }
      machine.host.storage.free = nil
      wake(machine)
      try restart(machine)
      // A sync that is still to fail fails now.
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
      .client(.sync), one.store, peerName: other.name, knowsChunks: true, isOld: one.isOld)
    let server = SessionSide(.server, other.store, peerName: one.name, knowsChunks: true, isOld: other.isOld)
    try SessionPair.run(client, server, &random)
    for (side, machine) in [(client, one), (server, other)] {
      count(side)
      try look(machine)
      if let failure = side.takeFailure() { try endure(failure, machine) }
      switch side.outcome {
      case .done, .reconnect: break
      case let outcome where isLast:
        throw Oracle.Violation("\(machine.name) cannot come into step: \(String(describing: outcome))")
      default: break
      }
    }
  }

  private func areInStep() throws -> Bool {
    let first = machines[0].store
    let coverage = Oracle.Coverage(try first.versionVector())
    for machine in machines {
      guard try Oracle.Coverage(machine.store.versionVector()) == coverage,
        try machine.store.digest(at: now) == first.digest(at: now),
        try machine.store.missingBlobs().isEmpty
      else { return false }
    }
    return true
  }

  private func checkHealed() throws {
    for machine in machines { try check(machine) }
    let first = machines[0].store
    let coverage = Oracle.Coverage(try first.versionVector())
    let digest = try oracle.digest(of: coverage, at: now) { try first.explain($0)?.winner }
    for machine in machines {
      guard try Oracle.Coverage(machine.store.versionVector()) == coverage else {
        throw Oracle.Violation(
          "\(machine.name) covers \(try machine.store.versionVector()), copy 0 \(try first.versionVector())")
      }
      guard try machine.store.digest(at: now) == digest else {
        throw Oracle.Violation("the digest of \(machine.name) is not that of the oracle")
      }
      guard try machine.store.verify().isClean else { throw Oracle.Violation("\(machine.name) is damaged") }
      for key in oracle.keys { try checkWinner(of: key, coverage, machine) }
    }
  }

  /// All hold the greatest write that was not lost, and read what was asked for with it.
  private func checkWinner(of key: Key, _ coverage: Oracle.Coverage, _ machine: Machine) throws {
    let held = try machine.store.explain(key)?.winner
    guard let top = oracle.winner(of: key, in: coverage) else { return }
    if top.content.mayBePurged(by: latest), held?.isTombstone ?? true { return }
    if held == nil, oracle.mayBeBeaten(top, byOneOf: { $0.content.mayBePurged(by: latest) }) { return }
    guard let held, held.dot == top.dot || oracle.mayBeBeaten(top, byOneOf: { $0.dot == held.dot }) else {
      throw Oracle.Violation(
        "\(machine.name) holds \(held.map { "\($0.dot)" } ?? "nothing") of \(key); the greatest write is \(top)"
      )
    }
    let write = held.dot == top.dot ? top : try oracle.doubtfulWrite(held, of: key)
    let expected = write.map { $0.content.isLive(at: now) ? $0.content.bytes : nil }
    let bytes = try machine.store.get(key)?.bytes
    guard let expected, bytes == expected else {
      throw Oracle.Violation(
        "\(machine.name) reads \(Oracle.Content(bytes: bytes)) of \(key), which \(held.dot) has set to \(write.map { "\($0)" } ?? "something else")"
      )
    }
  }
}
