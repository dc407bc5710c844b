/// What a copy keeps of itself beside the records: its names, what it covers, how far it has received from whom. Kept in
/// the journal as local records, so that each change is part of an atomic append.
struct ReplicaState: Sendable {
  /// Own records of a lost life that may bear dots which that life gave away (rule R9).
  struct UnconfirmedRange: Hashable, Sendable {
    var actor: ActorID
    /// Those above this sequence.
    var above: UInt64

    /// Is the write one of those?
    func includes(_ dot: Dot) -> Bool { dot.actor == actor && dot.sequence > above }
  }

  /// What own writes are named and stamped with.
  var author = Author()
  /// All incarnations of this copy: few, so no table, which the runtime takes a quarter of a process's first opening to make.
  var ownActors: [ActorID] = []
  /// What is covered, but for own writes since it was set.
  private var received = VersionVector()
  var floor = VersionVector()
  var horizon = Stamp.zero
  /// The last position of a delete that was purged; nil if none was. Who purges raises it, as it does the floor.
  var purged: UInt64?
  /// When conflicts came up.
  var conflicts = ConflictRetention()
  /// Which keys this copy holds; nil for all.
  var scope: KeyScope?
  /// Why keys of the user must not be written here; nil if they may.
  var writeDenial: WriteDenial?
  /// More of them that it is to hold.
  var scopeExpansion: ScopeExpansion?
  /// Up to here all deletes were covered by what this copy last said as a member; nil if it said nothing.
  var acknowledged: UInt64?
  var cursors: [ActorID: Cursor] = [:]
  /// The marks of own rounds: position and own sequence that were durable when each was made.
  var marks = RoundMarks()
  var lastMark: RoundMark?
  var unconfirmedRanges: [UnconfirmedRange] = []
  /// Former incarnations that this copy gave up because it found itself put back, or cloned: another life may bear them still.
  var abandonedActors: Set<ActorID> = []
  /// Damaged: the vector was forgotten until a whole round has come in.
  var isRecovering = false
  /// What came behind this position, while a full state was being closed, is measured by what this copy itself has purged when one is
  /// closed to its end; nil if there is none.
  var reconcileFrom: UInt64?

  /// Of former lives: what was taken back of their writes.
  var retractedActors: [ActorID: RetractedWrites] = [:]

  /// Damage that this copy has acted upon, when it became a new actor and forgot its vector: where it began, and up to which offset it
  /// went then. Records behind may have been damaged since.
  var handledDamage: [Location: UInt32] = [:]
  /// The keys lost in some of them.
  var lostKeysByDamage: [Location: LostKeyFingerprints] = [:]
  /// Those among them whose records have come again from a peer.
  var resolvedDamage: Set<Location> = []

  struct Mark: Hashable, Sendable {
    var position: UInt64
    var sequence: UInt64
    /// Was it made for the sessions of one process that stay open? No other one may use it: it goes when they are past it.
    var isLive = false
    /// The greatest stamp that had been given or seen then; nil if an older program made it.
    var clock: Stamp?
  }

  /// Can it be believed what this copy covers, and is nothing of its own in doubt?
  var isHealthy: Bool { health == .healthy }

  /// What the copy thinks of its own state. A closing that was broken off is made up for by another full state, in whatever way its floor
  /// came to be covered meanwhile.
  var health: ReplicaHealth {
    if isRecovering { return .recovering }
    return unconfirmedRanges.isEmpty && (reconcileFrom == nil || !vector.covers(floor))
      ? .healthy : .unconfirmed
  }

  /// The present incarnation.
  var actor: ActorID? { author.actor }
  /// The last sequence that `actor` has written.
  var sequence: UInt64 { author.sequence }

  /// What this copy covers: what it was set to, with the present actor's entry raised to what it has written.
  var vector: VersionVector {
    get {
      guard let actor, sequence > received[actor] else { return received }
      var vector = received
      vector[actor] = sequence
      return vector
    }
    set { received = newValue }
  }

