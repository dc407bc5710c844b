/// Passes over all keys in short steps: a writer waits for one step at most.
extension WritingPart {
  /// Maximum number of records, and of their bytes, per step.
  static var recordsPerStep: Int { 256 }
  static var bytesPerStep: Int { 1 << 20 }

  /// Reads the record of each key, a few at a time under the engine lock. A key written concurrently may be
  /// seen before or after the write; a key that is not written is seen exactly once.
  ///
  /// - Parameters:
  ///   - restart: discards everything collected so far: the index was rebuilt and the pass begins again.
  ///   - read: reads what is needed of a record, under the lock.
  ///   - collect: receives the result, outside the lock.
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

  private static var maxPassAttempts: Int { 8 }

  /// False if the index was rebuilt since.
  private func visitKeysOnce<Element>(
    look: (inout Engine, Location) throws(StoreError) -> Element,
    take: (Element) throws(StoreError) -> Void
  ) throws(StoreError) -> Bool {
    let pin = SnapshotPin()
    // Inside a transaction of this thread, and for a reader in shared mode, writers cannot be excluded
    // between steps: find all keys in one step.
    let isWhole = writes.isInTransaction || !isWritable
    let pass = try reading { engine throws(StoreError) -> (keys: HashIndex, units: Int) in
      engine.retainSegments(for: pin)
      return (engine.index.hashIndex, isWhole ? 1 : try engine.scanUnitCount())
    }
    for unit in 0..<pass.units {
      let places: [Location]?
      if isWhole {
        places = try reading { engine throws(StoreError) in try engine.locations() }
      } else {
        places = try writes.readingExclusively { engine, _ throws(StoreError) in
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

  /// Ends a step: threads waiting for the engine lock get it next. Without this a pass that retakes the lock
  /// at once starves them: puts waited for up to 520 ms during `status` of 1,000,000 keys.
  func yieldEngineLock() {
    core.engine.yieldToWaiters()
    environment.onScanYield?()
  }

  /// Reads the records at these locations in steps.
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
  /// Number of units in a pass (`HashIndex.scanUnitCount`). If the index cannot be read it is marked as
  /// failed, and `Store.reading` retries with a rebuilt one.
  fileprivate func scanUnitCount() throws(StoreError) -> Int {
    try markingIndexFailure { () throws(StoreError) in try index.hashIndex.scanUnitCount() }
  }

  /// Marks the index as failed if reading it in `body` fails.
  private func markingIndexFailure<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError)
    -> Result
  {
    do throws(StoreError) { return try body() } catch {
      index.failure = index.failure ?? error
      throw error
    }
  }

  /// Locations of the keys in one unit of a pass (`HashIndex.forEachRef(unit:of:_:)`). Marks the index as
  /// failed if it cannot be read.
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
