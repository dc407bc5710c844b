/// Index lookup of a key, also while another process changes the index.
extension Engine {
  /// Location of the greatest applied record of a key. Callers check `indexIsInvalid` afterwards.
  func find(_ key: [UInt8]) -> Location? { find(key.span) }

  func find(_ key: Span<UInt8>) -> Location? {
    while true {
      let changes = index.checkpoint.seqlock
      let found = Self.search(key, index: index, segments: journal.table)?.found?.location
      if status.isWritingIndex || indexIsInvalid { return found }
      let newest = changes & 1 == 0 ? found : newest(of: key, found)
      if changes == index.checkpoint.seqlock { return newest }
    }
  }

  /// Result of an index lookup, valid until the engine changes.
  struct Search {
    var hash: UInt64
    /// The greatest applied record; nil if the key is absent.
    var found: Found?

    struct Found {
      /// Its record ref in the index.
      var ref: UInt64
      var location: Location
    }
  }

  /// Looks up a key in the index.
  @inline(__always)
  mutating func search(_ key: Span<UInt8>) -> Search {
    let changes = index.checkpoint.seqlock
    if let search = Self.search(key, index: index, segments: journal.table),
      status.isWritingIndex || changes & 1 == 0 && changes == index.checkpoint.seqlock
    {
      return search
    }
    return retrySearch(key)
  }

  @inline(never)
  private mutating func retrySearch(_ key: Span<UInt8>) -> Search {
    if status.isWritingIndex { return searchWhileIndexing(key) }
    for _ in 0..<Self.attempts {
      if indexIsInvalid { rebuildIndex() }
      let changes = index.checkpoint.seqlock
      guard var search = Self.search(key, index: index, segments: journal.table) else { continue }
      if status.isWritingIndex || changes & 1 == 0 && changes == index.checkpoint.seqlock { return search }
      guard changes & 1 != 0 else { continue }
      // The seqlock holder may be suspended or dead; readers must not spin on it.
      if isBehind { do throws(StoreError) { try catchUp() } catch { index.failure = error } }
      let newest = newest(of: key, search.found?.location)
      // If the write has ended since, this result may be older than another key read by the caller.
      guard changes == index.checkpoint.seqlock else { continue }
      if let newest {
        // Only writers need the ref, and they do not reach this branch.
        search.found = Search.Found(ref: 0, location: newest)
      }
      if !indexIsInvalid { return search }
    }
    // The index refers to a segment that does not exist; the rebuilt one does not.
    indexMismatchError()
    return retrySearch(key)
  }

  /// Looks up a key while this process is writing the index. Catching up here would recurse without end; on
  /// failure `endIndexWrite` rebuilds the index.
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

  /// Location of the greatest record of a key while another process is indexing: the index says `found`, and
  /// all records being indexed already count.
  private func newest(of key: Span<UInt8>, _ found: Location?) -> Location? {
    guard let start = index.checkpoint.pending, journal.index(of: start.segment) != nil else { return found }
    let limit = Stamp(milliseconds: context.environment.now() + Limits.clockDriftMilliseconds)
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

  /// Nil if the index is invalid.
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
