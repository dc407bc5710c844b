import SyncStore

/// `import --delete`: the keys below a prefix that have no file in the directory.
final class TreeMirror {
  private static let transactionKeys = 500

  private let store: Store
  private let prefix: [UInt8]
  private let found: [(key: Key, version: Dot)]
  private(set) var deleted = 0
  var keys: [Key] { found.map(\.key) }

  /// Finds the keys. Finds none if a directory could not be read: its files may be there.
  init(_ store: Store, prefix: [UInt8], _ tree: TreeWalk, _ filter: PathFilter) throws {
    (self.store, self.prefix) = (store, prefix)
    guard tree.failures.isEmpty else {
      Diagnostics.report(
        "import --delete: a part of the directory cannot be read: nothing is deleted: mend that first")
      found = []
      return
    }
    let present = Set(tree.files.map(\.path)).union(tree.leftOut)
    var found: [(key: Key, version: Dot)] = []
    try store.snapshot().scanEntries(KeyRange(prefix: prefix)) { entry in
      let path = Array(entry.key.bytes.dropFirst(prefix.count))
      if !present.contains(path), !filter.excludesFile(path) { found.append((entry.key, entry.dot)) }
    }
    self.found = found
  }

  /// Asks on a terminal whether the keys may go; elsewhere a large number of them needs `--yes`.
  func confirm(_ invocation: Invocation) throws(Failure) {
    try invocation.confirmDeletes(found.count, prefix: prefix, because: "have no file in the directory")
  }

  /// Deletes the keys that were not written since.
  func delete() throws {
    var rest = found[...]
    while !rest.isEmpty {
      let page = rest.prefix(Self.transactionKeys)
      deleted += try store.transaction { transaction in
        var count = 0
        for (key, version) in page where try transaction.delete(key, expecting: .version(version)) {
          count += 1
        }
        return count
      }
      rest = rest.dropFirst(Self.transactionKeys)
    }
  }
}