  /// What a round that this copy gives covers at its close. What is in doubt is not passed on, and so not covered by who has had the
  /// round, though this copy may have purged later writes of that life, and has to cover these itself.
  var advertisedVector: VersionVector {
    if isRecovering { return VersionVector() }
    var given = vector
    for suspect in unconfirmedRanges { given[suspect.actor] = min(given[suspect.actor], suspect.above) }
    return given
  }

  /// Lets what is covered be one in memory with what is given away of it, where own writes have come since it was set.
  mutating func foldOwnWrites() { received = vector }

  /// Does `vector` cover the write?
  func covers(_ dot: Dot) -> Bool {
    dot.actor == actor && dot.sequence <= sequence || received.covers(dot)
  }

  /// Was the write made by this copy, in this or an earlier incarnation? Not one that it has taken back, should a copy that was
  /// made of the directory bring it.
  func isMine(_ dot: Dot) -> Bool {
    dot.actor == actor
      || ownActors.contains(dot.actor)
        && (retractedActors.isEmpty || dot.sequence <= retractedActors[dot.actor]?.above ?? .max)
  }

  /// Is the record one of a lost life, not to be passed on?
  func isUnconfirmed(_ dot: Dot) -> Bool { unconfirmedRanges.contains { $0.includes(dot) } }
}

extension ReplicaState {
  /// May the name have two contents, one of each life of this copy? Also below the last mark, and for ever: that one peer was given a
  /// round says nothing of what the other life wrote under these names, nor which of the two a base means.
  func isAmbiguous(_ dot: Dot) -> Bool { abandonedActors.contains(dot.actor) || isInUnconfirmedLife(dot) }

  /// Was it written in a life of which no full state has told yet what others hold of it?
  func isInUnconfirmedLife(_ dot: Dot) -> Bool { unconfirmedRanges.contains { $0.actor == dot.actor } }
}

/// The local records that hold a copy's state. `schemas/journal.md` has their layouts.
enum StateKey {
  /// Before all but cursors and marks.
  static let prefix = Array("replica/".utf8)
  static let actor = Array("replica/actor".utf8)
  static let vector = Array("replica/vector".utf8)
  static let floor = Array("replica/floor".utf8)
  static let purged = Array("replica/purged".utf8)
  static let unconfirmed = Array("replica/suspects".utf8)
  static let recovering = Array("replica/mending".utf8)
  static let reconcileFrom = Array("replica/unsettled".utf8)
  static let member = Array("replica/member".utf8)
  static let acknowledged = Array("replica/acknowledged".utf8)
  static let conflicts = Array("replica/conflicts".utf8)
  static let scope = Array("replica/scope".utf8)
  static let scopeExpansion = Array("replica/widening".utf8)
  static let clock = Array("replica/clock".utf8)
  static let writeDenial = Array("replica/denied".utf8)
  /// Up to which stamp all that had waited, and stands before it, was applied.
  static let unparked = Array("replica/released".utf8)
  static let abandonedPrefix = Array("replica/parted/".utf8)
  static let retractedPrefix = Array("replica/forsaken/".utf8)
  static let damagePrefix = Array("replica/damage/".utf8)
  static let cursorPrefix = Array("cursor/".utf8)
  static let markPrefix = Array("mark/".utf8)

  static func cursor(_ sender: ActorID) -> [UInt8] { cursorPrefix + sender.bytes }
  static func damage(_ place: Location) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: damagePrefix)
    writer.write(place.packed)
    return writer.bytes
  }
  static func abandoned(_ actor: ActorID) -> [UInt8] { abandonedPrefix + actor.bytes }
  static func retracted(_ actor: ActorID) -> [UInt8] { retractedPrefix + actor.bytes }
  static func mark(_ mark: RoundMark) -> [UInt8] { markPrefix + mark.bytes }
  /// Keys that only the store itself writes.
  static func isInternal(_ key: [UInt8]) -> Bool {
    key.starts(with: prefix) || key.starts(with: cursorPrefix) || key.starts(with: markPrefix)
  }
}

