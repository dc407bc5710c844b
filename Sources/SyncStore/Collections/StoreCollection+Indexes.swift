/// Building indexes. Which of them are complete is noted in a local record (`IndexMetadata`): another copy builds its own, so that
/// elements written there by a program that did not know the index get their entries there.
extension StoreCollection {
  /// How often building begins anew because others have written who do not know of an index.
  private static var buildAttempts: Int { 8 }

  /// So many of the elements that were written last are looked at when the collection is opened.
  private static var sampledElements: Int { 8 }
  /// As far as they are among so many records at the end of the journal: opening a collection is not to cost more with more keys.
  private static var sampledRecords: UInt64 { 4096 }

  /// Builds the indexes that are not complete or not by what they are declared to be by, and removes those that are not wanted any more.
  func prepareIndexes() throws(StoreError) {
    let bytes = try source.local(layout.metadataKey)
    let (note, wanted) = (IndexMetadata(bytes), Set(layout.indexNames))
    // Who only reads could do nothing about it.
    let stale = source.isWritable ? try staleIndexes(among: note.complete.intersection(wanted)) : []
    guard bytes != layout.metadataBytes || !stale.isEmpty else { return }
    // Who only reads needs those that it names, and removes none.
    if !source.isWritable, wanted.isSubset(of: note.complete) { return }
    try source.checkWritable()
    let former = note.complete.union(note.building.keys).subtracting(wanted)
    // First of all they do not count any more, whatever comes in between.
    try updateMetadata { $0.invalidate(exceptFor: wanted.subtracting(stale)) }
    for index in former {
      try removeEntries(
        CollectionLayout<Element>.entryPrefix(name, index: index.name, version: index.version))
    }
    try buildIndexes(all: false)
  }

  /// Those that lack the entry of one of the elements that were written last. What they are by was changed under the same version, or an
  /// element was not written through a collection. They are built as those of a new version are, but that nothing is removed: another copy
  /// may count on the very entry. What is left over of what they were by counts for nothing.
  private func staleIndexes(among complete: Set<IndexMetadata.Name>) throws(StoreError) -> Set<
    IndexMetadata.Name
  > {
    let places = layout.indexNames.indices.filter { complete.contains(layout.indexNames[$0]) }
    guard !places.isEmpty else { return [] }
    var stale: Set<IndexMetadata.Name> = []
    let elements = layout.range(Unbounded<Element.ID>())
    for key in try source.writtenLast(in: elements, among: Self.sampledRecords, limit: Self.sampledElements) {
      do throws(StoreError) {
        // A large value may be elsewhere, and would be waited for.
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
        // An element is written with its entries: what was looked at is of one moment if it is still the same.
        guard !lacking.isEmpty, try source.entry(key)?.dot == before.dot else { continue }
        stale.formUnion(lacking)
      } catch {
        // What cannot be read here is an error for who asks for it, and no reason not to open the collection.
        guard error.code == .damaged else { throw error }
      }
    }
    return stale
  }

  /// Adds the entries that the indexes lack, while others read and write: for elements that were not written through a collection, such
  /// as restored losers of conflicts, or by programs that did not know of an index. Entries without an element stay: they do no harm, and
  /// to delete one could undo what another copy has written meanwhile.
  ///
  /// - Throws: `.busy` if a program that does not name all of the indexes goes on writing meanwhile; what reading all elements throws.
  public func rebuildIndexes() throws(StoreError) { try buildIndexes(all: true) }

  /// Builds all of them, or those that are not complete.
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
            // One that is there may end before the element, whose deadline others have changed.
            let ends = try transaction.get(key).map { $0.deadline ?? .max } ?? 0
            if ends < value.deadline ?? .max { try transaction.put(key, [], expires: value.deadline ?? .max) }
          }
        }
      }
      last = end.key
    }
  }

  /// Removes all entries of an index that is of no use any more.
  private func removeEntries(_ prefix: [UInt8]) throws(StoreError) {
    while case let page = try source.list(KeyRange(prefix: prefix), limit: Self.pageSize), !page.isEmpty {
      try transaction(nil) { transaction throws(StoreError) in
        for entry in page { try transaction.delete(entry.key) }
      }
    }
  }

  /// An element is about to be written: indexes that this program does not know of are not complete any more. They are as long as
  /// all name the same ones; then this is a comparison of bytes.
  func invalidateUnknownIndexes(in transaction: inout Transaction) throws(StoreError) {
    guard let bytes = transaction.local(layout.metadataKey), bytes != layout.metadataBytes else { return }
    let note = IndexMetadata(bytes)
    var left = note
    left.invalidate(exceptFor: Set(layout.indexNames))
    if left != note { try transaction.setLocal(layout.metadataKey, try left.bytes()) }
  }

  /// Changes the note while nobody else can. Returns what it is then.
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
  /// Was the index complete at the snapshot's moment? An error if not, for its entries would tell of some elements only: it was built
  /// later, or who has opened the collection or written to it since, here or in another process, knew nothing of it.
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
