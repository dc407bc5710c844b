/// Building indexes. A local record (`IndexMetadata`) says which are complete: another copy builds its own,
/// so that elements written there by a program that did not know the index get their entries there.
extension StoreCollection {
  /// Number of times a build restarts because a writer that does not know an index has written concurrently.
  private static var buildAttempts: Int { 8 }

  /// Number of most recently written elements sampled when the collection is opened.
  private static var sampledElements: Int { 8 }
  /// The sample is limited to this many records at the end of the journal, so that opening a collection does
  /// not cost more with more keys.
  private static var sampledRecords: UInt64 { 4096 }

  /// Builds the indexes that are incomplete or stale, and removes those that are no longer declared.
  func prepareIndexes() throws(StoreError) {
    let bytes = try source.local(layout.metadataKey)
    let (note, wanted) = (IndexMetadata(bytes), Set(layout.indexNames))
    // A read-only store could not repair them.
    let stale = source.isWritable ? try staleIndexes(among: note.complete.intersection(wanted)) : []
    guard bytes != layout.metadataBytes || !stale.isEmpty else { return }
    // A read-only store needs the indexes that it declares, and removes none.
    if !source.isWritable, wanted.isSubset(of: note.complete) { return }
    try source.checkWritable()
    let former = note.complete.union(note.building.keys).subtracting(wanted)
    // First mark them incomplete, so that an interruption leaves no index that is wrongly complete.
    try updateMetadata { $0.invalidate(exceptFor: wanted.subtracting(stale)) }
    for index in former {
      try removeEntries(
        CollectionLayout<Element>.entryPrefix(name, index: index.name, version: index.version))
    }
    try buildIndexes(all: false)
  }

  /// Indexes that lack the entry of a recently written element: the indexed property was changed without a
  /// new version, or an element was not written through a collection.
  ///
  /// They are rebuilt as for a new version, except that no entry is removed: another copy may rely on it.
  /// Left-over entries of the former property are ignored.
  private func staleIndexes(among complete: Set<IndexMetadata.Name>) throws(StoreError) -> Set<
    IndexMetadata.Name
  > {
    let places = layout.indexNames.indices.filter { complete.contains(layout.indexNames[$0]) }
    guard !places.isEmpty else { return [] }
    var stale: Set<IndexMetadata.Name> = []
    let elements = layout.range(Unbounded<Element.ID>())
    for key in try source.writtenLast(in: elements, among: Self.sampledRecords, limit: Self.sampledElements) {
      do throws(StoreError) {
        // A large value may be on another copy only, and reading it would wait.
        guard let before = try source.entry(key), before.blob == nil,
          let element = try? source.get(key)?.decoded(as: Element.self)
        else { continue }
        var lacking: [IndexMetadata.Name] = []
        for place in places {
          guard let entry = layout.entry(ofStored: element, in: place), try !source.contains(entry) else {
            continue
          }
          lacking.append(layout.indexNames[place])
        }
        // An element is written with its entries: the check is consistent if the element is still unchanged.
        guard !lacking.isEmpty, try source.entry(key)?.dot == before.dot else { continue }
        stale.formUnion(lacking)
      } catch {
        // An unreadable element is an error for its readers, and no reason not to open the collection.
        guard error.code == .damaged else { throw error }
      }
    }
    return stale
  }

  /// Adds the entries that the indexes lack, concurrently with reads and writes.
  ///
  /// For elements that were not written through a collection, such as restored losers of conflicts, or that
  /// were written by programs that did not know an index. Entries without an element stay: they are harmless,
  /// and deleting one could undo a concurrent write of another copy.
  ///
  /// - Throws: `.busy` if a program that does not declare all of the indexes keeps writing concurrently;
  ///   errors of reading all elements.
  public func rebuildIndexes() throws(StoreError) { try buildIndexes(all: true) }

