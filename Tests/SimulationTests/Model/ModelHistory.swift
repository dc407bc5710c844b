import SyncTestSupport

extension Model {
  /// A run: its initial world and its operations.
  struct History {
    /// Kind of history: which operations may occur.
    enum Kind: String, CaseIterable {
      /// Everything except undetectable rollbacks.
      case anything
      /// Some members hold only a part of the keys.
      case selective
      /// All members are active all the time.
      case active
      /// Machines are rolled back in place, and cloned while they run.
      case rollbacks
      /// Clocks are wrong most of the time; members acknowledge and purge often.
      case clocks
      /// No acknowledgements, no purges.
      case plain
    }

    /// The operations that a random history draws.
    struct Mixture: CustomStringConvertible {
      var kind = Kind.anything
      /// Whether records are damaged.
      var damages = false
      var use = Relay.Use.none
      /// Whether the relay loses entries.
      var losesEntries = false

      var description: String {
        (use == .none ? "\(kind)" : "\(kind), relay \(use)") + (damages ? ", damage" : "")
          + (losesEntries ? ", lost entries" : "")
      }
    }

    var copies: Int
    var keys: Int
    var kind = Kind.anything
    var use = Relay.Use.none
    var operations: [Operation] = []

    /// The initial world.
    func world(_ rules: Rules) -> World {
      var world = World(rules, copies: copies, keys: keys, forks: kind == .rollbacks)
      world.relay.use = use
      return world
    }

    /// The initial world; a history of kind `active` sets `isActive` and what follows from it.
    private func begun(_ rules: Rules) -> World {
      var world = world(rules)
      world.isActive = kind == .active
      if world.isActive { world.retirement = 1_000 }
      return world
    }

    /// Plays it, and heals. Returns the violation found, and after how many operations.
    func play(_ rules: Rules = Rules()) -> (violation: Violation, steps: Int)? {
      var world = begun(rules)
      var steps = 0
      do throws(Violation) {
        for operation in operations {
          steps += 1
          try world.step(operation)
          try world.checkStep()
          try world.checkRelay()
        }
        try world.heal()
      } catch {
        return (error, steps)
      }
      return nil
    }

    /// Result of a random history.
    struct Outcome {
      var history: History
      var world: World
      var violation: Violation?
    }

    /// Plays a random history with that many operations, then heals.
    static func random(
      seed: UInt64, _ mixture: Mixture = Mixture(), steps: Int = 100, rules: Rules = Rules(),
      isStrict: Bool = false
    ) -> Outcome {
      var random = SplitMix64(seed: seed)
      let copies = [2, 3, 3, 4, 5][random.below(5)]
      let kind = mixture.kind
      var history = History(copies: copies, keys: 1 + random.below(4), kind: kind, use: mixture.use)
      var chooser = Chooser(mixture, &random)
      var world = history.begun(rules)
      world.isStrict = isStrict
      world.scopedPercent = kind == .selective ? 60 : 0
      if kind == .active {
        history.operations = (0..<copies).map { .acknowledge($0) }
        for _ in 0..<2 {
          for one in 0..<copies { for other in 0..<one { history.operations.append(.meet(one, other)) } }
        }
        history.operations += (0..<copies).map { .sync($0) }
      }
      do throws(Violation) {
        for operation in history.operations {
          try world.step(operation)
          try world.checkStep()
        }
        for _ in 0..<steps {
          let operation = chooser.choose(world, &random)
          history.operations.append(operation)
          try world.step(operation)
          try world.checkStep()
          try world.checkRelay()
        }
        try world.heal()
      } catch {
        return Outcome(history: history, world: world, violation: error)
      }
      return Outcome(history: history, world: world, violation: nil)
    }
  }
}

extension Model.History: CustomStringConvertible {
  /// One line: kind, copies, keys, the use of the relay if there is one, operations. Parsed by `init(_:)`.
  var description: String {
    "\(kind) \(copies) \(keys)\(use == .none ? "" : " \(use)");"
      + operations.map(\.description).joined(separator: ";")
  }

  /// Parses `description`; nil for anything else.
  init?(_ text: some StringProtocol) {
    let parts = text.split(separator: ";", omittingEmptySubsequences: false)
    let head = parts[0].split(separator: " ")
    guard head.count == 3 || head.count == 4, let kind = Kind(rawValue: String(head[0])),
      let copies = Int(head[1]), let keys = Int(head[2]),
      let use = head.count == 3 ? Model.Relay.Use.none : Model.Relay.Use(rawValue: String(head[3]))
    else { return nil }
    let operations = parts.dropFirst().compactMap { Model.Operation($0) }
    guard operations.count == parts.count - 1 else { return nil }
    self.init(copies: copies, keys: keys, kind: kind, use: use, operations: operations)
  }
}

extension SplitMix64 {
  /// A number in 0 ..< `bound`.
  mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }
  /// A random element.
  mutating func pick<Element>(_ elements: [Element]) -> Element { elements[below(elements.count)] }
}

extension Model {
  /// Chooses operations by weights, drawn per history (swarm testing, Groce et al. 2012).
  struct Chooser {
    enum Choice: CaseIterable {
      case put, mortal, delete, future, sync, crash, open, deliver, close, cut, meet, acknowledge, purge,
        compact
      case time, leap, skew, away, back, backup, restore, clone, join, lose, damage, rollback, duplicate
      case publish, publishAndCrash, checkpoint, fetch, fetchPart, poll, read, collect, entryLoss, newcomer
    }

    private var sums: [(choice: Choice, upTo: Double)] = []
    private var total = 0.0

