import Replication
import SyncStore
import SyncTestSupport

/// Members: what they say that others may purge, who is none for a while, and whose program is older.
extension Simulation {
  /// The key of a machine's directory.
  static func device(_ number: Int) -> DeviceID {
    DeviceID(bytes: [UInt8](repeating: UInt8(number + 1), count: 32))!
  }

  /// What a node does after sessions.
  func acknowledge(_ machine: Machine) throws {
    try trying(machine) { try machine.store.acknowledge(as: machine.device) }
  }

  /// Gives up the deletes that all members have seen, as far as this copy knows.
  func purge(_ machine: Machine) throws {
    try trying(machine) {
      counts.purged += try machine.store.purge()
      if random.chance(50) { try machine.store.compact() }
    }
    try look(machine)
    try check(machine)
  }

  /// One is no member for a while: another one revokes it, nobody waits for it any more, and what is sealed from now on is
  /// sealed under a key that it does not have.
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

  /// One may only read for a while, as far as all others are concerned: they take nothing from it.
  func restrict(_ machine: Machine) {
    counts.restrictions += 1
    machine.restrictedUntil = now + 60_000 + UInt64(rights.below(3_600_000))
    // Whoever is connected is asked for its right anew.
    disconnect(machine)
  }

  /// Ends what a machine has with others.
  private func disconnect(_ machine: Machine) {
    for number in links.keys.sorted() {
      guard let link = links[number], link.client == machine.number || link.server == machine.number else {
        continue
      }
      for isClient in [true, false] { disconnected(number, isClient) }
    }
  }

  /// What the others let it do.
  func right(_ machine: Machine) -> MemberRight { machine.restrictedUntil > now ? .readOnly : .readWrite }

  /// Which way two members go on. Whoever may only read mostly knows that.
  func direction(
    of client: Machine, to server: Machine, _ drawn: SessionDirection
  ) -> SessionDirection {
    guard right(client) == .readOnly || right(server) == .readOnly, rights.chance(80) else { return drawn }
    return right(client) == .readOnly ? .pull : .push
  }

  /// The program is replaced by a newer one, or by an older one, and started again.
  func changeProgram(_ machine: Machine) throws {
    machine.isOld.toggle()
    counts.kills += 1
    try restart(machine, isHealthy: true)
  }

  /// A person carries the group keys to those whose program does not know how to ask for them.
  func shareKeys(_ chosen: [Machine]) throws {
    for from in chosen {
      for to in chosen where from !== to {
        try trying(to) { try StoreKeys(to.store).merge(StoreKeys(from.store).groupKeys()) }
      }
    }
  }

  /// Does what may meet a fault that was planned.
  private func trying(_ machine: Machine, _ body: () throws -> Void) throws {
    do { try body() } catch let error as StoreError {
      try endure(error, machine)
    } catch let error as ReplicationError {
      guard let failure = error.store else { throw error }
      try endure(failure, machine)
    }
  }
}
