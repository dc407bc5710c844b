/// Sorted key index: the locations of all keys' records in byte order of the keys, for scans and snapshots.
/// Built by the first one, and updated when the next begins.
///
/// A value that can be read without the engine's lock. The locations are in chunks, so that an update while a
/// snapshot holds the old value copies only the chunks that change.
///
/// Invariants: no chunk is empty, none has more than `largestChunk` locations; all locations can be read in
/// `segments`.
struct SortedKeyIndex: Sendable {
  private(set) var segments: SegmentSnapshot
  /// The location up to which the journal was read for it.
  private(set) var upTo: Location
  /// Number of locations, including those of dead records and of the store's own keys.
  private(set) var count: Int
  /// Locations whose record was found damaged: their position in the order is unknown.
  private(set) var damaged: [Location]
  private var chunks: [[Location]]

  private static let largestChunk = 1024
  /// Leaves space, so that the first changes do not split every chunk.
  private static let builtChunk = 768

  /// Built from all these locations, each of another key.
  init(_ places: [Location], upTo: Location, in segments: SegmentSnapshot) {
    (self.upTo, self.segments) = (upTo, segments)
    let sorted: [Location]
    (sorted, damaged) = KeySort<SegmentSnapshot>.sorted(places, in: segments)
    count = sorted.count
    chunks = stride(from: 0, to: sorted.count, by: Self.builtChunk).map {
      Array(sorted[$0..<min($0 + Self.builtChunk, sorted.count)])
    }
  }

  /// Merges records that are now the current ones of their keys, in any order; `segments` is the present
  /// snapshot.
  mutating func merge(_ changes: [Location], upTo: Location, in segments: SegmentSnapshot) {
    guard !chunks.isEmpty else {
      self = SortedKeyIndex(changes, upTo: upTo, in: segments)
      return
    }
    (self.upTo, self.segments) = (upTo, segments)
    let (changes, lost) = KeySort<SegmentSnapshot>.sorted(changes, in: segments)
    damaged += lost
    // Backwards, so that splitting a chunk does not move one that is still to be merged.
    var end = changes.count
    while end > 0 {
      let chunk = self.chunk(of: segments.keyBytes(at: changes[end - 1]))
      var start = end - 1
      if chunk > 0 {
        let first = segments.keyBytes(at: chunks[chunk][0])
        while start > 0, segments.compare(changes[start - 1], first) >= 0 { start -= 1 }
      } else {
        start = 0
      }
      merge(changes[start..<end], into: chunk)
      end = start
    }
  }

  private mutating func merge(_ changes: ArraySlice<Location>, into chunk: Int) {
    var isNew: [Location] = []
    for change in changes {
      let key = segments.keyBytes(at: change)
      let index = Self.firstIndex(of: chunks[chunk]) { segments.compare($0, key) < 0 }
      if index < chunks[chunk].count, segments.compare(chunks[chunk][index], key) <= 0 {
        chunks[chunk][index] = change
      } else {
        isNew.append(change)
      }
    }
    guard !isNew.isEmpty else { return }
    count += isNew.count
    let old = chunks[chunk]
    var merged: [Location] = []
    merged.reserveCapacity(old.count + isNew.count)
    var next = 0
    for change in isNew {
      let key = segments.keyBytes(at: change)
      let index = next + Self.firstIndex(of: old[next...]) { segments.compare($0, key) < 0 }
      merged.append(contentsOf: old[next..<index])
      merged.append(change)
      next = index
    }
    merged.append(contentsOf: old[next...])
    guard merged.count > Self.largestChunk else {
      chunks[chunk] = merged
      return
    }
    let parts = (merged.count + Self.builtChunk - 1) / Self.builtChunk
    let size = (merged.count + parts - 1) / parts
    chunks.replaceSubrange(
      chunk...chunk,
      with: stride(from: 0, to: merged.count, by: size).map {
        Array(merged[$0..<min($0 + size, merged.count)])
      })
  }

  /// The chunk in which the key is or would be.
  private func chunk(of key: [UInt8]) -> Int {
    max(0, Self.firstIndex(of: chunks) { segments.compare($0[0], key) <= 0 } - 1)
  }

  /// Number of elements before the first one for which `isBefore` is false.
  private static func firstIndex<Elements: RandomAccessCollection>(
    of elements: Elements, _ isBefore: (Elements.Element) -> Bool
  ) -> Int where Elements.Index == Int {
    var (low, high) = (elements.startIndex, elements.endIndex)
    while low < high {
      let middle = (low + high) / 2
      if isBefore(elements[middle]) { low = middle + 1 } else { high = middle }
    }
    return low - elements.startIndex
  }

