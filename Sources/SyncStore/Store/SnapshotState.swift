/// All keys and values at one moment, independent of the store: the data of scans and snapshots.
struct SnapshotState: Sendable {
  let order: SortedKeyIndex
  let possiblyLostKeys: PossiblyLostKeys?
  /// Which collection indexes were complete.
  let indexNotes: [[UInt8]: [UInt8]]

  /// Calls `body` with the verified record of a key in place, if it had a value at `time`; nil if it had
  /// none.
  func withRecord<Result>(
    of key: [UInt8], at time: UInt64, _ body: (RawSpan, SegmentSnapshot.Fields) throws -> Result
  ) throws -> Result? {
    let location = try order.location(of: key)
    try possiblyLostKeys?.check(key, found: location)
    guard let location else { return nil }
    let found = try order.segments.withRecord(location) { record, fields in
      fields.isLive(at: time) ? try body(record, fields) : nil
    }
    guard let found else { throw order.segments.error(at: location) }
    return found
  }

  /// The value of a record found in the blob tier; nil if it is inline.
  static func blob(
    _ record: RawSpan, fields: SegmentSnapshot.Fields
  ) throws(StoreError) -> BlobReference {
    guard let blob = BlobReference(recorded: [UInt8](copying: record.extracting(droppingFirst: fields.value)))
    else {
      throw StoreError(.damaged, "a reference to a blob contradicts itself: run `Store.verify`")
    }
    return blob
  }

  static func entry(_ record: RawSpan, fields: SegmentSnapshot.Fields) throws(StoreError) -> Entry {
    let blob = fields.kind == .blob ? try blob(record, fields: fields) : nil
    return Entry(
      key: Key(unchecked: [UInt8](copying: record.extracting(fields.key..<fields.value))), type: fields.type,
      size: blob?.size ?? UInt64(record.byteCount - fields.value), stamp: fields.stamp, dot: fields.dot,
      deadline: fields.deadline, blob: blob)
  }

  // MARK: Scans

  /// Reaction of a scan to damage in its range.
  private enum DamagePolicy {
    /// Fails if a record is damaged, or if the range may lack keys lost to damage.
    case refusePossibleLoss
    /// Fails if a record is damaged.
    case refuseDamaged
    /// Skips damaged records and passes their locations on.
    case report((Location) -> Void)
  }

  /// Parameters of a scan.
  struct Scan {
    var range: KeyRange
    var after: Key?
    var reversed: Bool
    var limit: Int
    /// The time that deadlines are compared with, in milliseconds since 1970.
    var time: UInt64
  }

