/// Typed values and conditional writes for asynchronous code.
extension AsyncStore {
  /// The decoded value of a key, which may be in the blob tier; nil if it has none. As `Store.get(_:as:)`.
  public func get<Content: Decodable & Sendable>(
    _ key: Key, as type: Content.Type
  ) async throws(StoreError) -> Content? {
    try await perform { () throws(StoreError) in try store.get(key, as: type) }
  }

  /// The decoded value of a key; the default if it has none. As `Store.get(_:default:)`.
  public func get<Content: Decodable & Sendable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) async throws(StoreError) -> Content {
    try await get(key, as: Content.self) ?? fallback()
  }

  /// Calls `body` with the bytes of a value in place, also of one in the blob tier; nil if the key has none.
  /// `body` runs on one thread. As `Store.withValue`.
  public func withValue<Result: Sendable>(
    _ key: Key, _ body: @escaping @Sendable (RawSpan) throws -> Result
  ) async throws -> Result? {
    try await withStore { try $0.withValue(key, body) }
  }

  /// The value of a key together with its version; nil if it has none. As `Store.versioned`.
  public func versioned(_ key: Key) async throws(StoreError) -> VersionedValue? {
    try await perform { () throws(StoreError) in try store.versioned(key) }
  }

  /// The decoded value of a key together with its version; nil if it has none. As `Store.versioned(_:as:)`.
  public func versioned<Content: Decodable & Sendable>(
    _ key: Key, as type: Content.Type
  ) async throws(StoreError) -> Versioned<Content>? {
    try await perform { () throws(StoreError) in try store.versioned(key, as: type) }
  }

  /// Sets a key if its present state is the expected one, as `Store.put` does.
  @_disfavoredOverload
  public func put(
    _ key: Key, _ value: some Encodable, expecting expectation: Expected, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) async throws(StoreError) -> Dot? {
    let form = try EncodedValue(value)
    return try await put(
      key, form.bytes, expecting: expectation, type: form.type, expiration: expiration, durability: durability
    )
  }

  /// Deletes a key if its present state is the expected one and it has a value. False otherwise. As
  /// `Store.delete`.
  public func delete(
    _ key: Key, expecting expectation: Expected, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in
      try store.delete(key, expecting: expectation, durability: durability)
    }
  }

  /// Sets a key to bytes unless it already has this value, type and deadline; false in that case. As
  /// `Store.putIfChanged`.
  public func putIfChanged(
    _ key: Key, _ value: [UInt8], type: ValueType = .bytes, expiration: Expiration? = nil,
    durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in
      try store.putIfChanged(key, value, type: type, expiration: expiration, durability: durability)
    }
  }

  /// Sets a key unless it already has this value, type and deadline; false in that case. As
  /// `Store.putIfChanged`.
  @_disfavoredOverload
  public func putIfChanged(
    _ key: Key, _ value: some Encodable, expiration: Expiration? = nil, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    let form = try EncodedValue(value)
    return try await perform { () throws(StoreError) in
      try store.putIfChanged(
        key, form.bytes, type: form.type, expiration: expiration, durability: durability)
    }
  }

  /// Updates the value of a key atomically from its present value, and returns the new one. As
  /// `Store.update`.
  @discardableResult
  public func update<Content: Codable & Sendable>(
    _ key: Key, default fallback: @autoclosure () -> Content, durability: Durability? = nil,
    _ body: @escaping @Sendable (inout Content) throws -> Void
  ) async throws -> Content {
    let fallback = fallback()
    return try await transaction(durability: durability) { try $0.update(key, default: fallback, body) }
  }

  /// Deletes keys atomically and returns how many had a value. As `Store.delete(contentsOf:)`.
  @discardableResult
  public func delete(
    contentsOf keys: some Sequence<Key>, durability: Durability? = nil
  ) async throws(StoreError) -> Int {
    let (store, keys) = (store, Array(keys))
    return try await Self.perform { () throws(StoreError) in
      try store.delete(contentsOf: keys, durability: durability)
    }
  }
}

