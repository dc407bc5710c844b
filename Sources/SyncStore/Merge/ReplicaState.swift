/// The state of a copy apart from its records: its actors, its vector, its cursors. Stored in the journal as
/// local records, so that each change is part of an atomic append.
struct ReplicaState: Sendable {
  /// Names and stamps own writes.
  var author = Author()
  var incarnations = Incarnations()
  /// The vector, without own writes since it was set.
  private var received = VersionVector()
  var purged = PurgeBounds()
  /// The days on which conflicts occurred.
  var conflicts = ConflictRetention()
  /// The keys that this copy holds; nil for all.
  var scope: KeyScope?
  /// Why users' keys must not be written here; nil if they may.
  var writeDenial: WriteDenial?
  /// Expansion of the scope in progress.
  var scopeExpansion: ScopeExpansion?
  /// Position up to which the last frontier that this copy published covers all deletes; nil if it published
  /// none.
  var acknowledged: UInt64?
  var cursors: [ActorID: Cursor] = [:]
  /// The marks of own rounds: position and own sequence that were durable when each was made.
  var marks = RoundMarks()
  /// Set after damage: the vector is unknown until a whole round was received.
  var isRecovering = false
  /// Records received after this position, while a full state was being closed, are checked against this
  /// copy's own purges once a full state is closed completely; nil if there are none.
  var reconcileFrom: UInt64?
  var handledDamage = HandledDamage()
  /// The progress in each relay.
  var relays: [RelayID: RelayProgress] = [:]

  struct Mark: Hashable, Sendable {
    var position: UInt64
    var sequence: UInt64
    /// True if made for the open sessions of one process. No other process may use it; it is removed once
    /// they are past it.
    var isLive = false
    /// The greatest stamp given or seen at that time; nil if an older program made it.
    var clock: Stamp?
  }

  /// True if the vector is reliable and no own record is in doubt.
  var isHealthy: Bool { health == .healthy }

  /// Health of the copy. An interrupted close is repaired by another full state, however its floor came to be
  /// covered since.
  var health: ReplicaHealth {
    if isRecovering { return .recovering }
    return incarnations.unconfirmedRanges.isEmpty && (reconcileFrom == nil || !vector.covers(purged.floor))
      ? .healthy : .unconfirmed
  }

  /// Whether the copy may publish in a relay: it is in no doubt, and covers all that it has purged (rule L7).
  var isSound: Bool { isHealthy && vector.covers(purged.floor) }

  /// The present incarnation.
  var actor: ActorID? { author.actor }
  /// The last sequence that `actor` has written.
  var sequence: UInt64 { author.sequence }

  /// The writes that this copy covers: `received`, with the present actor's entry raised to its last
  /// sequence.
  var vector: VersionVector {
    get {
      guard let actor, sequence > received[actor] else { return received }
      var vector = received
      vector[actor] = sequence
      return vector
    }
    set { received = newValue }
  }

  /// The vector that closes the rounds this copy sends.
  var advertisedVector: VersionVector {
    isRecovering ? VersionVector() : incarnations.confirmed(of: vector)
  }

  /// Folds own writes into `received`, so that it shares its memory with the copies handed out.
  mutating func foldOwnWrites() { received = vector }

  /// True if `vector` covers the write.
  func covers(_ dot: Dot) -> Bool {
    dot.actor == actor && dot.sequence <= sequence || received.covers(dot)
  }

  /// True if this copy made the write, in this or an earlier incarnation. False for a retracted write, should
  /// a copy of the directory bring it back.
  func isMine(_ dot: Dot) -> Bool { dot.actor == actor || incarnations.made(dot) }
}

/// The local records that hold a copy's state. `schemas/journal.md` has their layouts.
enum StateKey {
  /// Common prefix of all keys but those of cursors and marks.
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
  /// The stamp up to which all parked records before this one were applied.
  static let unparked = Array("replica/released".utf8)
  static let abandonedPrefix = Array("replica/parted/".utf8)
  static let retractedPrefix = Array("replica/forsaken/".utf8)
  static let relayPrefix = Array("replica/relay/".utf8)
  static let damagePrefix = Array("replica/damage/".utf8)
  /// Records of large values that are absent here (`AbsentBlob`).
  static let absentBlobPrefix = Array("want/".utf8)
  /// Records of the indexes of collections (`IndexMetadata`).
  static let collectionPrefix = Array("collection/".utf8)
  static let cursorPrefix = Array("cursor/".utf8)
  static let markPrefix = Array("mark/".utf8)

