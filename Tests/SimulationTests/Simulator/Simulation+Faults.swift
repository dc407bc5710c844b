import Glibc
import Replication
import SyncStore
import SyncTestSupport

/// Fault injection.
extension Simulation {
  func strike() throws {
    let machine = random.pick(machines)
    wake(machine)
    if options.hasRights, rights.chance(6) { restrict(rights.pick(machines)) }
    if options.rollsBack, random.chance(40) { return try rollBack(machine) }
    switch random.below(18) {
    case 0...2: try crash(machine)
    case 3:
      machine.host.storage.free = random.below(300_000)
      queue.schedule(.relief(machine.number), at: now + 60_000 + below(1_200_000))
    case 4: try failSync(machine)
    case 5, 6:
      counts.clockJumps += 1
      // Sometimes beyond the drift limit: its sessions are refused, and its writes are parked.
      machine.skew = Int64(below(random.chance(20) ? 1_200_000 : 50_000)) - 25_000
    case 7: try clone(machine)
    case 8: try backUp(machine)
    case 9: try restore(machine)
    case 10: try compact(machine)
    case 11:
      if options.isExtended, additions.chance(40) { return partition() }
      machine.awayUntil = now + below(3_600_000)
    case 12, 13: if let link = links.keys.sorted().randomElement(using: &random) { cut(link) }
    case 14, 15: try purge(machine)
    case 16: if relay == nil { try revoke(machine) }
    default: if relay == nil { try changeProgram(machine) }
    }
  }

  /// Partitions the network for a while.
  private func partition() {
    counts.partitions += 1
    partitioned = (
      Set(machines.map(\.number).filter { _ in additions.chance(50) }), now + 60_000 + below(3_600_000)
    )
    for number in links.keys.sorted() {
      if let link = links[number], areParted(link.client, link.server) { cut(number) }
    }
  }

  /// Accepts the errors that a store reports for faults its disk has had since the open. Anything else is a
  /// failure.
  func endure(_ error: StoreError, _ machine: Machine) throws {
    count(error)
    let storage = machine.host.storage
    let hasFailed = storage.failures > machine.failuresBefore
    switch error.code {
    case .diskFull where hasFailed || storage.free != nil: return
    case .poisoned where hasFailed, .inputOutput where hasFailed, .readOnly where hasFailed,
      .closed where hasFailed:
      try restart(machine)
    case .rolledBack where options.rollsBack: return
    default: throw error
    }
  }

  private func count(_ error: StoreError) {
    if error.code == .diskFull { counts.fullDisks += 1 }
    if error.errno == EIO { counts.failedSyncs += 1 }
  }

  // MARK: Processes and power

  func crash(_ machine: Machine) throws {
    wake(machine)
    if random.chance(60) { return try losePower(machine) }
    counts.kills += 1
    try restart(machine, isHealthy: true)
  }

  private func losePower(_ machine: Machine) throws {
    counts.crashes += 1
    try look(machine)
    let before = try machine.store.versionVector()
    let actor = try machine.store.actor
    machine.host.losePower(seed: random.next())
    try reopen(machine, before, actor)
    machine.received = nil
  }

  /// Kills and restarts the process. If it `isHealthy` until then, all its writes must be there, durable or
  /// not.
  func restart(_ machine: Machine, isHealthy: Bool = false) throws {
    let (before, actor) = (try? machine.store.versionVector(), try? machine.store.actor)
    machine.host.killProcesses()
    guard let before, let actor else { return try reopen(machine, VersionVector(), nil) }
    try reopen(machine, before, actor)
    if isHealthy, try machine.store.versionVector()[actor] < before[actor] {
      throw Oracle.Violation("\(machine.name) has lost writes though only its process was killed")
    }
  }

  /// Reopens the store; all durable writes must be there.
  private func reopen(_ machine: Machine, _ before: VersionVector, _ actor: ActorID?) throws {
    dropLinks(of: machine)
    machine.store = try openAgain(machine)
    let after = try machine.store.versionVector()
    guard let actor else { return machine.seen = Oracle.Seen() }
    if let durable = machine.durable, durable.actor == actor, after[actor] < durable.sequence {
      throw Oracle.Violation(
        "\(machine.name) has lost acknowledged writes: \(after[actor]) of \(durable.sequence) are there")
    }
    promise(machine)
    // Received records were made durable before they were acknowledged.
    // What came with a pull that failed was not acknowledged, nor were writes under a name that it gave up.
    let received = machine.received?.bound(before) ?? before
    guard Oracle.Coverage(after).has(Oracle.Coverage(received), but: actor) else {
      throw Oracle.Violation("\(machine.name) has lost what it had received: \(after) of \(received)")
    }
    let others = machines.filter { $0 !== machine }.map { ($0.name, $0.store) }
    try oracle.lose(actor, above: after[actor], upTo: before[actor], others: others)
    for index in machine.backups.indices where machine.backups[index].last.actor == actor {
      let kept = min(machine.backups[index].last.sequence, after[actor])
      machine.backups[index].last = Dot(actor: actor, sequence: kept)
    }
    machine.seen = Oracle.Seen()
    if try machine.store.actor != actor { machine.durable = nil }
    try look(machine)
    try check(machine)
  }

