/// Gets: the index gives the location, and the record there is verified. Lock-free in the simple cases; with
/// damage or parked records under the engine's lock, after catching up.
extension Store {
  /// The value of a key; nil if it has none.
  ///
  /// - Throws: `.damaged` if its record or blob is; `.blobUnavailable` if the bytes of its blob have not
  ///   arrived from a peer yet.
  public func get(_ key: Key) throws(StoreError) -> Value? {
    let fast = readers.read { view -> LockFreeResult<Value>? in
      readLockFree(key, in: view) { Value(bytes: $0.valueBytes, type: $0.type, deadline: $0.deadline) }
    }
    switch fast {
    case .value(let value)?: return value
    case .nothing?: return nil
    case nil:
      if let found = lockFreeBlob(key) {
        return try value(of: found.blob, type: found.type, deadline: found.deadline)
      }
      guard let record = try currentRecord(key.bytes) else { return nil }
      return try value(of: record)
    }
  }

  /// Reads the value of a key in place, without a copy if it is stored inline in the journal; nil if it has
  /// none.
  ///
  /// The bytes that `body` reads do not change, whatever is written concurrently.
  ///
  /// - Throws: as `get`, and what `body` throws.
  @inlinable
  public func withValue<Result>(_ key: Key, _ body: (RawSpan) throws -> Result) throws -> Result? {
    var result: Result?
    try read(key) { result = try body($0) }
    return result
  }

  /// `withValue` without a generic result, so that it need not be specialized for each result type.
  @usableFromInline
  func read(_ key: Key, _ body: (RawSpan) throws -> Void) throws {
    try readTyped(key) { bytes, _ in try body(bytes) }
  }

  /// Calls `body` with the value in place and its type.
  @inline(__always)
  func readTyped(_ key: Key, _ body: (RawSpan, ValueType) throws -> Void) throws {
    let found = readers.read { view -> LockFreeResult<(any Error)?>? in
      readLockFree(key, in: view) { record in
        record.withValue { bytes in
          do {
            try body(bytes, record.type)
            return nil
          } catch {
            return error
          }
        }
      }
    }
    switch found {
    case .value(let refusal)?: if let refusal { throw refusal }
    case .nothing?: return
    case nil:
      if let found = lockFreeBlob(key) { return try readBlob(found.blob, type: found.type, body) }
      guard let record = try currentRecord(key.bytes) else { return }
      if case .blob(let blob) = record.content, record.isLive(at: environment.now()) {
        return try readBlob(blob, type: record.type, body)
      }
      if let value = try value(of: record) { try value.bytes.withRawSpan { try body($0, value.type) } }
    }
  }

  /// Copies the value of a key to the buffer it is decoded from, as a type's decoding may block or use the
  /// store. Returns the type; nil if the key has no value.
  @inline(__always)
  func load(_ key: Key, into source: ValueSource) throws(StoreError) -> ValueType? {
    let fast = readers.read { view -> LockFreeResult<ValueType>? in
      readLockFree(key, in: view) { record in
        record.withValue { source.fill($0) }
        return record.type
      }
    }
    switch fast {
    case .value(let type)?: return type
    case .nothing?: return nil
    case nil:
      guard let value = try get(key) else { return nil }
      source.fill(value.bytes.span)
      return value.type
    }
  }

  /// The value of a key if it is a scalar, without a copy of its bytes; nil if it has none. The program's own
  /// code, compiled with the program, converts it to the wanted type.
  @usableFromInline
  func scalar(_ key: Key, of wanted: Any.Type) throws(StoreError) -> Scalar? {
    let fast = readers.read { view -> LockFreeResult<Scalar?>? in
      readLockFree(key, in: view) { record in record.withValue { try? Scalar($0, record.type) } }
    }
    switch fast {
    case .value(let scalar?)?: return scalar
    case .nothing?: return nil
    // Everything else is told apart below.
    case .value(nil)?, nil: break
    }
    var scalar: Scalar?
    try StoreError.only {
      try readTyped(key) { bytes, type in
        do throws(StoreError) {
          scalar = try Scalar(bytes, type)
          guard scalar != nil else {
            throw StoreError(
              .wrongType, "the value is of type \(type), not a value of type \(wanted): read it as what it is"
            )
          }
        } catch {
          throw error.of(key)
        }
      }
    }
    return scalar
  }

