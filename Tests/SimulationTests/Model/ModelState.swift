extension Model {
  /// The journal state of one copy. A power loss replaces the live state with the durable one.
  struct State: Equatable {
    struct Entry: Equatable {
      let position: Int
      let record: Record
    }

    /// How far a sender's journal was received.
    struct Cursor: Equatable {
      let position: Int
      let mark: Int
      let isClosed: Bool
    }

    /// Records of one key that are stamped too far ahead.
    struct Parked: Equatable {
      let key: Int
      var records: [Record]
    }

    /// All records parked up to a position, with stamps up to a limit, were applied.
    struct Release: Equatable {
      let position: Int
      let limit: Int
    }

    /// Own records above that sequence whose dots a lost fork may also have used.
    struct Suspect: Equatable {
      let actor: Actor
      let above: Int
    }

    var actor: Actor
    var sequence = 0
    var clock = 0
    var vector = Vector()
    var floor = Vector()
    var horizon = 0
    /// The greatest applied record of each key, in the order in which keys were first held.
    private(set) var held: [Record] = []
    var parked: [Parked] = []
    /// Retained records, by position.
    var log: [Entry] = []
    var position = 0
    var releases: [Release] = []
    /// By the sender's actor.
    var cursors = Table<Cursor>()
    /// Marks of own rounds.
    var marks: [Int] = []
    var mark: Int?
    var markedPosition = 0
    var markedSequence = 0
    var losers: [Record] = []
    /// All own incarnations.
    var mine: [Actor]
    var suspects: [Suspect] = []
    /// Own incarnations given up because a fork may use them.
    var retracted: [Actor] = []
    /// Damaged: the vector is below the covered state, possibly below the floor.
    var isMending = false
    var relay = RelayState()

    init(_ actor: Actor) {
      self.actor = actor
      mine = [actor]
    }

    // MARK: Held records

    func held(_ key: Int) -> Record? {
      for record in held where record.key == key { return record }
      return nil
    }

    mutating func hold(_ record: Record) {
      for index in held.indices where held[index].key == record.key {
        held[index] = record
        return
      }
      held.append(record)
    }

    mutating func drop(_ key: Int) { held.removeAll { $0.key == key } }

    func parked(_ key: Int) -> [Record] {
      for group in parked where group.key == key { return group.records }
      return []
    }

    mutating func park(_ record: Record) {
      for index in parked.indices where parked[index].key == record.key {
        parked[index].records.append(record)
        return
      }
      parked.append(Parked(key: record.key, records: [record]))
    }

    /// Replaces the parked records of a key.
    mutating func setParked(_ key: Int, _ records: [Record]) {
      guard let index = parked.firstIndex(where: { $0.key == key }) else { return }
      if records.isEmpty { parked.remove(at: index) } else { parked[index].records = records }
    }

    /// Whether the record is current: held, or parked.
    func isCurrent(_ record: Record) -> Bool {
      held(record.key) == record || (!parked.isEmpty && parked(record.key).contains(record))
    }

    /// Whether a current record that is not suspect has this dot. Of a dot with two contents either counts.
    func names(_ dot: Dot) -> Bool {
      (held + parked.flatMap(\.records)).contains { $0.dot == dot && !isSuspect($0) }
    }

    /// The greatest record of a key, parked or not.
    func greatest(_ key: Int) -> Record? {
      var best = held(key)
      guard !parked.isEmpty else { return best }
      for record in parked(key) where best.map({ record.isGreater(than: $0) }) ?? true { best = record }
      return best
    }

    func covers(_ dot: Dot) -> Bool { vector.covers(dot) }

    /// Whether its vector is true: it was not rolled back, is not damaged, and covers its own floor.
    var isSound: Bool { suspects.isEmpty && !isMending && vector.covers(floor) }

    /// Whether it holds nothing of these keys that its vector does not cover.
    func isComplete(keys: Int) -> Bool {
      (0..<keys).allSatisfy { key in greatest(key).map { covers($0.dot) } ?? true }
    }

    func isSuspect(_ record: Record) -> Bool {
      suspects.contains { $0.actor == record.actor && record.sequence > $0.above }
    }

    /// Whether dots of this actor may have two contents, one per fork of this copy.
    func isAmbiguous(_ actor: Actor) -> Bool { retracted.contains(actor) || isUnconfirmed(actor) }

    /// Whether no full state has yet shown what others hold of this actor.
    func isUnconfirmed(_ actor: Actor) -> Bool { suspects.contains { $0.actor == actor } }

    mutating func lose(_ record: Record) {
      if !losers.contains(record) { losers.append(record) }
    }

    // MARK: The journal

    mutating func append(_ record: Record) {
      position += 1
      log.append(Entry(position: position, record: record))
    }

    /// Removes the bytes of a key's records, except parked ones.
    mutating func strip(_ key: Int) {
      let parked = parked(key)
      log.removeAll { $0.record.key == key && !parked.contains($0.record) }
    }

    mutating func removeBytes(of record: Record) { log.removeAll { $0.record == record } }

    /// Replays the journal with a clock for which stamps above `limit` are too far ahead. The journal states
    /// which parked records were applied; due records under reserved keys are applied at once.
    mutating func reread(limit: Int) {
      let waiting = parked.flatMap(\.records)
      (held, parked, clock) = ([], [], horizon)
      for entry in log {
        let record = entry.record
        // A record applied on arrival has no release entry: if the clock went back since, it is parked again.
        let isLate =
          record.stamp > limit
          && !releases.contains { $0.position >= entry.position && $0.limit >= record.stamp }
        let waits = isLate || waiting.contains(record) && !record.isReserved
        if waits, !mine.contains(record.actor) {
          park(record)
        } else {
          clock = max(clock, record.stamp)
          holdGreater(record)
        }
      }
    }

    /// The state a reader sees with such a clock: due parked records count as applied.
    func shown(limit: Int) -> State {
      var state = self
      for group in parked {
        for record in group.records where record.stamp <= limit { state.holdGreater(record) }
        state.setParked(group.key, group.records.filter { $0.stamp > limit })
      }
      return state
    }

    private mutating func holdGreater(_ record: Record) {
      if held(record.key).map({ record.isGreater(than: $0) }) ?? true { hold(record) }
    }

    /// Becomes another actor.
    mutating func mint(_ actor: Actor) {
      (self.actor, sequence) = (actor, 0)
      if !mine.contains(actor) { mine.append(actor) }
      (marks, mark, markedPosition, markedSequence) = ([], nil, 0, 0)
      relay.becomeAnother()
    }
  }

  /// A copy: its live state, its durable state, and its machine.
  struct Copy {
    let member: Int
    var live: State
    var durable: State
    /// The keys it wants; nil for all.
    let scope: [Int]?
    /// Clock offset, in units of time.
    var skew = 0
    var isAlive = true
    var isAway = false
    var backups: [State] = []

    init(member: Int, _ state: State, scope: [Int]?) {
      (self.member, live, durable, self.scope) = (member, state, state, scope)
    }

    func wants(_ key: Int) -> Bool { scope.map { key >= Model.member || $0.contains(key) } ?? true }
  }

  /// A round in progress.
  struct Round {
    let sender: Int
    let receiver: Int
    let isFull: Bool
    /// The sender's state when the round was opened.
    let snapshot: State
    let items: [State.Entry]
    var next = 0
    let mark: Int
    let isNarrow: Bool
  }
}
