internal import SyncStore

/// What this copy keeps of its use of one relay (`schemas/members.md`).
struct RelayHistory: Hashable, Sendable {
  /// When it last deleted what the relay need not keep, in milliseconds since 1970; nil for never.
  var lastCollection: UInt64?
  /// When a node does so next, in milliseconds since 1970; nil before a node has chosen a time.
  var nextCollection: UInt64?
  /// Requests of all programs that use this copy, but those of the last hour of a node and those of a program
  /// that only looks (`relay status`, `relay check`).
  var usage = RelayUsage()
}

// MARK: Bytes

extension RelayHistory {
  private static let version: UInt8 = 1

  /// The value of its local record.
  var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 64)
    writer.write(Self.version)
    writer.write(lastCollection ?? 0)
    writer.write(nextCollection ?? 0)
    writer.write(usage.since ?? 0)
    for figure in [
      usage.writes, usage.reads, usage.deletions, usage.sentBytes, usage.receivedBytes,
    ] { writer.writeVariable(figure) }
    return writer.bytes
  }

  /// Decodes the value of a local record. Bytes after the known fields belong to a newer version and are
  /// skipped.
  init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    try reader.readVersion(Self.version, of: "the history of a relay")
    let (last, next) = (try reader.read(UInt64.self), try reader.read(UInt64.self))
    (lastCollection, nextCollection) = (last == 0 ? nil : last, next == 0 ? nil : next)
    let since = try reader.read(UInt64.self)
    usage.since = since == 0 ? nil : since
    usage.writes = try reader.readVariable()
    usage.reads = try reader.readVariable()
    usage.deletions = try reader.readVariable()
    usage.sentBytes = try reader.readVariable()
    usage.receivedBytes = try reader.readVariable()
  }
}

// MARK: Storage

/// The histories of a copy's relays, by their names. All calls block.
struct RelayHistories: Sendable {
  let store: Store

  static func key(_ relay: String) -> [UInt8] { Array("relay-history/\(relay)".utf8) }

  /// The history of a relay; an empty one if nothing is kept, or if that cannot be read.
  subscript(relay: String) -> RelayHistory {
    get throws(ReplicationError) {
      try mappingStoreErrors { () throws(StoreError) in Self.history(try store.local(Self.key(relay))) }
    }
  }

  /// Changes the history of a relay atomically and durably.
  func update(_ relay: String, _ change: (inout RelayHistory) -> Void) throws(ReplicationError) {
    try mappingStoreErrors { () throws(StoreError) in
      _ = try store.updateLocal(Self.key(relay)) { bytes in
        var history = Self.history(bytes)
        change(&history)
        return history.bytes
      }
    }
  }

  /// Records a collection that was made now, durably.
  func recordCollection(_ relay: String, _ schedule: CollectionSchedule) throws(ReplicationError) {
    let now = store.environment.now()
    try update(relay) { history in
      history.lastCollection = now
      history.nextCollection = schedule.next(after: now, random: UInt64.random(in: 0 ... .max))
    }
  }

  private static func history(_ bytes: [UInt8]?) -> RelayHistory {
    bytes.flatMap { try? RelayHistory(bytes: $0) } ?? RelayHistory()
  }
}

extension RelayClient {
  /// Requests and bytes that are not in the history yet.
  var unrecordedFigures: ObjectStoreFigures { recorded.withLock { objects.figures.since($0) } }

  /// Adds to the history what was counted since the last call. Blocks.
  func recordUsage() throws(ReplicationError) {
    let figures = recorded.withLock { recorded in
      let (now, before) = (objects.figures, recorded)
      recorded = now
      return now.since(before)
    }
    guard figures != ObjectStoreFigures() else { return }
    let now = store.environment.now()
    try RelayHistories(store: store).update(name) { $0.usage.add(figures, at: now) }
  }
}

// MARK: Times

/// When a node deletes what a relay need not keep. Pure.
struct CollectionSchedule {
  /// Milliseconds between two collections.
  var interval: UInt64

  /// Whether a collection is due. A time that lies further ahead than any that is chosen here was taken
  /// from a clock that was wrong.
  enum Decision: Equatable {
    case wait
    case collect
    case choose
  }

  /// What a node does at `now` that has chosen `next`.
  func decision(next: UInt64?, at now: UInt64) -> Decision {
    guard let next, next <= now + interval * 6 / 5 else { return .choose }
    return next <= now ? .collect : .wait
  }

  /// The first collection: an hour to six hours after a node has first seen the relay. A node that restarts
  /// more often than that keeps the time.
  func first(after now: UInt64, random: UInt64) -> UInt64 {
    now + interval / 24 + random % max(1, interval / 24 * 5)
  }

  /// The one that follows a collection: after 90 to 110 % of a day, so that members do not meet for ever.
  func next(after now: UInt64, random: UInt64) -> UInt64 {
    now + interval * 9 / 10 + random % max(1, interval / 5)
  }

  /// The next attempt, if one fails or its process dies: after an hour.
  func retry(after now: UInt64) -> UInt64 { now + interval / 24 }
}
