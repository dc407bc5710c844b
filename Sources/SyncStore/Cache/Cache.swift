/// A two-level cache: memory in front of disk. Thread safe.
///
/// A set writes to both levels; a get is served from memory, or from disk and then kept in memory. Values
/// evicted from memory stay on disk. Each level has limits of its own.
public final class Cache<Value: Codable & Sendable>: Sendable {
  /// The values in memory.
  public let memory: MemoryCache<String, Value>
  /// The values on the disk.
  public let disk: DiskCache
  /// Held while a key changes on both levels, so that an older value never replaces a newer one in memory.
  private let stripes = (0..<16).map { _ in Locked(()) }

  /// Opens the cache in the directory `path`, as `DiskCache.open`, with memory in front of it.
  ///
  /// - Throws: as `DiskCache.open`.
  public convenience init(
    at path: String, name: String? = nil, memory: MemoryCache<String, Value> = MemoryCache(),
    limits: DiskCache.Limits = DiskCache.Limits()
  ) throws(StoreError) {
    self.init(memory: memory, disk: try DiskCache.open(at: path, name: name, limits: limits))
  }

  /// A cache of these two levels.
  public init(memory: MemoryCache<String, Value>, disk: DiskCache) {
    (self.memory, self.disk) = (memory, disk)
  }

  private func withStripeLocked<Result>(
    _ key: String, _ body: () throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let stripe = stripes[Int(UInt(bitPattern: key.hashValue) % 16)]
    return try stripe.withLock { _ throws(StoreError) in try body() }
  }

  /// Whether either level has a value. Does not count as a use.
  ///
  /// - Throws: as `DiskCache.contains`.
  public func contains(_ key: String) throws(StoreError) -> Bool {
    if memory.contains(key) { return true }
    return try disk.contains(key)
  }

  /// The value of a key; nil if there is none.
  ///
  /// - Throws: as `DiskCache.get`; as `EncodedValue.decoded` if the disk has one of another type.
  public func get(_ key: String) throws(StoreError) -> Value? {
    if let value = memory.get(key) { return value }
    return try withStripeLocked(key) { () throws(StoreError) in
      if let value = memory.get(key) { return value }
      guard let item = try disk.item(key) else { return nil }
      let value = try EncodedValue(bytes: item.value, type: item.type).decoded(as: Value.self)
      memory.set(key, value, cost: item.value.count)
      return value
    }
  }

  /// Sets a key on both levels. Its cost in memory is its size on disk.
  ///
  /// - Throws: as `DiskCache.set`; then neither level has it.
  public func set(_ key: String, _ value: Value) throws(StoreError) {
    let form = try EncodedValue(value)
    try withStripeLocked(key) { () throws(StoreError) in
      memory.remove(key)
      do throws(StoreError) { try disk.set(key, form.bytes, type: form.type) } catch {
        _ = try? disk.remove(key)
        throw error
      }
      memory.set(key, value, cost: form.bytes.count)
    }
  }

  /// Removes a key from both levels. False if neither had it.
  ///
  /// - Throws: as `DiskCache.remove`.
  @discardableResult
  public func remove(_ key: String) throws(StoreError) -> Bool {
    try withStripeLocked(key) { () throws(StoreError) in
      let wasInMemory = memory.remove(key) != nil
      return try disk.remove(key) || wasInMemory
    }
  }

  /// Removes all keys from both levels.
  ///
  /// - Parameter progress: as in `DiskCache.removeAll`.
  /// - Throws: as `DiskCache.removeAll`.
  public func removeAll(progress: ((_ done: Int, _ total: Int) -> Void)? = nil) throws(StoreError) {
    try withStripesLocked(stripes[...]) { () throws(StoreError) in
      try disk.moveToTrash()
      memory.removeAll()
    }
    disk.emptyTrash(progress)
  }

  /// Runs `body` with all `stripes` locked: no key changes on both levels, or is loaded from disk into
  /// memory.
  private func withStripesLocked(
    _ stripes: ArraySlice<Locked<Void>>, _ body: () throws(StoreError) -> Void
  ) throws(StoreError) {
    guard let stripe = stripes.first else { return try body() }
    try stripe.withLock { _ throws(StoreError) in try withStripesLocked(stripes.dropFirst(), body) }
  }
}

extension Cache: BlockingCalls {}