  // MARK: Reading

  /// A position in the order.
  struct Position {
    var chunk: Int
    var index: Int
  }

  /// The position after the last location.
  var end: Position { Position(chunk: chunks.count, index: 0) }

  /// The first position whose key is not before `key`, possibly `end`.
  ///
  /// - Throws: `.damaged` if damaged keys make it uncertain.
  func firstPosition(notBefore key: [UInt8]) throws(StoreError) -> Position {
    // The chunk before the first one that begins at the key or after it may hold it.
    let chunk =
      Self.firstIndex(of: chunks) { segments.compare($0[0], key) < 0 } - 1
    var position = Position(chunk: 0, index: 0)
    if chunk >= 0 {
      let index = Self.firstIndex(of: chunks[chunk]) { segments.compare($0, key) < 0 }
      position =
        index < chunks[chunk].count
        ? Position(chunk: chunk, index: index) : Position(chunk: chunk + 1, index: 0)
    }
    // A key damaged since may have misled the search. It did not if both neighbours are whole and on the
    // right side.
    if let next = location(at: position) {
      guard segments.isWhole(next), segments.compare(next, key) >= 0 else {
        throw segments.error(at: firstDamaged(next))
      }
    }
    if let previous = location(before: position) {
      guard segments.isWhole(previous), segments.compare(previous, key) < 0 else {
        throw segments.error(at: firstDamaged(previous))
      }
    }
    return position
  }

  /// The location of a damaged record: this one, or the first there is.
  private func firstDamaged(_ location: Location) -> Location {
    guard segments.isWhole(location) else { return location }
    return chunks.lazy.joined().first { !segments.isWhole($0) } ?? location
  }

  /// The location of the record of a key; nil if there is none.
  ///
  /// - Throws: `.damaged` if damaged keys make it uncertain.
  func location(of key: [UInt8]) throws(StoreError) -> Location? {
    if let location = location(at: try firstPosition(notBefore: key)), segments.compare(location, key) == 0 {
      return location
    }
    if let lost = damaged.first { throw segments.error(at: lost) }
    return nil
  }

  private func location(at position: Position) -> Location? {
    position.chunk < chunks.count ? chunks[position.chunk][position.index] : nil
  }

  private func location(before position: Position) -> Location? {
    if position.index > 0 { return chunks[position.chunk][position.index - 1] }
    return position.chunk > 0 ? chunks[position.chunk - 1].last : nil
  }

  /// Records are prefetched in groups of this size, one group ahead of the one being read: the processor
  /// fetches several cache lines in parallel, each likely on another page.
  private static let group = 16
  /// At most this many bytes of a long record: the hardware prefetcher fetches the rest of a sequential read.
  private static let fetched = 512

  /// Visits the locations between two positions until `body` returns `.stop`. `isUsable` is called once per
  /// chunk.
  @inline(__always)
  func visit(
    from low: Position, to high: Position, reversed: Bool,
    while isUsable: () throws(StoreError) -> Void, _ body: (Location) throws -> ScanStep
  ) throws {
    var number = reversed ? min(high.chunk, chunks.count - 1) : low.chunk
    let step = reversed ? -1 : 1
    while number >= low.chunk, number <= high.chunk, number < chunks.count {
      try isUsable()
      let chunk = chunks[number]
      let places = chunk.span
      let start = number == low.chunk ? low.index : 0
      let end = number == high.chunk ? high.index : chunk.count
      var index = reversed ? end - 1 : start
      var (left, next, unfetched) = (end - start, index, end - start)
      // Records of one store have similar lengths.
      var length = left > 0 ? min(segments.length(places[index]), Self.fetched) : 0
      for _ in 0..<min(Self.group, max(left, 0)) {
        segments.prefetch(places[next], length)
        (next, unfetched) = (next + step, unfetched - 1)
      }
      while left > 0 {
        for _ in 0..<min(Self.group, unfetched) {
          segments.prefetch(places[next], length)
          (next, unfetched) = (next + step, unfetched - 1)
        }
        length = min(segments.length(places[index]), Self.fetched)
        for _ in 0..<min(Self.group, left) {
          if try body(places[index]) == .stop { return }
          (index, left) = (index + step, left - 1)
        }
      }
      number += step
    }
  }
}
