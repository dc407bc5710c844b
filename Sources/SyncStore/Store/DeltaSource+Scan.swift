/// Finding the records of a round, and reading them.
extension DeltaSource {
  /// Bounds the passes over records appended during the scan.
  private static let maxPasses = 8

  /// Finds the records of a round, concurrently with writers. Nil if so few records remain that writers can
  /// wait for the scan, or if the journal is damaged.
  func deltaScan(
    for receiver: RoundReceiver, after begin: UInt64, isLive: Bool
  ) throws(StoreError) -> DeltaScan? {
    let few = environment.scanBatchPositions
    // A live session calls this for each write: check the position without the engine lock first.
    let last = control.position
    if isLive { guard last > begin, last - begin > few else { return nil } }
    let begun = try reading { engine throws(StoreError) -> (DeltaFilter, DeltaScanContext)? in
      let isFull = Self.givesFullState(engine.state, to: receiver, isLive: isLive)
      let choice = DeltaFilter(for: receiver, after: begin, isFull: isFull)
      return DeltaScanContext(after: choice.begin, few: few, in: &engine).map { (choice, $0) }
    }
    return try begun.flatMap { choice, context throws(StoreError) in try deltaScan(choice, context: context) }
  }

  /// Finds the records of a round from an existing context; nil also if that context does not suit this
  /// receiver.
  func deltaScan(
    for receiver: RoundReceiver, after begin: UInt64, on context: DeltaScanContext
  ) throws(StoreError) -> DeltaScan? {
    let isFull = try reading { engine throws(StoreError) in
      Self.givesFullState(engine.state, to: receiver, isLive: false)
    }
    let choice = DeltaFilter(for: receiver, after: begin, isFull: isFull)
    return choice.begin == 0 ? try deltaScan(choice, context: context) : nil
  }

  private func deltaScan(_ choice: DeltaFilter, context: DeltaScanContext) throws(StoreError) -> DeltaScan? {
    let few = environment.scanBatchPositions
    var delta = DeltaScan(choice: choice, context: context)
    guard try delta.scan(in: self) else { return nil }
    for _ in 1..<Self.maxPasses {
      let reached = delta.reached
      let more = try reading { engine throws(StoreError) in
        engine.position > reached && engine.position - reached > few ? engine.slice(after: reached) : nil
      }
      guard let more else { break }
      guard try delta.scan(through: more, in: self) else { return nil }
    }
    return delta
  }

  /// Writes records of a round whose pin still holds, whole transactions of them. Returns the number of
  /// users' records. `source` caches the reader of the last segment.
  func write(
    _ items: ArraySlice<DeltaStream.Item>, pin: SnapshotPin, from source: inout DeltaSegmentReader?,
    into writer: inout some BatchWriter
  ) throws(StoreError) -> Int {
    var users = 0
    var next = items.startIndex
    while next < items.endIndex {
      let number = items[next].location.segment
      source = try reading { engine throws(StoreError) in
        try pin.check(path)
        if let source, source.segment.number == number { return source }
        return engine.journal.segment(number).map { DeltaSegmentReader($0) }
      }
      if let source { next = try source.write(items[next...], into: &writer, users: &users) }
      guard next < items.endIndex, items[next].location.segment == number else { continue }
      // Not a simple record; in an encrypted segment none is.
      let others = items[next...].prefix(
        source?.segment.cipher == nil ? 1 : DeltaSegmentReader.recordsPerWrite)
      let records = try reading { engine throws(StoreError) in
        try pin.check(path)
        return try others.map { item throws(StoreError) in try engine.record(at: item.location) }
      }
      for (item, var record) in zip(others, records) {
        next += 1
        record.continues = next < items.endIndex && items[next].group == item.group
        users += record.isReserved ? 0 : 1
        writer.write(PositionedRecord(position: item.position, record: record))
      }
    }
    return users
  }

  /// The dots of records of a round whose pin still holds.
  func dots(_ items: ArraySlice<DeltaStream.Item>, pin: SnapshotPin) throws(StoreError) -> [Dot] {
    try reading { engine throws(StoreError) in
      try pin.check(path)
      var dots: [Dot] = []
      dots.reserveCapacity(items.count)
      for item in items {
        guard let dot = try engine.journal.record(at: item.location).dot else {
          throw StoreError(
            .damaged, "a record lost the definition of its actor: run `Store.verify`", path: path)
        }
        dots.append(dot)
      }
      return dots
    }
  }
}
