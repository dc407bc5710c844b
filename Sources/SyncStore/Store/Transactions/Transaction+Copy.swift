/// Copies within a store: renaming a key without reading its value.
extension Transaction {
  /// Sets `target` to the value of `key`, with its type and deadline. False if `key` has no value.
  ///
  /// ```swift
  /// try store.transaction { transaction in          // a rename
  ///   if try transaction.copy("old", to: "new") { try transaction.delete("old") }
  /// }
  /// ```
  ///
  /// The content of a large value is not copied: both keys refer to it.
  ///
  /// - Throws: as `Store.put`; `.damaged` if the record of `key` cannot be read; `.blobUnavailable` if a
  ///   large value is not on this copy: a write whose value no copy can supply must not win;
  ///   `.outOfBounds` if it does not fit into the transaction any more: nothing of it was written then.
  @discardableResult
  public mutating func copy(_ key: Key, to target: Key) throws(StoreError) -> Bool {
    try store.writes.issuePending(&builder)
    guard let source = try store.liveRecord(key, in: builder) else { return false }
    try store.retainBlob(of: source.content)
    let replaced = try store.writes.heldForWriting(target.bytes, in: builder)
    try builder.issue(
      key: target.bytes, content: source.content, type: source.type, deadline: source.deadline,
      held: replaced)
    return true
  }
}
