/// Which records a round has for its receiver, and of which it only says that they are held.
struct RoundChoice: Sendable {
  /// Does it give full state (rule R8)?
  let isFull: Bool
  /// Nothing up to this position is looked at.
  let begin: UInt64
  /// Of a full state: up to here the receiver has had an earlier one.
  let start: UInt64
  private let covered: VersionVector
  private let scope: KeyScope?
  private let lacking: LackingKeys?

  /// What lies behind `begin`; in a full state, all.
  init(for receiver: RoundReceiver, behind begin: UInt64, isFull: Bool) {
    self.isFull = isFull
    self.begin = isFull ? 0 : begin
    (scope, lacking) = (receiver.scope, receiver.lacking)
    guard isFull else {
      (start, covered) = (0, receiver.covered)
      return
    }
    // A copy in doubt about its own records compares them with all that is held here.
    start = receiver.standing == .suspect ? 0 : receiver.cursor?.position ?? 0
    covered = receiver.standing == .settled ? receiver.covered : VersionVector()
  }

  /// Has the receiver got the write already, and is only told so? Nil if it is not for it at all.
  func isPresent(_ view: RecordView, _ dot: Dot) -> Bool? {
    if let lacking {
      return view.position > begin && view.keyBytes.map { lacking.contains($0) } ?? false ? false : nil
    }
    if !isFull { guard view.position > begin, !covered.covers(dot) else { return nil } }
    guard scope == nil || view.keyBytes.map({ scope.holds($0) }) ?? false else { return nil }
    return isFull && (view.position <= start || covered.covers(dot))
  }
}

/// What a round will have, looked for before it is opened and beside those who write.
///
/// A record that was current when it was looked at is one of the round's unless something has superseded it by the time of the
/// snapshot. Whatever can do that is in the journal behind the place where the survey began, or had waited for its time until then
/// (`settle`). One that was not current when it was looked at had been superseded by a record that stood in the journal, and is no more
/// current at any later time. So what is left is exactly what is current in the snapshot (rule R10).
struct RoundSurvey {
  let choice: RoundChoice
  let pin: SnapshotPin
  /// Up to here the journal has been looked through.
  private(set) var reached: UInt64
  private(set) var items: [OutgoingRound.Item] = []
  /// The number of the next transaction.
  private(set) var group: UInt32 = 0
  /// The last position when it began.
  private let begun: UInt64
  /// How many records it may come to have.
  private let expected: Int
  private let keys: KeyDirectory
  private let actor: ActorID?
  private let suspects: [ReplicaState.Suspect]
  /// What waited for its time then.
  private let parked: [Successor]
  private var sources: [UInt32: JournalStretch.Source] = [:]

  /// Begins one with what this view has read.
  init(_ choice: RoundChoice, _ pin: SnapshotPin, in engine: borrowing Engine) {
    (self.choice, self.pin) = (choice, pin)
    (begun, reached) = (engine.position, choice.begin)
    (keys, actor, suspects) = (engine.index.keys, engine.state.actor, engine.state.suspects)
    expected = Int(clamping: min(begun - choice.begin, engine.keyCount))
    parked = engine.parked.values.joined().compactMap { place in
      guard let view = try? engine.journal.record(at: place), let version = view.version,
        let shape = view.shape
      else { return nil }
      return Successor(view, shape, version)
    }
  }

  /// Looks through the journal from where it has come to, to the end of `stretch`. False if that cannot be done without the lock.
  mutating func look(through stretch: JournalStretch, in store: Store) throws(StoreError) -> Bool {
    guard stretch.sources.allSatisfy({ $0.slot != nil }) else { return false }
    for source in stretch.sources { sources[source.segment.number] = source }
    // Tests have others do something at each turn: there is one thread then.
    let parts = stretch.parts(store.environment.betweenTurns == nil ? min(Background.processors, 4) : 1)
    let (choice, suspects, keys, pin, reached, group) = (choice, suspects, keys, pin, reached, group)
    let expected = items.isEmpty ? expected : 0
    let found = Locked([Result<SurveyPart?, StoreError>](repeating: .success(nil), count: parts.count))
    Background.atOnce(parts.count) { number in
      // Far from those of the other parts: only the transactions next to each other must not have one number.
      var part = SurveyPart(
        choice: choice, suspects: suspects, keys: keys, pin: pin, reached: reached,
        group: group &+ UInt32(number) << 30, expected: expected / parts.count)
      let result = Result { () throws(StoreError) in
        try part.look(through: parts[number], in: store) ? part : nil
      }
      found.withLock { $0[number] = result }
    }
    for result in found.withLock({ $0 }) {
      guard let part = try result.get() else { return false }
      if items.isEmpty { items = part.items } else { items += part.items }
      self.group = part.group
    }
    self.reached = stretch.position
    return true
  }

