/// The places of all keys' records in the order of the keys' bytes: for scans and snapshots. Built at the first one, and
/// brought up to date when the next begins.
///
/// A value that can be read without the engine's lock. The places lie in chunks, so that a view which is brought up to
/// date while a snapshot holds the old one copies only the chunks in which something changed.
///
/// Invariants: no chunk is empty, none has more than `largestChunk` places; all places can be read in `segments`.
struct SortedKeyIndex: Sendable {
  private(set) var segments: SegmentSnapshot
  /// Up to where the journal was read for it.
  private(set) var upTo: Location
  /// How many places there are, those of the dead and the store's own among them.
  private(set) var count: Int
  /// Places whose record was found damaged: nobody can say where in the order they belong.
  private(set) var damaged: [Location]
  private var chunks: [[Location]]

  private static let largestChunk = 1024
  /// Leaves room, so that the first changes do not split every chunk.
  private static let builtChunk = 768

  /// Of all these places, each of another key.
  init(_ places: [Location], upTo: Location, in segments: SegmentSnapshot) {
    (self.upTo, self.segments) = (upTo, segments)
    let sorted: [Location]
    (sorted, damaged) = KeySort<SegmentSnapshot>.sorted(places, in: segments)
    count = sorted.count
    chunks = stride(from: 0, to: sorted.count, by: Self.builtChunk).map {
      Array(sorted[$0..<min($0 + Self.builtChunk, sorted.count)])
    }
  }

  /// Takes in records that are now the current ones of their keys, in any order; `segments` are those of now.
  mutating func merge(_ changes: [Location], upTo: Location, in segments: SegmentSnapshot) {
    guard !chunks.isEmpty else {
      self = SortedKeyIndex(changes, upTo: upTo, in: segments)
      return
    }
    (self.upTo, self.segments) = (upTo, segments)
    let (changes, lost) = KeySort<SegmentSnapshot>.sorted(changes, in: segments)
    damaged += lost
    // From behind, so that a chunk that is split moves none that is still to come.
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

  /// The chunk in which the key is, or would be.
  private func chunk(of key: [UInt8]) -> Int {
    max(0, Self.firstIndex(of: chunks) { segments.compare($0[0], key) <= 0 } - 1)
  }

  /// How many elements are before the first one for which `isBefore` does not hold.
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

  /// A place in the order.
  struct Position {
    var chunk: Int
    var index: Int
  }

  /// Behind the last place.
  var end: Position { Position(chunk: chunks.count, index: 0) }

  /// The first place whose key is not before `key`; behind the last one if all are. `.damaged` if that cannot be told.
  func firstPosition(notBefore key: [UInt8]) throws(StoreError) -> Position {
    // The chunk before the first one that begins at the key or behind it may hold it.
    let chunk =
      Self.firstIndex(of: chunks) { segments.compare($0[0], key) < 0 } - 1
    var position = Position(chunk: 0, index: 0)
    if chunk >= 0 {
      let index = Self.firstIndex(of: chunks[chunk]) { segments.compare($0, key) < 0 }
      position =
        index < chunks[chunk].count
        ? Position(chunk: chunk, index: index) : Position(chunk: chunk + 1, index: 0)
    }
    // A key that was damaged since may have led astray. It did not if both neighbours are whole and where they should be.
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

  /// The place of a damaged record: this one, or the first there is.
  private func firstDamaged(_ location: Location) -> Location {
    guard segments.isWhole(location) else { return location }
    return chunks.lazy.joined().first { !segments.isWhole($0) } ?? location
  }

  /// Where the record of a key is; nil if nothing is held of it. `.damaged` if that cannot be told.
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

  /// Records are fetched so many at once, before those fetched last are read: a processor looks for several in memory at a
  /// time, each likely to lie on another page.
  private static let group = 16
  /// Of long records only so many bytes: the processor itself fetches what is read on and on.
  private static let fetched = 512

  /// Visits the places between two positions until `body` has had enough. `isUsable` is asked now and then.
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
      // Records of one store are much alike.
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
