/// Building indexes. Which of them are complete is noted in a local record: another copy builds its own, so that elements
/// written there by a program that did not know the index get their entries there.
extension StoreCollection {
  private var noteKey: [UInt8] { Store.indexNoteKey(name) }

  /// Builds the indexes that are not complete, and removes those that are not wanted any more.
  func prepareIndexes() throws(StoreError) {
    let complete = try source.completeIndexes(of: name)
    let wanted = Dictionary(uniqueKeysWithValues: layout.indexes.map { ($0.name, $0.version) })
    guard complete != wanted else { return }
    // Who only reads needs those that it names, and removes none.
    if !source.isWritable, wanted.allSatisfy({ complete[$0.key] == $0.value }) { return }
    try source.checkWritable()
    // First of all they do not count as complete any more, whatever comes in between.
    let kept = complete.filter { wanted[$0.key] == $0.value }
    try source.setLocal(noteKey, kept.isEmpty ? nil : try EncodedValue(kept).bytes)
    for (name, version) in complete where wanted[name] != version {
      try removeEntries(CollectionLayout<Element>.entryPrefix(self.name, name, version))
    }
    try build(layout.indexes.indices.filter { kept[layout.indexes[$0].name] == nil })
    if !wanted.isEmpty { try source.setLocal(noteKey, try EncodedValue(wanted).bytes) }
  }

  /// Adds the entries that the indexes lack, while others read and write: for elements that were not written through a collection, such
  /// as restored losers of conflicts, or by programs that did not know of an index. Entries without an element stay: they do no
  /// harm, and to delete one could undo what another copy has written meanwhile.
  public func rebuildIndexes() throws(StoreError) { try build(Array(layout.indexes.indices)) }

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
            guard let bytes = layout.indexes[place].keyBytes(of: element) else { continue }
            let key = try CollectionLayout<Element>.entry(
              layout.indexPrefixes[place], bytes, element.id.keyBytes)
            if try !transaction.contains(key) {
              try transaction.put(key, [], expires: value.deadline ?? .max)
            }
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
}

extension Store {
  fileprivate static func indexNoteKey(_ collection: String) -> [UInt8] {
    Array("collection/\(collection)".utf8)
  }

  /// Names and versions of the indexes of a collection that are complete.
  fileprivate func completeIndexes(of collection: String) throws(StoreError) -> [String: Int] {
    guard let bytes = try local(Self.indexNoteKey(collection)) else { return [:] }
    // One that does not read was written by a program that knew more: all are built anew.
    return (try? EncodedValue(bytes: bytes, type: .cbor).decoded(as: [String: Int].self)) ?? [:]
  }

  /// Is the index still what it was when the collection was opened? Who has opened it since, here or in another process, may
  /// have removed or redefined it: an error then, for its entries would tell of some elements only.
  func requireIndex(_ index: String, version: Int, of collection: String) throws(StoreError) {
    guard try completeIndexes(of: collection)[index] != version else { return }
    throw StoreError(
      .outOfBounds,
      "the collection \"\(collection)\" was opened elsewhere without its index \"\(index)\" (version \(version)): open it again, and name the same indexes everywhere",
      path: path)
  }
}