  /// Visits keys with their values in place. Returns the last key visited if there may be more, nil at the
  /// end.
  func visit(
    _ scan: Scan, in store: Store, _ body: (RawSpan, RawSpan, EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    try visit(scan, onDamage: .refusePossibleLoss, in: store) { record, fields in
      let details = EntryDetails(
        type: fields.type, deadline: fields.deadline, stamp: fields.stamp, dot: fields.dot)
      let key = record.extracting(fields.key..<fields.value)
      if fields.kind == .value {
        return try body(key, record.extracting(droppingFirst: fields.value), details)
      }
      return try Self.visitBlob(record, fields: fields, in: store) { try body(key, $0, details) }
    }
  }

  @inline(never)
  private static func visitBlob(
    _ record: RawSpan, fields: SegmentSnapshot.Fields, in store: Store,
    _ body: (RawSpan) throws -> ScanStep
  ) throws -> ScanStep {
    try store.read(try blob(record, fields: fields)).withRawSpan(body)
  }

  /// Visits the metadata of keys. Possibly lost keys are ignored: it shows what is there.
  func visitEntries(_ scan: Scan, in store: Store, _ body: (Entry) throws -> ScanStep) throws -> Key? {
    try visit(scan, onDamage: .refuseDamaged, in: store) { try body(try Self.entry($0, fields: $1)) }
  }

  /// Visits everything readable and returns what is not, including records damaged after opening.
  func visitReadable(
    _ scan: Scan, in store: Store, _ body: (Entry) throws -> Void
  ) throws -> (last: Key?, doubts: [PossibleLoss]) {
    var lost = order.damaged
    let last = try visit(scan, onDamage: .report { lost.append($0) }, in: store) {
      try body(try Self.entry($0, fields: $1))
      return .next
    }
    let range = scan.after.map { scan.range.after($0, reversed: scan.reversed) } ?? scan.range
    var doubts = try possiblyLostKeys?.possibleLosses(in: order, range.contains) ?? []
    for place in lost {
      let key = order.segments.lostKey(at: place)
      if let key, !range.contains(key) { continue }
      doubts.append(PossibleLoss(key: key.map { Key(unchecked: $0) }, error: order.segments.error(at: place)))
    }
    return (last, doubts)
  }

  @inline(__always)
  private func visit(
    _ scan: Scan, onDamage policy: DamagePolicy, in store: Store,
    _ body: (RawSpan, SegmentSnapshot.Fields) throws -> ScanStep
  ) throws -> Key? {
    guard scan.limit > 0 else { return scan.after }
    let range = scan.after.map { scan.range.after($0, reversed: scan.reversed) } ?? scan.range
    guard !range.isEmpty else { return nil }
    let (low, high) = try bounds(of: range, onDamage: policy)
    let segments = order.segments
    var left = scan.limit
    var last: Location?
    try order.visit(
      from: low, to: high, reversed: scan.reversed,
      while: { () throws(StoreError) in try store.checkUsable() }
    ) { location in
      let step = try segments.withRecord(location) { record, fields -> ScanStep in
        guard fields.isLive(at: scan.time) else { return .next }
        left &-= 1
        guard try body(record, fields) == .next, left > 0 else {
          last = location
          return .stop
        }
        return .next
      }
      if let step { return step }
      guard case .report(let lost) = policy else { throw segments.error(at: location) }
      lost(location)
      return .next
    }
    guard let last else { return nil }
    let key = segments.keyBytes(at: last)
    return key.isEmpty ? nil : Key(unchecked: key)
  }

  private func bounds(
    of range: KeyRange, onDamage policy: DamagePolicy
  ) throws(StoreError) -> (SortedKeyIndex.Position, SortedKeyIndex.Position) {
    switch policy {
    case .refusePossibleLoss:
      try requireUndamaged()
      try possiblyLostKeys?.check(in: order, range.contains)
    case .refuseDamaged: try requireUndamaged()
    case .report: break
    }
    let low = try order.firstPosition(notBefore: range.lower)
    guard let upper = range.upper else { return (low, order.end) }
    return (low, try order.firstPosition(notBefore: upper))
  }

  private func requireUndamaged() throws(StoreError) {
    if let lost = order.damaged.first { throw order.segments.error(at: lost) }
  }
}

extension SnapshotState {
  /// The state of an engine now. Sorts all keys if they are not sorted yet.
  init(_ engine: inout Engine) throws(StoreError) {
    self.init(
      order: try engine.sortedKeyIndex(), possiblyLostKeys: engine.possiblyLostKeys,
      indexNotes: engine.localMetadata.indexNotes)
  }
}

/// Making snapshots.
extension Store {
  /// The present state of all keys and values: whole transactions, those of other processes included. If keys
  /// must be sorted, only callers of this function wait for that.
  func snapshotState() throws(StoreError) -> SnapshotState {
    if let view = try cachedSnapshotState() { return view }
    return try ordering.withLock { orders throws(StoreError) in
      // With many concurrent writes or compactions the order is outdated at once: after two attempts, sort
      // while writers wait.
      for _ in 0..<2 {
        if let view = try cachedSnapshotState() { return view }
        let origin = try reading { engine throws(StoreError) in try engine.sortInput() }
        let order = SortedKeyIndex(origin.places, upTo: origin.upTo, in: origin.segments)
        orders += 1
        try reading { engine throws(StoreError) in engine.install(order, builtFrom: origin) }
      }
      return try reading { engine throws(StoreError) in try SnapshotState(&engine) }
    }
  }

  /// The present state if no full sort is needed; otherwise nil.
  private func cachedSnapshotState() throws(StoreError) -> SnapshotState? {
    try reading { engine throws(StoreError) in
      try engine.cachedSortedKeyIndex().map {
        SnapshotState(
          order: $0, possiblyLostKeys: engine.possiblyLostKeys, indexNotes: engine.localMetadata.indexNotes)
      }
    }
  }

  /// The bytes of a value in the blob tier.
  func read(_ blob: BlobReference) throws(StoreError) -> [UInt8] {
    try fetching(blob) { blobs throws(StoreError) in try blobs.read(blob) }
  }
}
