import SyncStore
import SyncTestSupport

/// Events that no check at opening detects, and damage below the watermark: rolled-back machines, machines
/// cloned while they run, damaged records.
extension Twin {
  /// Rolls the machine back to the backup, under the same inodes, and boots it.
  func rollBack(_ copy: Int, _ which: Int) throws {
    guard let pasts = backups[copy], !pasts.isEmpty else { return }
    let machine = machines[copy]
    let number = which % pasts.count
    let backup = machine.backups[number]
    machine.host.losePower(seed: random.next())
    let storage = machine.host.storage
    for path in try storage.files(below: backup.path).keys.sorted() where backup.files[path] == nil {
      _ = try storage.remove(path)
    }
    try storage.restore(backup.files)
    machine.path = backup.path
    machine.store = try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
    dropRounds(of: copy)
    let (state, index) = try findPast(of: machine.store, in: copy, pasts[number][...])
    model.copies[copy].backups[number] = state
    try model.step(.rollback(copy, which: number))
    // If a tail that may have been seen was cut, it is a new actor.
    if try machine.store.actor.low != state.actor.number { model.renew(copy) }
    machine.past = Array(pasts[number][...index])
    capture(copy)
    settle(copy)
  }

  /// From now on the machine runs twice. A process cloned with its memory is covered by `ClonedMachineTests`;
  /// here the clone's processes start anew.
  func duplicate(_ copy: Int) throws {
    guard machines.count < Model.mostCopies, model.copies[copy].isAlive else { return }
    try wake(copy)
    let machine = machines[copy]
    let host = try machine.host.cloned(reseeded: random.next())
    host.killProcesses()
    let store = try Store.open(machine.path, on: host, configuration: Self.configuration)
    try model.step(.duplicate(copy))
    let clone = Machine(host, machine.path, store)
    clone.beaten = machine.beaten
    // Within the same boot the index is trusted, which keeps the clock rounded up.
    let clock = model.copies[copy].live.clock
    model.copies[machines.count].live.clock = clock + clock % 2
    // Its journal contains the past of both.
    clone.past = machine.past
    machines.append(clone)
    capture(machines.count - 1)
    settle(machines.count - 1)
    try compare(machines.count - 1, .duplicate(copy))
  }

  /// Makes the only record held of a key unreadable, below the watermark.
  func damage(_ copy: Int, _ key: Int) throws {
    try sync(copy)
    let live = model.copies[copy].live
    guard model.copies[copy].isAlive, live.held(key) != nil, live.suspects.isEmpty else { return }
    let machine = machines[copy]
    // Each append states the durable length before it.
    for number in 0..<2 { try machine.store.setLocal(Self.mark, [UInt8(number)]) }
    let parked = Set(live.parked(key).map(\.dot))
    let name = try Self.key(key)
    let doomed = try machine.store.log(from: 1, limit: .max).filter { entry in
      entry.key == name
        && !parked.contains {
          $0.actor.number == Int(entry.dot.actor.low) && $0.sequence == Int(entry.dot.sequence)
        }
    }
    // Damage that spans several records cannot be attributed, and makes more keys unreadable (decision 7).
    guard doomed.count == 1 else { return }
    try flip(doomed[0], name.bytes, of: machine)
    machine.host.losePower(seed: random.next())
    machine.store = try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
    dropRounds(of: copy)
    try model.step(.damage(copy, key: key))
    // The stamps of lost records are forgotten.
    model.copies[copy].live.reread(limit: model.limit(copy))
    machine.past = []
    capture(copy)
    settle(copy)
  }

  /// Deletes a key whose damaged record the model does not know.
  func delete(_ copy: Int, _ key: Int, _ operation: Model.Operation) throws {
    guard model.copies[copy].wants(key) else { return }
    try wake(copy)
    let (store, name) = (machines[copy].store, try Self.key(key))
    do {
      _ = try store.get(name)
      try model.step(operation)
    } catch let error as StoreError where error.code == .damaged {
      try model.deleteUnreadable(copy, key)
    }
    try store.delete(name, durability: .relaxed)
    capture(copy)
  }

  private static let mark = Array("twin/mark".utf8)