  // MARK: The snapshot

  /// What is to be known of the moment of the snapshot to settle the survey.
  struct Moment {
    /// All that was appended since the survey began.
    fileprivate let appended: JournalStretch
    /// The positions of what waits for its time.
    fileprivate let parked: Set<UInt64>
  }

  /// The present moment; nil if what was found does not tell what is current at it: then all is to be looked through again.
  func moment(isFull: Bool, in engine: borrowing Engine) -> Moment? {
    guard !pin.isEnded, keys === engine.index.keys, actor == engine.state.actor,
      suspects == engine.state.suspects, choice.isFull == isFull, engine.gaps.isEmpty,
      let appended = engine.stretch(behind: begun),
      // A copy may lack what has superseded something and was superseded in its turn.
      appended.sources.allSatisfy({ $0.segment.header.compaction == 0 })
    else { return nil }
    return Moment(appended: appended, parked: engine.waitingPositions)
  }

  /// Leaves out what something had superseded by that moment. False if that cannot be told: bytes were damaged meanwhile.
  mutating func settle(at moment: Moment) throws(StoreError) -> Bool {
    for source in moment.appended.sources { sources[source.segment.number] = source }
    var successors: [UInt32: [Successor]] = [:]
    var purged: Set<UInt32> = []
    func note(_ successor: Successor) {
      guard !moment.parked.contains(successor.position) else { return }
      let hash = UInt32(truncatingIfNeeded: keys.hash(successor.key.span))
      successors[hash, default: []].append(successor)
      if successor.isPurge { purged.insert(hash) }
    }
    let isWhole = try moment.appended.visit { source, view throws(StoreError) in
      guard view.position > begun, view.kind == .purge || view.isOfKey, let dot = source.dot(of: view),
        let shape = view.shape
      else { return }
      note(Successor(view, shape, Version(stamp: view.stamp, dot: dot)))
    }
    guard isWhole else { return false }
    for parked in parked { note(parked) }
    guard !successors.isEmpty else { return true }
    for hash in purged {
      // What was purged while it waited for its time has superseded nothing. Of any other the purge itself tells.
      guard let list = successors[hash] else { continue }
      successors[hash] = list.filter { write in
        write.isPurge
          || !list.contains {
            $0.isPurge && $0.key == write.key && $0.supersedes(write.version, at: write.position)
          }
      }
    }
    items.removeAll { item in
      guard let successors = successors[item.hash], let source = sources[item.location.segment] else {
        return false
      }
      let view = RecordView(segment: source.segment, offset: item.location.offset)
      guard view.isReadable, let dot = source.dot(of: view), let shape = view.shape else { return false }
      let (key, version) = (view.key(shape), Version(stamp: view.stamp, dot: dot))
      return successors.contains { $0.key == key && $0.supersedes(version, at: item.position) }
    }
    return true
  }

  /// What may have superseded a record of its key.
  private struct Successor {
    let key: [UInt8]
    let version: Version
    let position: UInt64
    let isPurge: Bool
    /// Of a purge: is it of that very version alone?
    let isExact: Bool

    init(_ view: RecordView, _ shape: RecordView.Shape, _ version: Version) {
      (key, position, self.version) = (view.key(shape), view.position, version)
      (isPurge, isExact) = (view.kind == .purge, view.flags.contains(.parked))
    }

    /// Has it superseded a record of its key, that was current and has this version and place? A purge takes what there was, and a
    /// write may have been appended again.
    func supersedes(_ other: Version, at position: UInt64) -> Bool {
      if isPurge { return self.position > position && (isExact ? version == other : version >= other) }
      return version > other || version == other && self.position > position
    }
  }
}

/// A survey of a part of the journal, by one thread.
private struct SurveyPart {
  let choice: RoundChoice
  let suspects: [ReplicaState.Suspect]
  let keys: KeyDirectory
  let pin: SnapshotPin
  let reached: UInt64
  /// The number of the next transaction.
  var group: UInt32
  private(set) var items: [OutgoingRound.Item] = []
  private var candidates: [Candidate] = []
  /// Was its hold on what was compacted taken away?
  private var isOver = false

  private struct Candidate {
    /// Of its key.
    var hash: UInt64
    /// What the index calls it.
    var place: UInt64
    var item: OutgoingRound.Item
  }

  /// Records that are asked for at once: their cache misses overlap, and nobody waits for longer than so many take.
  private static let askedAtOnce = 64