extension ReplicaState {
  /// Takes in a local record; one that does not read is left alone: it was written by a program that knew more.
  mutating func apply(local key: [UInt8], _ value: [UInt8]?) {
    if key.starts(with: StateKey.cursorPrefix) {
      guard let sender = ActorID(bytes: key.dropFirst(StateKey.cursorPrefix.count)) else { return }
      cursors[sender] = value.flatMap { try? Self.cursor($0[...]) }
    } else if key.starts(with: StateKey.markPrefix) {
      guard let mark = RoundMark(bytes: key.dropFirst(StateKey.markPrefix.count)) else { return }
      marks[mark] = value.flatMap { try? Self.mark($0) }
      if value != nil { lastMark = mark } else if lastMark == mark { lastMark = nil }
    } else if !key.starts(with: StateKey.prefix) {
      // Most of what there are many of: large values that are not here.
      return
    } else if key == StateKey.actor, let value {
      var actors = value[...]
      var first = true
      while let next = ActorID(bytes: actors.prefix(16)) {
        if first, next != actor {
          // What the former one has written stays covered.
          received = vector
          (author.actor, author.sequence) = (next, 0)
        }
        first = false
        if !ownActors.contains(next) { ownActors.append(next) }
        actors = actors.dropFirst(16)
      }
    } else if key.starts(with: StateKey.damagePrefix), let value {
      var reader = ByteReader(key[StateKey.damagePrefix.count...])
      guard let place = try? reader.read(UInt64.self) else { return }
      let location = Location(packed: place)
      var rest = ByteReader(value[...])
      let isResolved = (try? rest.read(UInt8.self)) == 1
      // Older programs did not say how far it went.
      handledDamage[location] = (try? rest.read(UInt32.self)) ?? .max
      lostKeysByDamage[location] = LostKeyFingerprints(from: &rest)
      if isResolved { resolvedDamage.insert(location) } else { resolvedDamage.remove(location) }
    } else if key == StateKey.vector, let value {
      guard let read = try? Self.vector(value) else { return }
      vector = read
      // Compaction may have dropped the own record that had the last sequence.
      if let actor { author.sequence = max(sequence, read[actor]) }
    } else if key == StateKey.floor, let value {
      guard let read = try? Self.floor(value) else { return }
      (floor, horizon) = read
      // Own writes are stamped above all that was purged.
      author.clock.observe(horizon)
    } else if key == StateKey.unconfirmed {
      unconfirmedRanges = value.flatMap { try? Self.unconfirmedRanges($0) } ?? []
    } else if key == StateKey.purged {
      purged = Self.position(value)
    } else if key == StateKey.acknowledged {
      acknowledged = Self.position(value)
    } else if key == StateKey.conflicts {
      conflicts = value.flatMap { try? ConflictRetention(bytes: $0) } ?? ConflictRetention()
    } else if key == StateKey.scope {
      var reader = ByteReader(value ?? [])
      scope = value == nil ? nil : (try? KeyScope(from: &reader)) ?? scope
    } else if key == StateKey.scopeExpansion {
      scopeExpansion = value.flatMap { try? ScopeExpansion(bytes: $0) }
    } else if key == StateKey.writeDenial {
      writeDenial = value.map { WriteDenial(bytes: $0) }
    } else if key == StateKey.clock, let stamp = Self.position(value) {
      author.clock = HybridClock(last: Stamp(rawValue: stamp))
    } else if key.starts(with: StateKey.abandonedPrefix), value != nil {
      guard let former = ActorID(bytes: key.dropFirst(StateKey.abandonedPrefix.count)) else { return }
      abandonedActors.insert(former)
    } else if key.starts(with: StateKey.retractedPrefix) {
      guard let former = ActorID(bytes: key.dropFirst(StateKey.retractedPrefix.count)) else { return }
      retractedActors[former] = Self.position(value).map { RetractedWrites(above: $0) }
    } else if key == StateKey.recovering {
      isRecovering = value != nil
    } else if key == StateKey.reconcileFrom {
      reconcileFrom = Self.position(value)
    }
  }