  /// Whether the key has a value.
  ///
  /// - Throws: `.damaged` if the record of the key may have been lost; `.closed`, `.forked`.
  public func contains(_ key: Key) throws(StoreError) -> Bool {
    switch readers.read({ view -> LockFreeResult<Void>? in readLockFree(key, in: view) { _ in } }) {
    case .value?: true
    case .nothing?: false
    case nil: try liveRecord(key.bytes) != nil
    }
  }

  /// The blob of a key with a large value, found without a lock; nil if there is none, or it takes the lock
  /// to tell.
  func lockFreeBlob(_ key: Key) -> (blob: BlobReference, type: ValueType, deadline: UInt64?)? {
    guard SystemCall.forksSeen == core.forkGeneration else { return nil }
    guard let found = readers.read({ view in view.findBlob(key.bytes.span) }),
      found.deadline.map({ $0 > environment.now() }) ?? true
    else { return nil }
    return found
  }

  /// The result of a lock-free look-up.
  private enum LockFreeResult<Result> {
    case nothing
    case value(Result)
  }

  /// Calls `body` with the record of a key that has a value; nil if the look-up needs the engine's lock.
  @inline(__always)
  private func readLockFree<Result>(
    _ key: Key, in view: LockFreeView, _ body: (SimpleRecord) -> Result
  ) -> LockFreeResult<Result>? {
    guard SystemCall.forksSeen == core.forkGeneration else { return nil }
    guard view.isEncrypted else { return liveResult(view.find(key.bytes.span), body) }
    // Memory of the decrypted record, kept until `body` has returned.
    var opened: Mapping?
    let found = view.find(key.bytes.span, opened: &opened)
    return withExtendedLifetime(opened) { liveResult(found, body) }
  }

  @inline(__always)
  private func liveResult<Result>(
    _ found: LockFreeView.Found, _ body: (SimpleRecord) -> Result
  ) -> LockFreeResult<Result>? {
    switch found {
    case .record(let record):
      if record.isTombstone { return .nothing }
      if let deadline = record.deadline, deadline <= environment.now() { return .nothing }
      let result = body(record)
      // A page that faulted during the read reads as zeros: the locked path reports it.
      return !Mapping.hasAnyFaulted || record.isWhole ? .value(result) : nil
    case .nothing: return .nothing
    case .unknown: return nil
    }
  }

  /// Metadata of a key's value, without reading the value; nil if it has none.
  ///
  /// - Throws: `.damaged` if the record of the key may have been lost; `.closed`, `.forked`.
  public func entry(_ key: Key) throws(StoreError) -> Entry? {
    try liveRecord(key.bytes).map { Entry($0) }
  }

  /// Writes the value of a key to a file. The file is replaced atomically once the copy is complete. False if
  /// the key has no value.
  ///
  /// - Throws: `.foreignFile` if a device, a pipe or a directory has that name.
  public func export(_ key: Key, toFileAt file: String) throws(StoreError) -> Bool {
    guard let record = try liveRecord(key.bytes) else { return false }
    let file = try environment.storage.unanchored.fileToReplace(file)
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
    let storage = environment.storage.unanchored
    // A unique name: another export to the same file may be under way, or a user's file may have the name.
    let temporary = BlobFiles.temporary(nextTo: path)
    let file = try storage.open(temporary, .create)
    do throws(StoreError) {
      try file.write(bytes, at: 0)
      try file.sync()
      try storage.rename(temporary, to: path)
    } catch {
      _ = try? storage.remove(temporary)
      throw error
    }
  }

  /// The digest of the live records at the present wall-clock time: equal on two copies in step.
  ///
  /// - Throws: `.damaged` if a record that it is made of cannot be read; `.busy` in shared mode within a
  ///   transaction of this thread; `.closed`, `.forked`.
  public func digest() throws(StoreError) -> StateDigest { try digest(at: environment.now()) }

