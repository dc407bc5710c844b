/// All keys and values at a moment, apart from what happens to the store: what scans and snapshots read.
struct FrozenView: Sendable {
  let order: OrderedView
  let doubts: Doubts?

  /// The verified record of a key; nil if none is held.
  func record(of key: [UInt8]) throws(StoreError) -> FrozenSegments.Fields? {
    let location = try order.location(of: key)
    try doubts?.check(key, location)
    guard let location else { return nil }
    guard let fields = order.segments.fields(location) else { throw order.segments.error(at: location) }
    return fields
  }

  /// The value of a record; `nil` from `isLive` on is the caller's to tell.
  func value(_ fields: FrozenSegments.Fields, in store: Store) throws(StoreError) -> Value {
    let bytes: [UInt8]
    if fields.kind == .blob {
      bytes = try store.read(try blob(fields))
    } else {
      bytes = order.segments.bytes.bytes(fields.number, fields.value)
    }
    return Value(bytes: bytes, type: fields.type, deadline: fields.deadline)
  }

  private func blob(_ fields: FrozenSegments.Fields) throws(StoreError) -> BlobReference {
    guard let blob = order.segments.blob(fields) else {
      throw StoreError(.damaged, "a reference to a blob contradicts itself: run `verify --repair`")
    }
    return blob
  }

  func entry(_ fields: FrozenSegments.Fields) throws(StoreError) -> Entry {
    let blob = fields.kind == .blob ? try blob(fields) : nil
    return Entry(
      key: Key(unchecked: order.segments.bytes.bytes(fields.number, fields.key)), type: fields.type,
      size: blob?.size ?? UInt64(fields.value.count), stamp: fields.stamp, dot: fields.dot,
      deadline: fields.deadline, blob: blob)
  }

  // MARK: Scans

  /// A scan as it was asked for.
  struct Scan {
    var range: KeyRange
    var after: Key?
    var reversed: Bool
    var limit: Int
    /// Milliseconds since 1970 at which deadlines are judged.
    var time: UInt64
  }

  /// Visits keys with their values in place. Returns the last one visited if there may be more, nil at the end.
  func visit(
    _ scan: Scan, in store: Store, _ body: (RawSpan, RawSpan, EntryDetails) throws -> ScanStep
  ) throws -> Key? {
    let bytes = order.segments.bytes
    return try visit(scan, isCertain: true, in: store) { fields in
      let details = EntryDetails(
        type: fields.type, deadline: fields.deadline, stamp: fields.stamp, dot: fields.dot)
      guard fields.kind != .blob else {
        let value = try store.read(try blob(fields))
        return try bytes.withBytes(fields.number, fields.key) { key in
          try value.withRawSpan { try body(key, $0, details) }
        }
      }
      return try bytes.withBytes(fields.number, fields.key) { key in
        try bytes.withBytes(fields.number, fields.value) { try body(key, $0, details) }
      }
    }
  }

  /// Visits keys with what is known of them. What a lost record may have been is passed over: it shows what there is.
  func visitEntries(_ scan: Scan, in store: Store, _ body: (Entry) throws -> ScanStep) throws -> Key? {
    try visit(scan, isCertain: false, in: store) { try body(try entry($0)) }
  }

  @inline(__always)
  private func visit(
    _ scan: Scan, isCertain: Bool, in store: Store, _ body: (FrozenSegments.Fields) throws -> ScanStep
  ) throws -> Key? {
    guard scan.limit > 0 else { return scan.after }
    let range = scan.after.map { scan.range.after($0, reversed: scan.reversed) } ?? scan.range
    guard !range.isEmpty else { return nil }
    if let lost = order.damaged.first { throw order.segments.error(at: lost) }
    if isCertain { try doubts?.check(in: order, range.contains) }
    let low = try order.firstPosition(notBefore: range.lower)
    let high = try range.upper.map { upper throws(StoreError) in try order.firstPosition(notBefore: upper) }
    let segments = order.segments
    var left = scan.limit
    var last: Location?
    try order.visit(
      from: low, to: high ?? order.end, reversed: scan.reversed,
      while: { () throws(StoreError) in try store.checkUsable() }
    ) { location in
      guard let fields = segments.fields(location) else { throw segments.error(at: location) }
      guard fields.isLive(at: scan.time) else { return .next }
      left -= 1
      guard try body(fields) == .next, left > 0 else {
        last = location
        return .stop
      }
      return .next
    }
    guard let last else { return nil }
    let key = segments.key(at: last)
    return key.number < 0 ? nil : Key(unchecked: segments.bytes.bytes(key.number, key.range))
  }
}

/// How the store makes one.
extension Store {
  /// All keys and values as they are now: whole transactions, those of other processes included. Nobody waits while
  /// keys are sorted but who wants them sorted.
  func frozenView() throws(StoreError) -> FrozenView {
    if let view = try knownView() { return view }
    return try ordering.withLock { orders throws(StoreError) in
      // When others write much meanwhile, or compact, the order is out of date at once: then it is made while they wait.
      for _ in 0..<2 {
        if let view = try knownView() { return view }
        let (places, upTo, segments, numbers) = try reading { engine throws(StoreError) in
          (
            engine.index.locations, engine.applied, FrozenSegments(engine.journal),
            engine.journal.segments.map(\.number)
          )
        }
        let order = OrderedView(places, upTo: upTo, in: segments)
        orders += 1
        try reading { engine throws(StoreError) in engine.install(order, madeOf: numbers) }
      }
      return try reading { engine throws(StoreError) in
        FrozenView(order: try engine.orderedView(), doubts: engine.doubts)
      }
    }
  }

  /// The same if keys need not be sorted for it.
  private func knownView() throws(StoreError) -> FrozenView? {
    try reading { engine throws(StoreError) in
      try engine.knownOrder().map { FrozenView(order: $0, doubts: engine.doubts) }
    }
  }

  /// The bytes of a value in the blob tier.
  func read(_ blob: BlobReference) throws(StoreError) -> [UInt8] {
    try fetching(blob) { blobs throws(StoreError) in try blobs.read(blob) }
  }
}