  init(
    choice: RoundChoice, suspects: [ReplicaState.Suspect], keys: KeyDirectory, pin: SnapshotPin,
    reached: UInt64, group: UInt32, expected: Int
  ) {
    (self.choice, self.suspects, self.keys, self.pin) = (choice, suspects, keys, pin)
    (self.reached, self.group) = (reached, group)
    items.reserveCapacity(expected)
  }

  /// False if it cannot be done without the lock.
  mutating func look(through stretch: JournalStretch, in store: Store) throws(StoreError) -> Bool {
    let most = min(Self.askedAtOnce, Int(clamping: store.environment.positionsAtOnce))
    // As they are: none of them is copied for each record.
    let (choice, suspects, keys, reached) = (choice, suspects, keys, reached)
    let isWhole = try stretch.visit { source, view throws(StoreError) in
      defer { if !view.flags.contains(.continues) { group &+= 1 } }
      guard view.position > reached, view.isOfKey, let dot = source.dot(of: view),
        let isPresent = choice.isPresent(view, dot), !suspects.contains(where: { $0.includes(dot) }),
        let shape = view.shape,
        let slot = source.slot
      else { return }
      let hash = view.bytes.withSpan(shape.key) { keys.hash($0) }
      keys.prefetch(hash)
      candidates.append(
        Candidate(
          hash: hash, place: SegmentTable.place(slot: slot, offset: view.offset),
          item: OutgoingRound.Item(view, hash: hash, group: group, isPresent: isPresent)))
      if candidates.count >= most { try ask(store) }
    }
    guard isWhole else { return false }
    try ask(store)
    return !isOver
  }

  /// Takes those of the candidates that are current.
  private mutating func ask(_ store: Store) throws(StoreError) {
    defer {
      candidates.removeAll(keepingCapacity: true)
      store.environment.betweenTurns?()
    }
    var unsure: [Candidate] = []
    for candidate in candidates {
      let found = try? keys.find(candidate.hash) { $0 == candidate.place }
      if found != candidate.place { unsure.append(candidate) }
    }
    guard !unsure.isEmpty else {
      for candidate in candidates { items.append(candidate.item) }
      return
    }
    // Superseded, moved by a compaction, waiting for its time, or the index is to be built anew.
    let pin = pin
    let answers = try store.reading { engine throws(StoreError) in
      // What was compacted may not be there any more.
      if pin.isEnded { return [Bool]() }
      return unsure.map { engine.isCurrent(at: $0.item.location, $0.hash) }
    }
    if answers.isEmpty { isOver = true }
    let gone = Set(zip(unsure, answers).lazy.filter { !$0.1 }.map { $0.0.place })
    for candidate in candidates where !gone.contains(candidate.place) { items.append(candidate.item) }
  }
}

extension Engine {
  /// The positions of what waits for its time.
  fileprivate var waitingPositions: Set<UInt64> {
    guard !parked.isEmpty else { return [] }
    return Set(
      parked.values.joined().compactMap { journal.segment($0.segment)?.extent(at: $0.offset).position })
  }
}

extension Store {
  /// How often the journal is looked through anew for what was appended meanwhile.
  private static let mostPasses = 8

  /// Looks for what a round will have, beside those who write. Nil if there is so little to look through that they can wait for it, or if
  /// the journal is damaged.
  func survey(
    for receiver: RoundReceiver, behind begin: UInt64, isLive: Bool
  ) throws(StoreError) -> RoundSurvey? {
    let few = environment.positionsAtOnce
    // A live session asks for each write.
    let last = control.position
    if isLive { guard last > begin, last - begin > few else { return nil } }
    let begun = try reading { engine throws(StoreError) -> (RoundSurvey, JournalStretch)? in
      let isFull = Self.givesFullState(engine.state, to: receiver, isLive: isLive)
      let choice = RoundChoice(for: receiver, behind: begin, isFull: isFull)
      guard engine.position > choice.begin, engine.position - choice.begin > few, engine.gaps.isEmpty,
        let stretch = engine.stretch(behind: choice.begin)
      else { return nil }
      let pin = SnapshotPin()
      engine.hold(pin)
      return (RoundSurvey(choice, pin, in: engine), stretch)
    }
    guard var (survey, stretch) = begun else { return nil }
    for _ in 0..<Self.mostPasses {
      guard try survey.look(through: stretch, in: self) else { return nil }
      let reached = survey.reached
      let more = try reading { engine throws(StoreError) in
        engine.position > reached && engine.position - reached > few ? engine.stretch(behind: reached) : nil
      }
      guard let more else { break }
      stretch = more
    }
    return survey
  }
}