  /// The writes that this copy covers.
  ///
  /// - Throws: `.closed`, `.forked`.
  public func versionVector() throws(StoreError) -> VersionVector {
    try reading { engine throws(StoreError) in engine.state.vector }
  }

  /// Sizes and counts. **Reads every key: not for use in a loop.** Writers are not blocked, so the counts are
  /// not of one moment.
  ///
  /// - Throws: `.damaged`, `.inputOutput` if the journal cannot be read; `.closed`, `.forked`. Single damaged
  ///   records are left out.
  public func status() throws(StoreError) -> StoreStatus {
    let now = environment.now()
    var status = StoreStatus()
    try visitKeysInSteps {
      status = StoreStatus()
    } read: { engine, place throws(StoreError) -> CountedKey? in
      guard let record = try? engine.record(at: place), !record.isReserved else { return nil }
      let entry = Entry(record)
      return CountedKey(
        isLive: record.isLive(at: now), isTombstone: record.isTombstone, size: entry.size,
        isBlob: entry.blob != nil)
    } collect: { key throws(StoreError) in
      if let key { status.count(key) }
    }
    let figures = try reading { engine in engine.figures() }
    (status.segments, status.journalBytes) = (figures.segments, figures.journalBytes)
    (status.position, status.conflicts, status.parked) = (figures.position, figures.conflicts, figures.parked)
    status.damagedPlaces = figures.damagedPlaces
    (status.heldBytes, status.readers) = (figures.heldBytes, figures.readers)
    return status
  }

  /// The greatest record of a key, including a parked one that is due and not applied yet.
  func currentRecord(_ key: [UInt8]) throws(StoreError) -> Record? {
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

  /// The greatest record of a key if it has a value now; nil if it has none.
  func liveRecord(_ key: [UInt8]) throws(StoreError) -> Record? {
    guard let record = try currentRecord(key), record.isLive(at: environment.now()) else { return nil }
    return record
  }

  /// When the next parked record of a key is due, in milliseconds since 1970; nil if none is parked.
  func nextParkedDue(_ key: [UInt8], at now: UInt64) throws(StoreError) -> UInt64? {
    try reading { engine throws(StoreError) in
      var next: UInt64?
      for location in engine.parked[key] ?? [] {
        // Due from the first millisecond whose stamps are not below its own.
        let due = try engine.record(at: location).stamp.milliseconds + 1 - Limits.clockDriftMilliseconds
        if due > now { next = min(next ?? due, due) }
      }
      return next
    }
  }

  func value(of record: Record) throws(StoreError) -> Value? {
    guard record.isLive(at: environment.now()) else { return nil }
    switch record.content {
    case .tombstone: return nil
    case .inline(let bytes): return Value(bytes: bytes, type: record.type, deadline: record.deadline)
    case .blob(let blob): return try value(of: blob, type: record.type, deadline: record.deadline)
    }
  }

  private func value(
    of blob: BlobReference, type: ValueType, deadline: UInt64?
  ) throws(StoreError) -> Value {
    let bytes = try fetching(blob) { blobs throws(StoreError) in try blobs.read(blob) }
    return Value(bytes: bytes, type: type, deadline: deadline)
  }
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

/// The fields that `status` counts of a key.
private struct CountedKey {
  var isLive: Bool
  var isTombstone: Bool
  var size: UInt64
  var isBlob: Bool
}

extension StoreStatus {
  fileprivate mutating func count(_ key: CountedKey) {
    guard key.isLive else {
      tombstones += key.isTombstone ? 1 : 0
      return
    }
    keys += 1
    liveBytes += key.size
    if key.isBlob { (blobKeys, blobBytes) = (blobKeys + 1, blobBytes + key.size) }
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
  /// Damaged places of the journal, except those whose records were received again from a peer.
  public var damagedPlaces = 0
  /// Bytes of compacted segments kept for readers of this process: never more than the journal has, or
  /// `Limits.heldBytes`, or four of its segments. A reader that would need more is ended.
  public var heldBytes: UInt64 = 0
  /// Readers of this process that keep segments from being unmapped: rounds under way, and snapshots.
  public var readers = 0
}