  /// Builds all indexes, or those that are not complete.
  private func buildIndexes(all: Bool) throws(StoreError) {
    let wanted = Set(layout.indexNames)
    guard !wanted.isEmpty else { return }
    for _ in 0..<Self.buildAttempts {
      let position = Int(clamping: source.journalPosition)
      let announced = try updateMetadata { $0.beginBuilding(wanted, at: position) }
      try build(
        layout.indexNames.indices.filter { all || !announced.complete.contains(layout.indexNames[$0]) })
      var isComplete = false
      try updateMetadata { isComplete = $0.finishBuilding(wanted, since: announced) }
      if isComplete { return }
    }
    throw StoreError(
      .busy,
      "the indexes of the collection \"\(name)\" are not complete: a program that does not name all of them has written while they were built; name the same ones everywhere, then open it again",
      path: source.path)
  }

  private func build(_ places: [Int]) throws(StoreError) {
    guard !places.isEmpty else { return }
    var last: Key?
    let elements = layout.range(Unbounded<Element.ID>())
    let snapshot = try source.snapshot()
    while case let page = try snapshot.list(elements, after: last, limit: Self.pageSize), let end = page.last
    {
      try transaction(nil) { transaction throws(StoreError) in
        for entry in page {
          // It may have been changed since; one that cannot be decoded has no entries.
          guard let value = try transaction.get(entry.key), let element = try? value.decoded(as: Element.self)
          else {
            continue
          }
          for place in places {
            guard let key = layout.entry(ofStored: element, in: place) else { continue }
            // An existing entry may expire before the element, whose deadline other writers have changed.
            let ends = try transaction.get(key).map { $0.deadline ?? .max } ?? 0
            if ends < value.deadline ?? .max {
              try transaction.put(key, [], expiration: Expiration(deadline: value.deadline))
            }
          }
        }
      }
      last = end.key
    }
  }

  /// Removes all entries of an index that is no longer used.
  private func removeEntries(_ prefix: [UInt8]) throws(StoreError) {
    while case let page = try source.list(KeyRange(prefix: prefix), limit: Self.pageSize), !page.isEmpty {
      try transaction(nil) { transaction throws(StoreError) in
        for entry in page { try transaction.delete(entry.key) }
      }
    }
  }

  /// Before an element is written: indexes unknown to this program become incomplete. While all programs
  /// declare the same ones this is a comparison of bytes.
  func invalidateUnknownIndexes(in transaction: inout Transaction) throws(StoreError) {
    guard let bytes = transaction.local(layout.metadataKey), bytes != layout.metadataBytes else { return }
    let note = IndexMetadata(bytes)
    var left = note
    left.invalidate(exceptFor: Set(layout.indexNames))
    if left != note { try transaction.setLocal(layout.metadataKey, try left.bytes()) }
  }

  /// Changes the metadata atomically, and returns the result.
  @discardableResult
  private func updateMetadata(_ change: (inout IndexMetadata) -> Void) throws(StoreError) -> IndexMetadata {
    var note = IndexMetadata()
    var failure: StoreError?
    try source.updateLocal(layout.metadataKey) { bytes in
      note = IndexMetadata(bytes)
      change(&note)
      do throws(StoreError) { return try note.bytes() } catch {
        failure = error
        return bytes
      }
    }
    if let failure { throw failure }
    return note
  }
}

extension Snapshot {
  /// Fails if the index was not complete when the snapshot was taken, because its entries would cover only
  /// some elements: it was built later, or a program that opened the collection or wrote to it since, here or
  /// in another process, did not know the index.
  func requireIndex<Element>(
    _ index: IndexMetadata.Name, of layout: CollectionLayout<Element>
  ) throws(StoreError) {
    let bytes = try indexNote(layout.metadataKey)
    if bytes == layout.metadataBytes || IndexMetadata(bytes).complete.contains(index) { return }
    let isLater = IndexMetadata(try store.local(layout.metadataKey)).complete.contains(index)
    throw StoreError(
      .outOfBounds,
      "the index \"\(index.name)\" (version \(index.version)) of the collection \"\(layout.name)\" "
        + (isLater
          ? "was built after the snapshot was made: make another one"
          : "is not complete, for the collection was opened or written elsewhere without it: open it again, and name the same indexes everywhere"),
      path: store.path)
  }
}