  /// Writes acknowledged as durable under one actor stay so when the machine continues under another.
  func promise(_ machine: Machine) {
    guard let durable = machine.durable else { return }
    machine.promised[durable.actor] = max(machine.promised[durable.actor] ?? 0, durable.sequence)
  }

  private func openAgain(_ machine: Machine) throws -> Store {
    machine.failuresBefore = machine.host.storage.failures
    var attempts = 0
    while true {
      attempts += 1
      let opened = Result {
        try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
      }
      guard case .failure(let error as StoreError) = opened, attempts < 6,
        [.diskFull, .inputOutput, .poisoned].contains(error.code)
      else { return try opened.get() }
      count(error)
      // Space is freed; a sync that had to fail has failed.
      machine.host.storage.free = nil
    }
  }

  /// Makes the next sync of a file or directory of the store fail.
  private func failSync(_ machine: Machine) throws {
    let storage = machine.host.storage
    let directory = machine.path + "/journal"
    let last = try storage.list(directory).last { $0.hasSuffix(".segment") }
    if options.isExtended, additions.chance(50) {
      let files = try storage.files(below: machine.path).keys
      let directories = files.map { String($0[..<($0.lastIndex(of: "/") ?? $0.endIndex)]) }
      storage.failSync(of: additions.pick(Set(directories).union(files).sorted()))
    } else if let last {
      storage.failSync(of: directory + "/" + last)
    }
  }

  private func compact(_ machine: Machine) throws {
    counts.compactions += 1
    do {
      try put(machine, "filler", Array("\(counts.events)/".utf8) + [UInt8](repeating: 7, count: 2000))
      try machine.store.compact()
    } catch let error as StoreError {
      try endure(error, machine)
    }
    try look(machine)
    try check(machine)
  }

  // MARK: Copied directories

  private func clone(_ machine: Machine) throws {
    guard machines.count < Self.mostMachines else { return }
    counts.clones += 1
    let host = SimulatedHost(
      seed: random.next(), time: now, machine: "machine \(machines.count)",
      encrypted: machine.host.isEncrypted)
    try host.storage.install(
      try machine.host.storage.files(below: machine.path), from: machine.path, at: "/store")
    try start(host, machine)
  }

  private func start(_ host: SimulatedHost, _ original: Machine) throws {
    let store = try Store.open("/store", on: host, configuration: Self.configuration)
    guard try store.actor != original.store.actor else {
      throw Oracle.Violation("a copy of \(original.name) goes on under its name")
    }
    let copy = Machine(machines.count, host, "/store", store)
    copy.neighbours = original.neighbours.isEmpty ? [original.number] : original.neighbours
    (copy.device, copy.isOld) = (original.device, original.isOld)
    machines.append(copy)
    try look(copy)
    try check(copy)
    begin(copy.number)
  }

  private func backUp(_ machine: Machine) throws {
    let actor = try machine.store.actor
    machine.backups.append(
      Backup(
        path: machine.path, files: try machine.host.storage.files(below: machine.path),
        last: Dot(actor: actor, sequence: try machine.store.versionVector()[actor])))
    if machine.backups.count > 3 { machine.backups.removeFirst() }
  }

  /// An old copy of the directory replaces the present one, which is never opened again.
  private func restore(_ machine: Machine) throws {
    guard let backup = machine.backups.randomElement(using: &random) else { return }
    counts.restores += 1
    try look(machine)
    let former = try machine.store.actor
    dropLinks(of: machine)
    machine.host.killProcesses()
    machine.path = "/restored.\(counts.events)"
    // Later writes may be lost everywhere.
    machine.promised = [:]
    machine.host.storage.free = nil
    try machine.host.storage.install(backup.files, from: backup.path, at: machine.path)
    // A copied directory is made durable at its first open: a planned sync failure strikes there.
    machine.store = try openAgain(machine)
    guard try machine.store.actor != former else {
      throw Oracle.Violation(
        "\(machine.name) goes on under the name it had, though it was restored from a backup")
    }
    (machine.durable, machine.seen, machine.received) = (nil, Oracle.Seen(), nil)
    try look(machine)
    try check(machine)
  }

  /// Restores the files under their inodes, or keeps them for the next time if there are none yet.
  private func rollBack(_ machine: Machine) throws {
    guard let backup = machine.backups.last(where: { $0.path == machine.path }) else {
      return try backUp(machine)
    }
    counts.rollbacks += 1
    try look(machine)
    dropLinks(of: machine)
    machine.host.killProcesses()
    machine.host.storage.free = nil
    machine.host.storage.endSyncFailures()
    for path in try machine.host.storage.files(below: machine.path).keys.sorted()
    where backup.files[path] == nil {
      _ = try machine.host.storage.remove(path)
    }
    try machine.host.storage.restore(backup.files)
    machine.store = try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
    (machine.durable, machine.seen, machine.promised) = (nil, Oracle.Seen(), [:])
    machine.received = nil
    let actor = try machine.store.actor
    let last = try machine.store.versionVector()[actor]
    let sure = backup.last.actor == actor ? min(backup.last.sequence, last) : last
    if sure < last { revivals += 1 }
    oracle.doubt(actor, above: sure)
    try look(machine)
    try check(machine)
  }
}