  static func cursor(_ sender: ActorID) -> [UInt8] { cursorPrefix + sender.bytes }
  static func damage(_ place: Location) -> [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: damagePrefix)
    writer.write(place.packed)
    return writer.bytes
  }
  static func relay(_ relay: RelayID) -> [UInt8] { relayPrefix + relay.bytes }
  static func abandoned(_ actor: ActorID) -> [UInt8] { abandonedPrefix + actor.bytes }
  static func retracted(_ actor: ActorID) -> [UInt8] { retractedPrefix + actor.bytes }
  static func mark(_ mark: RoundMark) -> [UInt8] { markPrefix + mark.bytes }
  /// Keys that only the store itself writes.
  static func isInternal(_ key: [UInt8]) -> Bool {
    key.starts(with: prefix) || key.starts(with: cursorPrefix) || key.starts(with: markPrefix)
  }
}

extension ReplicaState {
  /// Applies a local record. One that cannot be decoded is ignored: a newer program wrote it.
  mutating func apply(local key: [UInt8], _ value: [UInt8]?) {
    if key.starts(with: StateKey.cursorPrefix) {
      guard let sender = ActorID(bytes: key.dropFirst(StateKey.cursorPrefix.count)) else { return }
      cursors[sender] = value.flatMap { try? Self.cursor($0[...]) }
    } else if key.starts(with: StateKey.markPrefix) {
      guard let mark = RoundMark(bytes: key.dropFirst(StateKey.markPrefix.count)) else { return }
      if let value { marks.record(mark, data: try? Self.mark(value)) } else { marks.remove(mark) }
    } else if !key.starts(with: StateKey.prefix) {
      // Fast path for the most frequent local keys: large values that are not here.
      return
    } else if key == StateKey.actor, let value {
      apply(actors: value)
    } else if key.starts(with: StateKey.damagePrefix), let value {
      handledDamage.apply(start: key.dropFirst(StateKey.damagePrefix.count), value: value)
    } else if key == StateKey.vector, let value {
      guard let read = try? Self.vector(value) else { return }
      vector = read
      // Compaction may have dropped the own record that had the last sequence.
      if let actor { author.sequence = max(sequence, read[actor]) }
    } else if key == StateKey.floor, let value {
      guard let read = try? Self.floor(value) else { return }
      (purged.floor, purged.horizon) = read
      // Own writes are stamped above all that was purged.
      author.clock.observe(purged.horizon)
    } else if key == StateKey.unconfirmed {
      incarnations.unconfirmedRanges = value.flatMap { try? Self.unconfirmedRanges($0) } ?? []
    } else if key == StateKey.purged {
      purged.position = Self.position(value)
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
      incarnations.abandoned.insert(former)
    } else if key.starts(with: StateKey.retractedPrefix) {
      guard let former = ActorID(bytes: key.dropFirst(StateKey.retractedPrefix.count)) else { return }
      incarnations.retracted[former] = Self.position(value).map { RetractedWrites(above: $0) }
    } else if key.starts(with: StateKey.relayPrefix) {
      guard let relay = RelayID(bytes: key.dropFirst(StateKey.relayPrefix.count)) else { return }
      relays[relay] = value.flatMap { try? RelayProgress(bytes: $0) }
    } else if key == StateKey.recovering {
      isRecovering = value != nil
    } else if key == StateKey.reconcileFrom {
      reconcileFrom = Self.position(value)
    }
  }

  /// Applies the list of this copy's actors, the present one first.
  private mutating func apply(actors bytes: [UInt8]) {
    var rest = bytes[...]
    var isFirst = true
    while let next = ActorID(bytes: rest.prefix(16)) {
      if isFirst, next != actor {
        // The writes of the former actor stay covered.
        received = vector
        (author.actor, author.sequence) = (next, 0)
      }
      isFirst = false
      incarnations.add(next)
      rest = rest.dropFirst(16)
    }
  }

  /// Accounts for a write in the journal.
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

  static func encode(_ ranges: [Incarnations.UnconfirmedRange]) -> [UInt8] {
    var writer = ByteWriter()
    for range in ranges {
      writer.write(raw: range.actor.bytes)
      writer.write(range.above)
    }
    return writer.bytes
  }

  private static func unconfirmedRanges(_ bytes: [UInt8]) throws(DecodingFailure) -> [Incarnations
    .UnconfirmedRange]
  {
    var reader = ByteReader(bytes)
    var ranges: [Incarnations.UnconfirmedRange] = []
    while reader.remaining > 0 {
      ranges.append(Incarnations.UnconfirmedRange(actor: try reader.readActor(), above: try reader.read()))
    }
    return ranges
  }
}
