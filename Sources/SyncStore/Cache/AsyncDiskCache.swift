/// A disk cache for asynchronous code.
///
/// Each call runs on a thread that may block, never on one of the cooperative pool.
public struct AsyncDiskCache: Sendable {
  /// The wrapped cache.
  public let cache: DiskCache

  /// Wraps an open cache.
  public init(_ cache: DiskCache) { self.cache = cache }

  /// `DiskCache.open`.
  public static func open(
    at path: String, name: String? = nil, limits: DiskCache.Limits = DiskCache.Limits()
  ) async throws(StoreError) -> AsyncDiskCache {
    try await AsyncStore.perform { () throws(StoreError) in
      AsyncDiskCache(try DiskCache.open(at: path, name: name, limits: limits))
    }
  }

  /// `DiskCache.close`.
  public func close() async {
    try? await perform { $0.close() }
  }

  private func perform<Result: Sendable>(
    _ work: @escaping @Sendable (DiskCache) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result {
    let cache = cache
    let result = await withCheckedContinuation { continuation in
      Background.runBlocking {
        continuation.resume(returning: Swift.Result { () throws(StoreError) in try work(cache) })
      }
    }
    return try result.get()
  }

  /// `DiskCache.contains`.
  public func contains(_ key: String) async throws(StoreError) -> Bool {
    try await perform { cache throws(StoreError) in try cache.contains(key) }
  }

  /// `DiskCache.get`.
  public func get(_ key: String) async throws(StoreError) -> [UInt8]? {
    try await perform { cache throws(StoreError) in try cache.get(key) }
  }

  /// `DiskCache.item`.
  public func item(_ key: String) async throws(StoreError) -> DiskCache.Item? {
    try await perform { cache throws(StoreError) in try cache.item(key) }
  }

  /// `DiskCache.withValue`. `body` runs entirely on one thread.
  public func withValue<Result: Sendable>(
    _ key: String, _ body: @escaping @Sendable (RawSpan) throws(StoreError) -> Result
  ) async throws(StoreError) -> Result? {
    try await perform { cache throws(StoreError) in try cache.withValue(key, body) }
  }

  /// `DiskCache.forEach`. `body` is called on one thread.
  public func forEach(
    _ body: @escaping @Sendable (DiskCache.Information) throws(StoreError) -> Bool
  ) async throws(StoreError) {
    try await perform { cache throws(StoreError) in try cache.forEach(body) }
  }

  /// `DiskCache.set`.
  public func set(
    _ key: String, _ value: [UInt8], extendedData: [UInt8] = [], type: ValueType = .bytes
  ) async throws(StoreError) {
    try await perform { cache throws(StoreError) in
      try cache.set(key, value, extendedData: extendedData, type: type)
    }
  }

  /// `DiskCache.remove`.
  @discardableResult
  public func remove(_ key: String) async throws(StoreError) -> Bool {
    try await perform { cache throws(StoreError) in try cache.remove(key) }
  }

  /// `DiskCache.removeAll`; returns once all files are removed.
  public func removeAll(
    progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) async throws(StoreError) {
    try await perform { cache throws(StoreError) in try cache.removeAll(progress: progress) }
  }

  /// `DiskCache.count` and `DiskCache.totalBytes`.
  public func totals() async throws(StoreError) -> (count: Int, bytes: Int) {
    try await perform { cache throws(StoreError) in (try cache.count, try cache.totalBytes) }
  }

  /// `DiskCache.trim`.
  @discardableResult
  public func trim(
    progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void = { _, _ in }
  ) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(progress: progress) }
  }

  /// `DiskCache.trim(toCount:)`.
  @discardableResult
  public func trim(toCount count: Int) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toCount: count) }
  }

  /// `DiskCache.trim(toCount:)`; `progress` gets the values evicted so far and the total.
  @discardableResult
  public func trim(
    toCount count: Int, progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void
  ) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toCount: count, progress: progress) }
  }

  /// `DiskCache.trim(toBytes:)`.
  @discardableResult
  public func trim(toBytes bytes: Int) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toBytes: bytes) }
  }

  /// `DiskCache.trim(toBytes:)`; `progress` gets the values evicted so far and the total.
  @discardableResult
  public func trim(
    toBytes bytes: Int, progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void
  ) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toBytes: bytes, progress: progress) }
  }

  /// `DiskCache.trim(toAge:)`.
  @discardableResult
  public func trim(toAge seconds: Double) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toAge: seconds) }
  }

  /// `DiskCache.trim(toAge:)`; `progress` gets the values evicted so far and the total.
  @discardableResult
  public func trim(
    toAge seconds: Double, progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void
  ) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toAge: seconds, progress: progress) }
  }

  /// `DiskCache.trim(toFreeDiskBytes:)`.
  @discardableResult
  public func trim(toFreeDiskBytes free: UInt64) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toFreeDiskBytes: free) }
  }

  /// `DiskCache.trim(toFreeDiskBytes:)`; `progress` gets the values evicted so far and the total.
  @discardableResult
  public func trim(
    toFreeDiskBytes free: UInt64, progress: @escaping @Sendable (_ done: Int, _ total: Int) -> Void
  ) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.trim(toFreeDiskBytes: free, progress: progress)
    }
  }

  /// `DiskCache.get` of several keys.
  public func get(_ keys: some Sequence<String>) async throws(StoreError) -> StringDictionary<[UInt8]> {
    let keys = Array(keys)
    return try await perform { cache throws(StoreError) in try cache.get(keys) }
  }

  /// `DiskCache.remove` of several keys.
  @discardableResult
  public func remove(_ keys: some Sequence<String>) async throws(StoreError) -> Int {
    let keys = Array(keys)
    return try await perform { cache throws(StoreError) in try cache.remove(keys) }
  }

  /// `DiskCache.information`.
  public func information(_ key: String) async throws(StoreError) -> DiskCache.Information? {
    try await perform { cache throws(StoreError) in try cache.information(key) }
  }

  /// `DiskCache.removeLarger(than:)`.
  @discardableResult
  public func removeLarger(than bytes: Int) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.removeLarger(than: bytes) }
  }

  /// `DiskCache.removeOlder(than:)`.
  @discardableResult
  public func removeOlder(than time: UInt64) async throws(StoreError) -> Int {
    try await perform { cache throws(StoreError) in try cache.removeOlder(than: time) }
  }
}
