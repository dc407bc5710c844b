/// How a key is looked up in the index, also while another process changes that.
extension Engine {
  /// Where the greatest applied record of a key is. Who asks for it looks afterwards whether the index `indexIsInvalid`.
  func find(_ key: [UInt8]) -> Location? { find(key.span) }

  func find(_ key: Span<UInt8>) -> Location? {
    while true {
      let changes = index.checkpoint.seqlock
      let found = Self.search(key, index: index, segments: journal.table)?.found?.location
      if isWritingIndex || indexIsInvalid { return found }
      let newest = changes & 1 == 0 ? found : newest(of: key, found)
      if changes == index.checkpoint.seqlock { return newest }
    }
  }

  /// What the index knows of a key, until the engine is changed.
  struct Search {
    var hash: UInt64
    /// Where the greatest applied record is; nil if nothing is held.
    var found: Found?

    struct Found {
      /// What the index calls it.
      var ref: UInt64
      var location: Location
    }
  }

  /// Looks a key up in the index.
  @inline(__always)
  mutating func search(_ key: Span<UInt8>) -> Search {
    let changes = index.checkpoint.seqlock
    if let search = Self.search(key, index: index, segments: journal.table),
      isWritingIndex || changes & 1 == 0 && changes == index.checkpoint.seqlock
    {
      return search
    }
    return retrySearch(key)
  }

  @inline(never)
  private mutating func retrySearch(_ key: Span<UInt8>) -> Search {
    if isWritingIndex { return searchWhileIndexing(key) }
    for _ in 0..<Self.attempts {
      if indexIsInvalid { rebuildIndex() }
      let changes = index.checkpoint.seqlock
      guard var search = Self.search(key, index: index, segments: journal.table) else { continue }
      if isWritingIndex || changes & 1 == 0 && changes == index.checkpoint.seqlock { return search }
      guard changes & 1 != 0 else { continue }
      // Whoever is at it may be stopped, or dead: nobody waits for that.
      if isBehind { do throws(StoreError) { try catchUp() } catch { index.failure = error } }
      let newest = newest(of: key, search.found?.location)
      // Once it has come to its end, what was found before may be older than what another key has shown.
      guard changes == index.checkpoint.seqlock else { continue }
      if let newest {
        // Only who may change the index needs the place, and does not come here.
        search.found = Search.Found(ref: 0, location: newest)
      }
      if !indexIsInvalid { return search }
    }
    // It names what nobody has: the one that is built now does not.
    indexMismatchError()
    return retrySearch(key)
  }

  /// The same for who is just bringing the index up to date: to read on now would be to do that within itself, without an
  /// end. There is to be another index when it is done (`endIndexWrite`).
  private mutating func searchWhileIndexing(_ key: Span<UInt8>) -> Search {
    if index.failure == nil {
      index.namesUnmappedSegment = false
      do throws(StoreError) { try loadReplaced() } catch { index.failure = error }
      assignSlots(mayAdd: true)
      if index.failure == nil, let search = Self.search(key, index: index, segments: journal.table) {
        return search
      }
    }
    indexMismatchError()
    return Search(hash: index.hashIndex.hash(key))
  }

  /// Where the greatest record of a key is, of which the index names the one at `found`, while another process enters
  /// others into it: all of those count already.
  private func newest(of key: Span<UInt8>, _ found: Location?) -> Location? {
    guard let start = index.checkpoint.pending, journal.index(of: start.segment) != nil else { return found }
    let limit = Stamp(milliseconds: environment.now() + Limits.clockDriftMilliseconds)
    var newest = found
    var version = found.flatMap { try? journal.record(at: $0).version }
    let wanted = Array(copying: key)
    _ = try? visit(from: start) { view throws(StoreError) in
      guard view.isWrite, let shape = view.shape, view.key(shape) == wanted, let other = view.version,
        applies(other, limit: limit, waited: view.flags.contains(.parked)),
        version.map({ $0 < other }) ?? true
      else { return true }
      (newest, version) = (view.location, other)
      return true
    }
    return newest
  }

  private static let attempts = 100

  /// Nil if the index is in trouble.
  @inline(__always)
  private static func search(_ key: Span<UInt8>, index: JournalIndex, segments: SegmentTable) -> Search? {
    let hash = index.hashIndex.hash(key)
    do throws(StoreError) {
      var found: Location?
      let place = try index.hashIndex.find(hash) { place in
        guard let segment = segments.segment(ofRef: place) else {
          index.namesUnmappedSegment = true
          return true
        }
        let offset = SegmentTable.offset(ofRef: place)
        guard Self.matches(key, in: segment, at: offset) else { return false }
        found = Location(segment: segment.number, offset: offset)
        return true
      }
      if index.namesUnmappedSegment { return nil }
      guard let place, let found else { return Search(hash: hash) }
      return Search(hash: hash, found: Search.Found(ref: place, location: found))
    } catch {
      index.failure = error
      return nil
    }
  }
}