  /// Takes notice of a write in the journal.
  mutating func observe(_ version: Version, applied: Bool) {
    if version.dot.actor == actor { author.sequence = max(author.sequence, version.dot.sequence) }
    if applied { author.clock.observe(version.stamp) }
  }

  static func encode(position: UInt64) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(position)
    return writer.bytes
  }

  private static func position(_ value: [UInt8]?) -> UInt64? {
    var reader = ByteReader(value ?? [])
    return try? reader.read(UInt64.self)
  }

  static func encode(unparked: Stamp) -> [UInt8] { encode(position: unparked.rawValue) }

  static func unparked(_ value: [UInt8]) -> Stamp? { position(value).map { Stamp(rawValue: $0) } }

  static func encode(_ cursor: Cursor) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(cursor.position)
    writer.write(raw: cursor.mark.bytes)
    writer.write(UInt8(cursor.closed ? 1 : 0))
    return writer.bytes
  }

  static func cursor(_ bytes: ArraySlice<UInt8>) throws(DecodingFailure) -> Cursor {
    var reader = ByteReader(bytes)
    let position = try reader.read(UInt64.self)
    guard let mark = RoundMark(bytes: try reader.read(raw: 16)) else { throw DecodingFailure("mark") }
    return Cursor(position: position, mark: mark, closed: try reader.read(UInt8.self) == 1)
  }

  static func encode(_ mark: Mark) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(mark.position)
    writer.write(mark.sequence)
    if mark.isLive || mark.clock != nil { writer.write(UInt8(mark.isLive ? 1 : 0)) }
    if let clock = mark.clock { writer.write(clock.rawValue) }
    return writer.bytes
  }

  private static func mark(_ bytes: [UInt8]) throws(DecodingFailure) -> Mark {
    var reader = ByteReader(bytes)
    return Mark(
      position: try reader.read(), sequence: try reader.read(),
      isLive: reader.remaining > 0 ? try reader.read(UInt8.self) == 1 : false,
      clock: reader.remaining > 0 ? Stamp(rawValue: try reader.read()) : nil)
  }

  static func encode(_ vector: VersionVector) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(vector)
    return writer.bytes
  }

  static func vector(_ bytes: [UInt8]) throws(DecodingFailure) -> VersionVector {
    var reader = ByteReader(bytes)
    return try reader.readVector()
  }

  static func encode(floor: VersionVector, horizon: Stamp) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(floor)
    writer.write(horizon.rawValue)
    return writer.bytes
  }

  private static func floor(_ bytes: [UInt8]) throws(DecodingFailure) -> (VersionVector, Stamp) {
    var reader = ByteReader(bytes)
    let floor = try reader.readVector()
    return (floor, Stamp(rawValue: try reader.read()))
  }

  static func encode(damageUpTo end: UInt32, isResolved: Bool, lost: LostKeyFingerprints? = nil) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(UInt8(isResolved ? 1 : 0))
    writer.write(end)
    lost?.write(to: &writer)
    return writer.bytes
  }

  static func encode(_ suspects: [UnconfirmedRange]) -> [UInt8] {
    var writer = ByteWriter()
    for suspect in suspects {
      writer.write(raw: suspect.actor.bytes)
      writer.write(suspect.above)
    }
    return writer.bytes
  }

  private static func unconfirmedRanges(_ bytes: [UInt8]) throws(DecodingFailure) -> [UnconfirmedRange] {
    var reader = ByteReader(bytes)
    var suspects: [UnconfirmedRange] = []
    while reader.remaining > 0 {
      suspects.append(UnconfirmedRange(actor: try reader.readActor(), above: try reader.read()))
    }
    return suspects
  }
}
