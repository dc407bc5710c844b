/// Passes over all keys that let others go on: a writer waits for one turn of it at most.
extension Store {
  /// Records that are looked at in one turn, and bytes of them.
  static let recordsPerStep = 256
  static let bytesPerStep = 1 << 20

  /// Looks at the record of each key, a few under the lock at a time. What is written meanwhile may be seen as it was before or after;
  /// a key that nobody writes is seen exactly once.
  ///
  /// - Parameters:
  ///   - restart: all that was taken so far does not count, because the index was built anew: the pass begins again.
  ///   - look: what is wanted of a record, under the lock.
  ///   - take: is given that outside of it.
  func visitKeysInSteps<Element>(
    restart: () -> Void, read: (inout Engine, Location) throws(StoreError) -> Element,
    collect: (Element) throws(StoreError) -> Void
  ) throws(StoreError) {
    for _ in 0..<Self.maxPassAttempts {
      restart()
      if try visitKeysOnce(look: read, take: collect) { return }
    }
    throw StoreError(
      .damaged, "the index was built anew again and again while all keys were looked at: run `Store.verify`",
      path: path)
  }

  private static let maxPassAttempts = 8

  /// False if the index was built anew meanwhile.
  private func visitKeysOnce<Element>(
    look: (inout Engine, Location) throws(StoreError) -> Element,
    take: (Element) throws(StoreError) -> Void
  ) throws(StoreError) -> Bool {
    let pin = SnapshotPin()
    // Within a transaction of this thread, and for a reader in shared mode, no writer is kept from changing the index: its keys
    // are found in one turn then.
    let isWhole = isInTransaction || !isWritable
    let pass = try reading { engine throws(StoreError) -> (keys: HashIndex, units: Int) in
      engine.retainSegments(for: pin)
      return (engine.index.hashIndex, isWhole ? 1 : try engine.scanUnitCount())
    }
    for unit in 0..<pass.units {
      let places: [Location]?
      if isWhole {
        places = try reading { engine throws(StoreError) in try engine.locations() }
      } else {
        places = try readingExclusively { engine, _ throws(StoreError) in
          guard engine.index.hashIndex === pass.keys else { return nil }
          return try engine.locations(unit: unit, of: pass.units)
        }
      }
      guard let places else { return false }
      yieldEngineLock()
      try visit(places, pin: pin, look: look, take: take)
    }
    return true
  }

  /// Comes after each turn of a pass: the threads that wait for the engine have it next. Without this a pass that takes
  /// the lock again at once starves them: puts waited for up to 520 ms beside `status` of 1,000,000 keys.
  func yieldEngineLock() {
    engine.yieldToWaiters()
    environment.onScanYield?()
  }

  /// Looks at the records at these places in turns.
  func visit<Element>(
    _ places: [Location], pin: SnapshotPin, look: (inout Engine, Location) throws(StoreError) -> Element,
    take: (Element) throws(StoreError) -> Void
  ) throws(StoreError) {
    var next = 0
    while next < places.count {
      let start = next
      let (elements, end) = try reading { engine throws(StoreError) -> ([Element], Int) in
        try pin.check(path)
        var (elements, bytes, index) = ([Element](), 0, start)
        while index < min(start + Self.recordsPerStep, places.count), bytes < Self.bytesPerStep {
          let place = places[index]
          elements.append(try look(&engine, place))
          if let segment = engine.journal.segment(place.segment) {
            bytes += segment.extent(at: place.offset).end - place.offset
          }
          index += 1
        }
        return (elements, index)
      }
      next = end
      for element in elements { try take(element) }
      yieldEngineLock()
    }
  }
}

extension Engine {
  /// How many units a pass has (`HashIndex.scanUnitCount`). If the index cannot be read it is marked as failed, and `Store.reading` retries
  /// with a rebuilt one.
  fileprivate func scanUnitCount() throws(StoreError) -> Int {
    try markingIndexFailure { () throws(StoreError) in try index.hashIndex.scanUnitCount() }
  }

  /// Marks the index as failed where `body`, which reads it, fails.
  private func markingIndexFailure<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    do throws(StoreError) { return try body() } catch {
      index.failure = index.failure ?? error
      throw error
    }
  }

  /// The places of the keys of one unit of a pass (`HashIndex.forEachRef(unit:of:_:)`), with the same rule for the index.
  fileprivate func locations(unit: Int, of units: Int) throws(StoreError) -> [Location] {
    try markingIndexFailure { () throws(StoreError) in try locationsOfUnit(unit, of: units) }
  }

  private func locationsOfUnit(_ unit: Int, of units: Int) throws(StoreError) -> [Location] {
    var locations: [Location] = []
    try index.hashIndex.forEachRef(unit: unit, of: units) { place, isShared throws(StoreError) in
      guard let segment = journal.table.segment(ofRef: place) else { throw indexMismatchError() }
      let offset = SegmentTable.offset(ofRef: place)
      if isShared {
        let view = RecordView(segment: segment, offset: offset)
        let hash =
          view.isReadable ? view.shape.map { view.bytes.withSpan($0.key) { index.hashIndex.hash($0) } } : 0
        guard HashIndex.belongs(hash ?? 0, to: unit, of: units) else { return }
      }
      locations.append(Location(segment: segment.number, offset: offset))
    }
    return locations
  }
}