  /// Flips a bit of the record in the journal.
  private func flip(_ entry: LogEntry, _ key: [UInt8], of machine: Machine) throws {
    let wanted = Self.bytes(entry.dot.sequence) + Self.bytes(entry.stamp.rawValue)
    let files = try machine.host.storage.files(below: machine.path + "/journal")
    for (path, bytes) in files.sorted(by: { $0.key < $1.key }) where path.hasSuffix(".segment") {
      // Records start at multiples of 8: checksum, length, durable, kind (12), flags (13) … sequence (24),
      // stamp (32).
      for place in stride(from: 0, to: bytes.count - 80, by: 8)
      where bytes[place + 24..<place + 40].elementsEqual(wanted) {
        let (kind, flags) = (bytes[place + 12], bytes[place + 13])
        guard [1, 3].contains(kind), flags & 16 == 0 else { continue }
        // Base, deadline and open dots come before the key.
        var start = place + 40 + (flags & 2 == 0 ? 0 : 10) + (flags & 4 == 0 ? 0 : 8)
        if flags & 8 != 0 { start += 2 + 10 * Int(bytes[start]) }
        guard bytes[start..<start + key.count].elementsEqual(key) else { continue }
        let byte = random.chance(50) ? start : place + 24 + random.below(16)
        try machine.host.storage.flipBit(of: path, at: byte, bit: random.below(8))
        return
      }
    }
    throw Mismatch("no record \(entry.dot) in the journal")
  }

  private static func bytes(_ word: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) }
  }

  // MARK: Handshakes

  /// Performs the checks of a handshake, and takes new actors. The model does the same when it opens the
  /// round.
  func shakeHands(_ sender: Int, _ receiver: Int) throws {
    guard forks, abs(model.copies[sender].skew - model.copies[receiver].skew) <= Model.drift else { return }
    names.next = model.actorCount + 1
    if try machines[sender].store.actor == machines[receiver].store.actor { try renew(receiver) }
    for (copy, other) in [(sender, receiver), (receiver, sender)]
    where try machines[other].store.replicaSummary().abandonedActors.contains(machines[copy].store.actor) {
      try renew(copy)
    }
    if try knowsMore(of: sender, receiver) { try renew(sender) }
    if try knowsMore(of: receiver, sender) { try renew(receiver) }
  }

  private func renew(_ copy: Int) throws {
    try machines[copy].store.becomeNewActor()
    dropRounds(of: copy)
  }

  /// Whether `other` knows writes of the actor of `copy` that `copy` does not (R9).
  private func knowsMore(of copy: Int, _ other: Int) throws -> Bool {
    let (own, theirs) = (machines[copy].store, machines[other].store)
    let (actor, sequence) = (try own.actor, try own.replicaSummary().sequence)
    if try theirs.versionVector()[actor] > sequence { return true }
    if try theirs.log(from: 1, limit: .max).contains(where: {
      $0.isCurrent && $0.dot.actor == actor && $0.dot.sequence > sequence
    }) {
      return true
    }
    guard let cursor = try theirs.cursor(for: actor) else { return false }
    return try own.local(Array("mark/".utf8) + cursor.mark.bytes) == nil
  }

  /// The model, like the store, refuses a round from a sender that needs full state itself.
  func expectRefusal(_ sender: Int, _ receiver: Int) throws {
    let (from, to) = (machines[sender].store, machines[receiver].store)
    do {
      _ = try from.openRound(for: try self.receiver(to, of: from))
    } catch let error as StoreError where error.code == .unsettled {
      return
    }
    throw Mismatch("a round of \(sender) for \(receiver), which the model refuses")
  }

  // MARK: Repair

  /// Two copies that have met compare their digests, and repair differences.
  func compareAndRepair(_ one: Int, _ other: Int) throws {
    let time = UInt64(min(model.wall(one), model.wall(other)) * Self.unit)
    let units = Int(time) / Self.unit
    let isSame = model.digest(one, at: units) == model.digest(other, at: units)
    let stores = [one, other].map { machines[$0].store }
    guard try (stores[0].digest(at: time) == stores[1].digest(at: time)) == isSame else {
      throw Mismatch("the digests of \(one) and \(other) are \(isSame ? "not equal" : "equal")")
    }
    let alarms = model.count(of: .alarm)
    names.next = model.actorCount + 1
    try model.compare(one, other)
    guard model.count(of: .alarm) > alarms else { return }
    let keys = try (0..<model.keys).map { try Self.key($0).bytes }
    let scopes = try stores.map { RepairScope(time: time, position: try $0.replicaSummary().position) }
    let records = try zip(stores, scopes).map { store, scope in
      try Dictionary(uniqueKeysWithValues: store.records(of: keys, scope).map { ($0.key, $0) })
    }
    for (steps, side) in [(RepairSteps.keep, 0), (.keep, 1), (.issue, 0), (.issue, 1)] {
      let next = names.next
      let outcome = try stores[side].repair(
        keys, against: records[1 - side], scope: scopes[side], steps: steps)
      // It requests a dot before it knows whether it needs one.
      if !outcome.hasNewActor { names.next = next } else { dropRounds(of: [one, other][side]) }
    }
    for copy in [one, other] {
      capture(copy)
      settle(copy)
    }
  }
}
