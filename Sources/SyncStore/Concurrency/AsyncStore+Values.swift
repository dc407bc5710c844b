/// Typed values, which may be large, and what writes by what is there.
extension AsyncStore {
  /// The value of a key as a type of the program, also one that lies in the blob tier; nil if it has none. As
  /// `Store.get(_:as:)`.
  public func get<Content: Decodable & Sendable>(
    _ key: Key, as type: Content.Type
  ) async throws(StoreError) -> Content? {
    let store = store
    return try await Self.perform { () throws(StoreError) in try store.get(key, as: type) }
  }

  /// The value of a key as a type of the program; the default if it has none. As `Store.get(_:default:)`.
  public func get<Content: Decodable & Sendable>(
    _ key: Key, default fallback: @autoclosure () -> Content
  ) async throws(StoreError) -> Content {
    try await get(key, as: Content.self) ?? fallback()
  }

  /// Sets a key unless it has this very value, type and deadline already: false in that case. As `Store.putIfChanged`.
  public func putIfChanged(
    _ key: Key, _ value: some Encodable, expires deadline: UInt64? = nil, durability: Durability? = nil
  ) async throws(StoreError) -> Bool {
    let (store, form) = (store, try EncodedValue(value))
    return try await Self.perform { () throws(StoreError) in
      try store.putIfChanged(
        key, form.bytes, type: form.type, expires: deadline, durability: durability)
    }
  }

  /// Changes the value of a key by what it is now, while nobody else writes, and returns what it is then. As `Store.update`.
  @discardableResult
  public func update<Content: Codable & Sendable>(
    _ key: Key, default fallback: @autoclosure () -> Content, durability: Durability? = nil,
    _ body: @escaping @Sendable (inout Content) throws -> Void
  ) async throws -> Content {
    let fallback = fallback()
    return try await transaction(durability: durability) { try $0.update(key, default: fallback, body) }
  }

  /// Deletes keys, all or none, and tells how many had a value. As `Store.delete(contentsOf:)`.
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

/// What is done to stores that are not open, and to backups.
extension AsyncStore {
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
}