/// Reads in key order, which may have to sort the keys first. Call `scan`, `scanEntries` and `forEachValue`,
/// which visit keys one by one, within `withStore`.
extension AsyncStore {
  /// Keys and their values' sizes and types, in the order of bytes. As `Store.list`.
  public func list(
    _ range: KeyRange = .all, after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) async throws(StoreError) -> [Entry] {
    try await perform { () throws(StoreError) in
      try store.list(range, after: after, reversed: reversed, limit: limit)
    }
  }

  /// Keys with a prefix and their values' sizes and types, in the order of bytes. As `Store.list`.
  public func list(
    prefix: [UInt8], after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) async throws(StoreError) -> [Entry] {
    try await list(KeyRange(prefix: prefix), after: after, reversed: reversed, limit: limit)
  }

  /// The keys in a range and their values, in the order of the keys' bytes. As `Store.values`.
  public func values<Content: Decodable & Sendable>(
    of type: Content.Type, in range: KeyRange = .all, after: Key? = nil, reversed: Bool = false,
    limit: Int = .max
  ) async throws(StoreError) -> [(key: Key, value: Content)] {
    try await perform { () throws(StoreError) in
      try store.values(of: type, in: range, after: after, reversed: reversed, limit: limit)
    }
  }

  /// The keys with a prefix and their values, in the order of the keys' bytes. As `Store.values`.
  public func values<Content: Decodable & Sendable>(
    of type: Content.Type, prefix: String, after: Key? = nil, reversed: Bool = false, limit: Int = .max
  ) async throws(StoreError) -> [(key: Key, value: Content)] {
    try await values(of: type, in: KeyRange(prefix: prefix), after: after, reversed: reversed, limit: limit)
  }

  /// How many keys have a value, and how many had one that has expired. As `Store.keyCounts`.
  public func keyCounts(in range: KeyRange = .all) async throws(StoreError) -> KeyCounts {
    try await perform { () throws(StoreError) in try store.keyCounts(in: range) }
  }
}

/// Operations on stores that are not open, and on backups.
extension AsyncStore {
  /// `Store.exists`.
  public static func exists(at path: String) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in try Store.exists(at: path) }
  }

  /// `Store.isEncrypted(at:)`.
  public static func isEncrypted(at path: String) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in try Store.isEncrypted(at: path) }
  }

  /// `Store.files(at:)`.
  public static func files(at path: String) async throws(StoreError) -> [String] {
    try await perform { () throws(StoreError) in try Store.files(at: path) }
  }

  /// `Store.sizeOfFiles(at:)`, in bytes.
  public static func sizeOfFiles(at path: String) async throws(StoreError) -> UInt64 {
    try await perform { () throws(StoreError) in try Store.sizeOfFiles(at: path) }
  }

  /// `Store.remove`.
  @discardableResult
  public static func remove(at path: String) async throws(StoreError) -> Bool {
    try await perform { () throws(StoreError) in try Store.remove(at: path) }
  }

  /// `Store.move`.
  public static func move(from path: String, to newPath: String) async throws(StoreError) {
    try await perform { () throws(StoreError) in try Store.move(from: path, to: newPath) }
  }

  /// `Store.backupSummary`.
  public static func backupSummary(of file: String) async throws(StoreError) -> BackupSummary {
    try await perform { () throws(StoreError) in try Store.backupSummary(of: file) }
  }

  /// `Store.verifyBackup`.
  public static func verifyBackup(_ file: String) async throws(StoreError) {
    try await perform { () throws(StoreError) in try Store.verifyBackup(file) }
  }

  /// Verifies a backup and reports to `progress` how many bytes were read of the total. As
  /// `Store.verifyBackup`.
  public static func verifyBackup(
    _ file: String, progress: @escaping @Sendable (_ done: UInt64, _ total: UInt64) -> Void
  ) async throws(StoreError) {
    try await perform { () throws(StoreError) in try Store.verifyBackup(file, progress: progress) }
  }
}