    init(_ mixture: History.Mixture, _ random: inout SplitMix64) {
      for choice in Choice.allCases {
        let weight = Self.relayWeight(choice, mixture) ?? Self.weight(choice, mixture.kind, mixture.damages)
        guard weight > 0 else { continue }
        let lean: Double =
          switch choice {
          case .put, .delete, .meet, .open, .publish, .poll: random.pick([0.5, 1, 2])
          default: random.pick([0, 0.3, 1, 1, 2, 4])
          }
        total += weight * lean
        sums.append((choice, total))
      }
    }

    private static func weight(_ choice: Choice, _ kind: History.Kind, _ damages: Bool) -> Double {
      switch (kind, choice) {
      case (.selective, .lose), (.selective, .restore), (.rollbacks, .future): return 0
      case (.active, .leap), (.active, .away), (.active, .restore), (.active, .clone),
        (.active, .join), (.active, .lose):
        return 0
      case (.clocks, .crash), (.clocks, .clone), (.clocks, .restore), (.clocks, .backup), (.clocks, .compact):
        return 0
      case (.clocks, .skew), (.clocks, .acknowledge), (.clocks, .purge): return 14
      case (.clocks, .future), (.clocks, .away): return 4
      case (.plain, .acknowledge), (.plain, .purge), (.plain, .leap): return 0
      case (.rollbacks, .rollback): return 2
      case (.rollbacks, .duplicate): return 0.7
      case (_, .rollback), (_, .duplicate): return 0
      case (_, .damage): return damages ? 1 : 0
      default: break
      }
      switch choice {
      case .put: return 16
      case .deliver: return 14
      case .delete, .open, .close, .meet, .purge: return 10
      case .acknowledge: return 9
      case .time: return 8
      case .sync: return 4
      case .mortal, .cut, .back, .backup: return 3
      case .crash, .compact, .away: return 2
      case .skew: return 2
      case .lose: return 0.4
      default: return 1
      }
    }

    /// Weights that depend on the relay; nil for all others.
    private static func relayWeight(_ choice: Choice, _ mixture: History.Mixture) -> Double? {
      let weight: Double
      switch choice {
      case .open, .deliver, .close, .cut, .meet, .join: return mixture.use == .alone ? 0 : nil
      case .publish: weight = 12
      case .fetch, .poll: weight = 10
      case .fetchPart: weight = 4
      case .checkpoint, .read: weight = 3
      case .collect: weight = 2
      case .publishAndCrash: weight = 1.5
      case .entryLoss: weight = mixture.losesEntries ? 1 : 0
      case .newcomer: weight = 0.7
      default: return nil
      }
      return mixture.use == .none ? 0 : weight
    }

    private func chooseRelay(_ choice: Choice, _ copy: Int, _ world: World, _ random: inout SplitMix64)
      -> RelayOperation
    {
      switch choice {
      case .publish: .publish(copy, .never)
      case .publishAndCrash: .publish(copy, random.pick([.afterCreation, .beforeCreation]))
      case .checkpoint: .checkpoint(copy)
      case .fetch: .fetch(copy, stream: random.below(8), count: nil)
      case .fetchPart: .fetch(copy, stream: random.below(8), count: random.pick([0, 1, 1, 2]))
      case .read: .read(copy, checkpoint: random.pick([-1, -1, 0]))
      case .collect: .collect(checkpoint: random.pick([-1, -1, 0]))
      case .entryLoss: .loss(stream: random.below(8), count: random.pick([1, 1, 2, 3]))
      case .newcomer: .newcomer(isScoped: random.chance(UInt64(world.scopedPercent)))
      default: .poll(copy)
      }
    }

    mutating func choose(_ world: World, _ random: inout SplitMix64) -> Operation {
      let copy = random.below(world.copies.count)
      let key = random.below(world.keys)
      let point = Double(random.next() >> 11) / Double(1 << 53) * total
      let choice = sums.first { point < $0.upTo }?.choice ?? .put
      switch choice {
      case .put: return .put(copy, key: key, life: 0)
      case .mortal: return .put(copy, key: key, life: random.pick([2, 6, 20]))
      case .delete: return .delete(copy, key: key)
      case .future: return .future(copy, key: key, isDelete: random.chance(40))
      case .sync: return .sync(copy)
      case .crash: return .crash(copy)
      case .acknowledge: return .acknowledge(copy)
      case .purge: return .purge(copy)
      case .compact: return .compact(copy)
      case .time: return .time(random.pick([1, 1, 2, 4, 12]))
      case .leap: return .time(Model.retirement + 5)
      case .skew: return .skew(copy, random.pick([-2, -1, 0, 0, 1, 2, 9]))
      case .away: return .away(copy, true)
      case .back: return .away(copy, false)
      case .backup: return .backup(copy)
      case .restore: return .restore(copy, which: random.below(3))
      case .clone: return .clone(copy, ofBackup: random.chance(50))
      case .join: return .join(copy, isScoped: random.chance(UInt64(world.scopedPercent)))
      case .lose: return .lose(copy)
      case .damage: return .damage(copy, key: key)
      case .rollback: return .rollback(copy, which: random.below(3))
      case .duplicate: return .duplicate(copy)
      case .open, .meet, .deliver, .close, .cut: break
      default: return .relay(chooseRelay(choice, copy, world, &random))
      }
      let other = random.below(world.copies.count)
      if choice == .meet { return .meet(copy, other) }
      guard choice != .open, !world.rounds.isEmpty else { return .open(copy, other) }
      let round = random.pick(world.rounds)
      switch choice {
      case .deliver: return .deliver(round.sender, round.receiver, count: random.pick([1, 1, 2, 3]))
      case .close: return .close(round.sender, round.receiver)
      default: return .cut(round.sender, round.receiver)
      }
    }
  }
}
