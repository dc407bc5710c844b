/// How a get works: the process's view is brought up to date, the index names a place, the record there is verified.
extension Store {
  /// The value of a key; nil if it has none.
  ///
  /// - Throws: `.damaged` if its record or blob is; `.blobUnavailable` if its bytes have not arrived from a peer yet.
  public func get(_ key: Key) throws(StoreError) -> Value? {
    let found = try find(key) { view, shape in
      Value(bytes: view.value(shape), type: view.type, deadline: view.deadline(shape))
    }
    switch found {
    case .nothing: return nil
    case .value(let value): return value
    case .elsewhere:
      guard let record = try current(key.bytes) else { return nil }
      return try value(of: record)
    }
  }

  /// Works on the value of a key in place, without a copy if it lies in the journal; nil if it has none. Nobody reads or
  /// writes meanwhile: `body` must be short, and must not use the store.
  ///
  /// - Throws: as `get`, and what `body` throws.
  @inlinable
  public func withValue<Result>(_ key: Key, _ body: (RawSpan) throws -> Result) throws -> Result? {
    var result: Result?
    try read(key) { result = try body($0) }
    return result
  }

  /// `withValue` without a result, so that it need not be compiled for each.
  @usableFromInline
  func read(_ key: Key, _ body: (RawSpan) throws -> Void) throws {
    // A refusal by `body` is carried out of the search, whose own failures are typed.
    let found = try find(key) { view, shape -> (any Error)? in
      view.bytes.withBytes(shape.value) { bytes in
        do {
          try body(bytes)
          return nil
        } catch {
          return error
        }
      }
    }
    switch found {
    case .nothing: return
    case .value(let refusal): if let refusal { throw refusal }
    case .elsewhere:
      guard let value = try get(key) else { return }
      try value.bytes.withRawSpan(body)
    }
  }

  /// What a search in the journal came to.
  private enum Found<Result> {
    case nothing
    case value(Result)
    /// In the blob tier, or among what is parked.
    case elsewhere
  }

  /// Works on the verified record of a key whose value lies in the journal and has not expired.
  @inline(__always)
  private func find<Result>(
    _ key: Key, _ body: (RecordView, RecordView.Shape) -> Result
  ) throws(StoreError) -> Found<Result> {
    try reading { engine throws(StoreError) in
      guard engine.parked.isEmpty else { return .elsewhere }
      guard let view = try engine.view(of: key.bytes.span) else { return .nothing }
      guard let shape = view.shape else { return .elsewhere }
      if let deadline = view.deadline(shape), deadline <= environment.now() { return .nothing }
      switch view.kind {
      case .value: return .value(body(view, shape))
      case .tombstone: return .nothing
      default: return .elsewhere
      }
    }
  }

  /// Has the key a value?
  public func contains(_ key: Key) throws(StoreError) -> Bool {
    switch try find(key, { _, _ in }) {
    case .nothing: false
    case .value: true
    case .elsewhere: try current(key.bytes)?.isLive(at: environment.now()) ?? false
    }
  }

  /// What is known of a key without reading its value; nil if it has none.
  public func entry(_ key: Key) throws(StoreError) -> Entry? {
    guard let record = try current(key.bytes), record.isLive(at: environment.now()) else { return nil }
    return Entry(record)
  }

  /// Writes the value of a key to a file, which is replaced at once when all of it is there. False if it has none.
  public func export(_ key: Key, toFileAt file: String) throws(StoreError) -> Bool {
    guard let record = try current(key.bytes), record.isLive(at: environment.now()) else { return false }
    switch record.content {
    case .tombstone: return false
    case .inline(let bytes):
      try write(bytes, toFileAt: file)
    case .blob(let blob):
      try fetching(blob) { blobs throws(StoreError) in try blobs.export(blob, toFileAt: file) }
    }
    return true
  }

