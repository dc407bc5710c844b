import SyncStore
import SyncTestSupport

/// Writes of programs; the oracle is told of each one first.
extension Simulation {
  func write(_ machine: Machine) throws {
    wake(machine)
    let isDurable = random.chance(60)
    let durability: Durability = isDurable ? .full : .relaxed
    do {
      for _ in 0..<(1 + random.below(20)) {
        counts.writes += 1
        try writeOnce(machine, durability)
      }
      if isDurable {
        let own = try machine.store.actor
        machine.durable = Dot(actor: own, sequence: try machine.store.versionVector()[own])
      }
    } catch let error as StoreError {
      try endure(error, machine)
    }
    try look(machine)
    grow(machine)
  }

  private func writeOnce(_ machine: Machine, _ durability: Durability) throws {
    let key = random.pick(keys)
    switch random.below(20) {
    case 0...2: try delete(machine, key, durability)
    case 3:
      var deadline = UInt64(Int64(now) + machine.skew) + 1000 + below(3_600_000)
      // Longer than the healing, so that it still exists afterwards.
      if options.isExtended, additions.chance(30) {
        deadline = end + 3 * 3_600_000 + UInt64(additions.below(3_600_000))
      }
      try put(machine, key, value(40), expires: deadline, durability)
    case 4: try put(machine, key, value(2049 + random.below(20_000)), durability)
    case 5: try transact(machine, durability)
    default: try put(machine, key, value(random.below(100)), durability)
    }
  }

  /// Bytes unique among the writes of the key.
  private func value(_ size: Int) -> [UInt8] {
    Array("\(counts.writes)/".utf8) + random.bytes(size)
  }

  /// Writes a key, and checks that exactly this was done.
  func put(
    _ machine: Machine, _ key: Key, _ bytes: [UInt8], expires deadline: UInt64? = nil,
    _ durability: Durability? = nil
  ) throws {
    let content = Oracle.Content(bytes: bytes, deadline: deadline ?? 0)
    oracle.ask(key, content)
    let before = try value(of: key, machine)
    try machine.store.put(key, bytes, expiration: deadline.map { .at($0) }, durability: durability)
    replace([key: before], by: try confirm([Oracle.Asked(key: key, content: content)], machine))
  }

  private func delete(_ machine: Machine, _ key: Key, _ durability: Durability) throws {
    oracle.ask(key, .deleted)
    let asked = Oracle.Asked(key: key, content: .deleted)
    let before = try value(of: key, machine)
    let hadValue = try machine.store.delete(key, durability: durability)
    replace([key: before], by: try confirm(hadValue ? [asked] : [], machine))
    try confirmRead(asked, machine)
  }

  private func transact(_ machine: Machine, _ durability: Durability) throws {
    let chosen = Array(Set((0..<(2 + random.below(4))).map { _ in random.pick(keys) })).sorted()
    let asked = chosen.map { key in
      Oracle.Asked(key: key, content: random.chance(15) ? .deleted : Oracle.Content(bytes: value(30)))
    }
    try look(machine)
    let number = oracle.ask(together: asked)
    let before = try chosen.map { ($0, try value(of: $0, machine)) }
    var written: [Oracle.Asked] = []
    try machine.store.transaction(durability: durability) { transaction in
      for item in asked {
        if let bytes = item.content.bytes {
          try transaction.put(item.key, bytes)
        } else if try !transaction.delete(item.key) {
          continue
        }
        written.append(item)
      }
    }
    let dots = try confirm(written, machine)
    oracle.join(all: dots, to: number)
    replace(Dictionary(uniqueKeysWithValues: before), by: dots)
    for item in asked { try confirmRead(item, machine) }
  }

  /// The value of a key, even if its bytes are still in transit or it has expired.
  private func value(of key: Key, _ machine: Machine) throws -> [UInt8]? {
    try machine.store.explain(key).flatMap { try oracle.content(of: $0.winner, at: machine.name).bytes }
  }

  /// Records that these writes were made when their keys had these values.
  private func replace(_ before: [Key: [UInt8]?], by dots: [Dot]) {
    for dot in dots {
      guard let key = oracle.writes[dot]?.key, let bytes = before[key] ?? nil else { continue }
      oracle.past.replace(bytes, by: dot)
    }
  }

  /// After a call without an error, both the journal and a read must show its writes. Returns the dots.
  @discardableResult
  private func confirm(_ asked: [Oracle.Asked], _ machine: Machine) throws -> [Dot] {
    let entries = try machine.store.log(from: machine.seen.position + 1, limit: .max)
    let dots = try oracle.see(entries, at: machine.name, for: asked, by: try machine.store.actor)
    for entry in entries { machine.seen.add(entry) }
    for item in asked { try confirmRead(item, machine) }
    return dots
  }

  private func confirmRead(_ asked: Oracle.Asked, _ machine: Machine) throws {
    let bytes = try machine.store.get(asked.key)?.bytes
    guard bytes == asked.content.bytes else {
      throw Oracle.Violation(
        "\(machine.name) was asked for \(asked), and reads \(Oracle.Content(bytes: bytes)) at once")
    }
  }

  // MARK: Observation

  /// The oracle reads the entries appended since the last call.
  func look(_ machine: Machine) throws {
    do {
      for entry in try machine.store.log(from: machine.seen.position + 1, limit: .max) {
        try oracle.see(entry, at: machine.name)
        machine.seen.add(entry)
      }
      try oracle.judgeReturns(to: machine.store, machine.name, at: machine.host.time, &machine.seen)
    } catch let error as StoreError {
      try endure(error, machine)
    }
  }

  /// The oracle checks a whole copy.
  func check(_ machine: Machine) throws {
    counts.checks += 1
    let clocks = Oracle.Clocks(own: machine.host.time, latest: latest)
    do { try oracle.check(machine.store, machine.name, clocks) } catch let error as StoreError {
      // Reading its first large value makes the store persist what it finds.
      try endure(error, machine)
    }
  }

  /// Checks the copies that have changed since their last whole check.
  func checkChanged() throws {
    for machine in machines where machine.store.journalPosition != machine.checkedTo {
      wake(machine)
      try look(machine)
      try check(machine)
      machine.checkedTo = machine.store.journalPosition
    }
  }

  /// Checks the copies whose sessions have ended.
  func checkEnded() throws {
    guard !ended.isEmpty else { return }
    for number in ended.sorted() {
      try look(machines[number])
      try check(machines[number])
    }
    ended = []
  }
}
