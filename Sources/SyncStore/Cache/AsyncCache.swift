/// A two-level cache for asynchronous code.
///
/// Disk access runs on a thread that may block, never on one of the cooperative pool. Values in memory are
/// returned immediately, without leaving the caller's thread.
///
/// ```swift
/// let cache = try await AsyncCache<Tile>.open(at: "tiles")
/// try await cache.set("7/66/45", tile)
/// ```
///
/// *Cancellation*: a task that is cancelled before its work began gets `.cancelled`, and nothing was done.
public struct AsyncCache<Value: Codable & Sendable>: Sendable {
  /// The wrapped cache.
  public let cache: Cache<Value>

  /// Wraps an open cache.
  public init(_ cache: Cache<Value>) { self.cache = cache }

  /// Opens a cache, as `Cache.init(at:name:memory:limits:)`.
  public static func open(
    at path: String, name: String? = nil, memory: MemoryCache<String, Value> = MemoryCache(),
    limits: DiskCache.Limits = DiskCache.Limits()
  ) async throws(StoreError) -> AsyncCache {
    try await AsyncStore.perform { () throws(StoreError) in
      AsyncCache(try Cache(at: path, name: name, memory: memory, limits: limits))
    }
  }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (Cache<Value>) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let cache = cache
    return try await AsyncStore.perform { () throws(StoreError) in try work(cache) }
  }

  /// `Cache.contains`.
  public func contains(_ key: String) async throws(StoreError) -> Bool {
    if cache.memory.contains(key) { return true }
    return try await perform { cache throws(StoreError) in try cache.contains(key) }
  }

  /// `Cache.get`.
  public func get(_ key: String) async throws(StoreError) -> Value? {
    if let value = cache.memory.get(key) { return value }
    return try await perform { cache throws(StoreError) in try cache.get(key) }
  }

  /// `Cache.set`.
  public func set(_ key: String, _ value: Value) async throws(StoreError) {
    try await perform { cache throws(StoreError) in try cache.set(key, value) }
  }

  /// `Cache.remove`.
  @discardableResult
  public func remove(_ key: String) async throws(StoreError) -> Bool {
    try await perform { cache throws(StoreError) in try cache.remove(key) }
  }

  /// `Cache.removeAll`; returns once all files are removed.
  public func removeAll(
    progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) async throws(StoreError) {
    try await perform { cache throws(StoreError) in try cache.removeAll(progress: progress) }
  }
}