  private func write(_ bytes: [UInt8], toFileAt path: String) throws(StoreError) {
    let storage = environment.storage
    let temporary = path + ".syncstore-part"
    _ = try storage.remove(temporary)
    do throws(StoreError) {
      let file = try storage.open(temporary, .create)
      try file.write(bytes, at: 0)
      try file.sync()
      try storage.rename(temporary, to: path)
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  /// Keys with their values' sizes and types, in the order of bytes.
  ///
  /// - Parameters:
  ///   - prefix: only keys that begin so.
  ///   - after: only keys behind this one: a listing goes on where the last one ended.
  ///   - limit: at most so many.
  public func list(
    prefix: [UInt8] = [], after: Key? = nil, limit: Int = .max
  ) throws(StoreError) -> [Entry] {
    let now = environment.now()
    return try reading { engine throws(StoreError) in
      let view = try engine.orderedView()
      let start = max(prefix, after?.bytes ?? [], by: { $0.lexicographicallyPrecedes($1) })
      let low = view.firstIndex(notBefore: start, in: engine.journal)
      var entries: [Entry] = []
      for location in view.locations[low...] where entries.count < limit {
        let key = engine.key(at: location)
        guard key.starts(with: prefix) else {
          if prefix.lexicographicallyPrecedes(key) { break }
          continue
        }
        if ReservedKey.isReserved(key) || key == after?.bytes { continue }
        let record = try engine.record(at: location)
        if record.isLive(at: now) { entries.append(Entry(record)) }
      }
      return entries
    }
  }

  /// The digest of the live records, at this moment by the wall clock: equal on two copies in step.
  public func digest() throws(StoreError) -> StateDigest { try digest(at: environment.now()) }

  /// What this copy covers.
  public func versionVector() throws(StoreError) -> VersionVector {
    try reading { engine throws(StoreError) in engine.state.vector }
  }

  /// Sizes and counts.
  public func status() throws(StoreError) -> StoreStatus {
    let now = environment.now()
    let journal = try reading { engine throws(StoreError) in
      var status = StoreStatus()
      for location in engine.index.locations {
        guard let record = try? engine.record(at: location), !record.isReserved else { continue }
        if !record.isLive(at: now) {
          status.tombstones += record.isTombstone ? 1 : 0
          continue
        }
        status.keys += 1
        let entry = Entry(record)
        status.liveBytes += entry.size
        if entry.blob != nil {
          (status.blobKeys, status.blobBytes) = (status.blobKeys + 1, status.blobBytes + entry.size)
        }
      }
      status.segments = engine.journal.segments.count
      status.journalBytes = UInt64(engine.journal.fileBytes)
      status.position = engine.position
      status.conflicts = engine.losers.count
      status.parked = engine.parked.count
      status.damagedPlaces = engine.gaps.count
      return status
    }
    return journal
  }

  /// The greatest record of a key, also one whose time has just come and that no writer has applied yet.
  func current(_ key: [UInt8]) throws(StoreError) -> Record? {
    let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    return try reading { engine throws(StoreError) in
      var greatest = try engine.held(key)
      for location in engine.parked[key] ?? [] {
        let record = try engine.record(at: location)
        if record.stamp <= limit, greatest.map({ $0.version < record.version }) ?? true { greatest = record }
      }
      return greatest
    }
  }

  func value(of record: Record) throws(StoreError) -> Value? {
    guard record.isLive(at: environment.now()) else { return nil }
    switch record.content {
    case .tombstone: return nil
    case .inline(let bytes): return Value(bytes: bytes, type: record.type, deadline: record.deadline)
    case .blob(let blob):
      let bytes = try fetching(blob) { blobs throws(StoreError) in try blobs.read(blob) }
      return Value(bytes: bytes, type: record.type, deadline: record.deadline)
    }
  }

  /// Works on a blob; one that turns out rotten or gone is noted, to be fetched again with the next session (F44).
  private func fetching<Result>(
    _ blob: BlobReference, _ body: (BlobStore) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    do throws(StoreError) { return try body(try blobs) } catch {
      if isWritable, error.code == .damaged || error.code == .blobUnavailable {
        // Within a transaction, or on a full disk, it cannot be noted now: the next reader does.
        _ = try? want(blob)
      }
      throw error
    }
  }
}

private func max<Element>(_ left: Element, _ right: Element, by isLess: (Element, Element) -> Bool) -> Element
{
  isLess(left, right) ? right : left
}

extension Entry {
  init(_ record: Record) {
    var size: UInt64 = 0
    var blob: BlobReference?
    switch record.content {
    case .tombstone: break
    case .inline(let bytes): size = UInt64(bytes.count)
    case .blob(let reference): (size, blob) = (reference.size, reference)
    }
    self.init(
      key: Key(unchecked: record.key), type: record.type, size: size, stamp: record.stamp, dot: record.dot,
      deadline: record.deadline, blob: blob)
  }
}

/// Sizes and counts of a store.
public struct StoreStatus: Hashable, Sendable {
  /// Keys that have a value.
  public var keys = 0
  /// Deleted keys whose tombstone is kept.
  public var tombstones = 0
  /// Bytes of all values.
  public var liveBytes: UInt64 = 0
  /// Keys whose value lies in the blob tier.
  public var blobKeys = 0
  /// Bytes of those values.
  public var blobBytes: UInt64 = 0
  /// Files of the journal.
  public var segments = 0
  /// Bytes of those files.
  public var journalBytes: UInt64 = 0
  /// The last position of the journal.
  public var position: UInt64 = 0
  /// Beaten concurrent values that are kept.
  public var conflicts = 0
  /// Keys with records stamped too far ahead to be applied yet.
  public var parked = 0
  /// Places of the journal that are damaged.
  public var damagedPlaces = 0
}
