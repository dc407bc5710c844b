/// Local keys: what the layers above the store keep for this copy alone.
struct LocalKeys: WritingPart {
  let core: OpenStore
  let writes: WritePath
  let journalSync: JournalSync

  /// The value of a local key, which is never replicated.
  func value(of key: [UInt8]) throws(StoreError) -> [UInt8]? {
    try reading { engine throws(StoreError) in engine.localMetadata[key] }
  }

  /// A snapshot of all local keys, which can be read without a lock.
  var snapshot: LocalMetadata {
    get throws(StoreError) { try reading { engine throws(StoreError) in engine.localMetadata } }
  }

  /// Local keys that begin with `prefix`, in order.
  func all(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    try snapshot.all(beginning: prefix).sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }

  /// Sets a local key, durably; nil removes it.
  func set(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try update(key) { _ in value }
  }

  /// Changes a local key atomically and durably: `change` gets its value and returns the new one. Returns the
  /// previous value.
  @discardableResult
  func update(
    _ key: [UInt8], _ change: ([UInt8]?) -> [UInt8]?
  ) throws(StoreError) -> [UInt8]? {
    precondition(
      !StateKey.isInternal(key) && key.count <= Limits.keyBytes, "the store keeps these keys itself")
    let (before, tail) = try writes.append { builder throws(StoreError) in
      let before = core.engine.withLock { $0.localMetadata[key] }
      let after = change(before)
      if after != before { try builder.setLocal(key, after) }
      return before
    }
    try journalSync.sync(upTo: tail)
    return before
  }

  /// Sets local keys durably in one append; nil removes a key.
  func set(_ changes: [(key: [UInt8], value: [UInt8]?)]) throws(StoreError) {
    let (_, tail) = try writes.append { builder throws(StoreError) in
      for change in changes {
        precondition(!StateKey.isInternal(change.key), "the store keeps these keys itself")
        try builder.setLocal(change.key, change.value)
      }
    }
    try journalSync.sync(upTo: tail)
  }

  /// Records that a blob must be fetched again, because it was found damaged or missing.
  func want(_ blob: BlobReference) throws(StoreError) {
    let absent = AbsentBlob(blob, .awaited)
    try set(absent.key, absent.value)
  }
}

extension Store {
  /// The value of a local key, which is never replicated.
  package func local(_ key: [UInt8]) throws(StoreError) -> [UInt8]? { try localKeys.value(of: key) }

  /// A snapshot of all local keys, which can be read without a lock.
  var localMetadata: LocalMetadata { get throws(StoreError) { try localKeys.snapshot } }

  /// Local keys that begin with `prefix`, in order.
  package func locals(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    try localKeys.all(prefix: prefix)
  }

  /// Sets a local key, durably; nil removes it.
  package func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try localKeys.set(key, value)
  }

  /// Sets local keys durably in one append; nil removes a key.
  package func setLocals(_ changes: [(key: [UInt8], value: [UInt8]?)]) throws(StoreError) {
    try localKeys.set(changes)
  }

  /// Changes a local key atomically and durably: `change` gets its value and returns the new one. Returns the
  /// previous value.
  @discardableResult
  package func updateLocal(
    _ key: [UInt8], _ change: ([UInt8]?) -> [UInt8]?
  ) throws(StoreError) -> [UInt8]? {
    try localKeys.update(key, change)
  }

  /// Records that a blob must be fetched again, because it was found damaged or missing.
  package func want(_ blob: BlobReference) throws(StoreError) { try localKeys.want(blob) }
}
