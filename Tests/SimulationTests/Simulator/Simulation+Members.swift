import Replication
import SyncStore
import SyncTestSupport

/// Members: acknowledgements, purges, temporary revocations and restrictions, and older program versions.
extension Simulation {
  /// The key of a machine's directory.
  static func device(_ number: Int) -> DeviceID {
    DeviceID(bytes: [UInt8](repeating: UInt8(number + 1), count: 32))!
  }

  /// A node's work after a session.
  func acknowledge(_ machine: Machine) throws {
    try trying(machine) { try machine.store.acknowledge(as: machine.device) }
  }

  /// Purges the deletes that, to this copy's knowledge, all members have seen.
  func purge(_ machine: Machine) throws {
    try trying(machine) {
      counts.purged += try machine.store.purge()
      if random.chance(50) { try machine.store.compact() }
    }
    try look(machine)
    try check(machine)
  }

  /// Revokes one member for a while: purges no longer wait for it, and new data is encrypted under a key that
  /// it does not have.
  func revoke(_ machine: Machine) throws {
    guard let by = machines.filter({ $0 !== machine && $0.revokedUntil <= now }).randomElement(using: &random)
    else { return }
    counts.revocations += 1
    wake(by)
    machine.revokedUntil = now + below(3_600_000)
    machine.wasRevoked = true
    disconnect(machine)
    try trying(by) {
      let frontier = ReservedKey.frontier(machine.device)
      if try by.store.reserved(frontier) != nil { try by.store.putReserved(frontier, nil) }
      let keys = StoreKeys(by.store)
      var ring = try keys.groupKeys()
      let number = UInt32(truncatingIfNeeded: random.next())
      _ = try ring.beginEpoch(random.bytes(GroupKeyRing.keyBytes), random: number)
      try keys.replaceGroupKeys(with: ring)
    }
    try look(by)
  }

  /// Makes one member read-only for a while: all others accept nothing from it.
  func restrict(_ machine: Machine) {
    counts.restrictions += 1
    machine.restrictedUntil = now + 60_000 + UInt64(rights.below(3_600_000))
    // Permissions of connected peers are checked again.
    disconnect(machine)
  }

  /// Ends a machine's sessions.
  private func disconnect(_ machine: Machine) {
    for number in links.keys.sorted() {
      guard let link = links[number], link.client == machine.number || link.server == machine.number else {
        continue
      }
      for isClient in [true, false] { disconnected(number, isClient) }
    }
  }

  /// The permission the others grant it.
  func right(_ machine: Machine) -> MemberRight { machine.restrictedUntil > now ? .readOnly : .readWrite }

  /// Direction of a session between two members. A read-only member usually knows that it is one.
  func direction(
    of client: Machine, to server: Machine, _ drawn: SessionDirection
  ) -> SessionDirection {
    guard right(client) == .readOnly || right(server) == .readOnly, rights.chance(80) else { return drawn }
    return right(client) == .readOnly ? .pull : .push
  }

  /// Replaces the program by a newer or older version and restarts it.
  func changeProgram(_ machine: Machine) throws {
    machine.isOld.toggle()
    counts.kills += 1
    try restart(machine, isHealthy: true)
  }

  /// The group keys are carried by hand to members whose program cannot request them.
  func shareKeys(_ chosen: [Machine]) throws {
    for from in chosen {
      for to in chosen where from !== to {
        try trying(to) { try StoreKeys(to.store).merge(StoreKeys(from.store).groupKeys()) }
      }
    }
  }

  /// Runs an action that may hit a planned fault.
  private func trying(_ machine: Machine, _ body: () throws -> Void) throws {
    do { try body() } catch let error as StoreError {
      try endure(error, machine)
    } catch let error as ReplicationError {
      guard let failure = error.store else { throw error }
      try endure(failure, machine)
    }
  }
}
