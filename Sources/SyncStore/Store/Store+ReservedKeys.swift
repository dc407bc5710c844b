/// Reserved keys of the store (members, invitations), replicated or local: read, and changed together.
extension Store {
  /// The values of replicated reserved keys that begin with `prefix`, in order.
  ///
  /// A value that is not inline, which no reserved key has, or whose record is damaged, reads as empty: its
  /// decoder must refuse it, not take it for absent.
  package func reserved(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    let values = try reading { engine throws(StoreError) in
      var values: [(key: [UInt8], value: [UInt8])] = []
      for key in engine.reserved where key.starts(with: prefix) {
        do throws(StoreError) {
          if let value = try engine.held(key)?.reservedValue { values.append((key, value)) }
        } catch {
          guard error.code == .damaged else { throw error }
          values.append((key, []))
        }
      }
      return values
    }
    return values.sorted { $0.key.lexicographicallyPrecedes($1.key) }
  }

  /// Why some replicated reserved key may have had a newer record that was lost; nil if there is no such
  /// damage. While there is, nothing may be granted because of what `reserved` returns.
  package var reservedKeyDamage: StoreError? {
    get throws(StoreError) {
      try reading { engine throws(StoreError) in engine.possiblyLostKeys?.unattributedDamage }
    }
  }

  /// The value of one replicated reserved key; nil if it has none. Empty if it is not inline, as in
  /// `reserved(prefix:)`.
  package func reserved(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    precondition(ReservedKey.isReserved(key), "a user's key is read by `get`")
    return try reading { engine throws(StoreError) in try engine.held(key) }?.reservedValue
  }

  /// Sets a replicated reserved key, durably; nil deletes it.
  package func putReserved(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    try changeReservedKeys { keys throws(StoreError) in try keys.putReserved(key, value) }
  }

  /// Reads and changes reserved keys in one atomic append, durable on return.
  ///
  /// Holds the writers' mutex: no thread or process changes what `body` has read before its changes are in
  /// the journal. If `body` throws, nothing is changed.
  package func changeReservedKeys<Answer>(
    _ body: (inout ReservedKeyTransaction) throws(StoreError) -> Answer
  ) throws(StoreError) -> Answer {
    let (answer, tail) = try writes.append { builder throws(StoreError) in
      var keys = ReservedKeyTransaction(store: self, builder: builder)
      let answer = try body(&keys)
      builder = keys.builder
      return answer
    }
    try sync(upTo: tail)
    return answer
  }
}

/// Reserved keys within one atomic change: reads see what the change has written so far.
package struct ReservedKeyTransaction {
  fileprivate let store: Store
  fileprivate var builder: TransactionBuilder

  /// The value of a local key; nil if it has none.
  package func local(_ key: [UInt8]) -> [UInt8]? {
    if let changed = builder.locals[key] { return changed }
    return store.core.engine.withLock { $0.localMetadata[key] }
  }

  /// Local keys that begin with `prefix`, in order.
  package func locals(prefix: [UInt8]) -> [(key: [UInt8], value: [UInt8])] {
    let notes = store.core.engine.withLock { $0.localMetadata.all(beginning: prefix) }
    var values = Dictionary(notes.map { ($0.key, $0.value) }, uniquingKeysWith: { $1 })
    for (key, value) in builder.locals where key.starts(with: prefix) { values[key] = value }
    return values.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map { ($0.key, $0.value) }
  }

  /// Sets a local key; nil removes it.
  package mutating func setLocal(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    precondition(
      !StateKey.isInternal(key) && key.count <= Limits.keyBytes, "the store keeps these keys itself")
    try builder.setLocal(key, value)
  }

  /// The value of a replicated reserved key; nil if it has none. As `Store.reserved`.
  package func reserved(_ key: [UInt8]) throws(StoreError) -> [UInt8]? {
    if let changed = builder.record(of: key) { return changed.reservedValue }
    return try store.core.engine.withLock { engine throws(StoreError) in try engine.held(key) }?.reservedValue
  }

  /// Replicated reserved keys that begin with `prefix`, in order.
  package func reserved(prefix: [UInt8]) throws(StoreError) -> [(key: [UInt8], value: [UInt8])] {
    let keys = store.core.engine.withLock { $0.reserved.filter { $0.starts(with: prefix) } }
    var values: [(key: [UInt8], value: [UInt8])] = []
    for key in keys.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
      if let value = try reserved(key) { values.append((key, value)) }
    }
    return values
  }

  /// Sets a replicated reserved key; nil deletes it.
  package mutating func putReserved(_ key: [UInt8], _ value: [UInt8]?) throws(StoreError) {
    precondition(ReservedKey.isReserved(key), "a user's key is written by `put`")
    let held = try store.writes.heldForWriting(key, in: builder)
    try builder.issue(
      key: key, content: value.map { .inline($0) } ?? .tombstone, type: .bytes, deadline: nil, held: held)
  }
}

extension Record {
  /// The value of a reserved key; nil if it is deleted, empty if it is not inline.
  fileprivate var reservedValue: [UInt8]? {
    switch content {
    case .inline(let value): value
    case .tombstone: nil
    case .blob: []
    }
  }
}
