/// The thread that releases the values that a ``MemoryCache`` evicts.
public enum EvictedValueRelease: Sendable {
  /// A background thread. Handing values over costs a microsecond or two: worth it if releasing one takes
  /// longer.
  case inBackground
  /// The thread whose call evicts them.
  case onEvictingThread
}

/// Values in memory with least-recently-used eviction: by number, cost, age, or memory pressure.
///
/// After YYMemoryCache: each call is O(1), except those that remove many values. Thread-safe; one mutex, held
/// for a hash lookup and a change of four links. Evicted values are released outside of it, and, unless
/// disabled, on another thread than the caller's.
///
/// String keys are compared by their UTF-8 bytes, as in a `DiskCache`; all others by their own equality.
///
/// Invariants: the list has exactly the entries of the dictionary, from the most recently used to the next to
/// be evicted; count and cost are its sums; after each call the limits of count and cost hold.
public final class MemoryCache<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
  /// Name for log lines.
  public let name: String
  /// Seconds between two trims by age.
  public let trimInterval: Double
  /// The thread that releases evicted values.
  public let release: EvictedValueRelease

  @usableFromInline let mutex = CacheMutex()
  // Guarded by the mutex.
  @usableFromInline var entries: LRUEntries<Key, Value>
  private let maintenance: CacheMaintenance
  @usableFromInline let now: @Sendable () -> UInt64

  /// An empty cache.
  ///
  /// - Parameters:
  ///   - name: Name for log lines.
  ///   - countLimit: Maximum number of values.
  ///   - costLimit: Maximum total cost, in any unit: often bytes.
  ///   - ageLimit: Values not set or read for this many seconds are evicted by the next trim.
  ///   - trimInterval: Seconds between two trims by age; 0 for none.
  ///   - release: The thread that releases evicted values.
  ///   - yieldsToPressure: False to keep everything when the machine is short of memory (`MemoryPressure`).
  public convenience init(
    name: String = "", countLimit: Int = .max, costLimit: Int = .max, ageLimit: Double = .infinity,
    trimInterval: Double = 5, release: EvictedValueRelease = .inBackground, yieldsToPressure: Bool = true
  ) {
    self.init(
      name: name, limits: CacheLimits(count: countLimit, cost: costLimit, age: ageLimit),
      trimInterval: trimInterval, release: release,
      yieldsToPressure: yieldsToPressure, now: { SystemCall.monotonicMilliseconds() })
  }

  /// A cache with another clock, in milliseconds, for tests.
  init(
    name: String, limits: CacheLimits, trimInterval: Double, release: EvictedValueRelease,
    yieldsToPressure: Bool, now: @escaping @Sendable () -> UInt64
  ) {
    (self.name, self.trimInterval, self.release) = (name, trimInterval, release)
    self.now = now
    entries = LRUEntries(limits: limits)
    maintenance = CacheMaintenance()
    if trimInterval > 0 {
      maintenance.schedule(every: trimInterval) { [weak self] in self?.trimByLimits() }
    }
    if yieldsToPressure { maintenance.onMemoryPressure { [weak self] level in self?.yield(to: level) } }
  }

  deinit {
    maintenance.end()
    if release == .inBackground { Self.drop(locked { $0.removeAll() }, release) }
  }

  @inlinable @inline(__always)
  func locked<Result>(_ body: (inout LRUEntries<Key, Value>) -> Result) -> Result {
    mutex.lock()
    defer { mutex.unlock() }
    return body(&entries)
  }

  // MARK: Limits and totals

  /// Maximum number of values; lowering it evicts values.
  public var countLimit: Int {
    get { locked { $0.limits.count } }
    set { change { $0.limits.count = newValue } }
  }

  /// Maximum total cost; lowering it evicts values.
  public var costLimit: Int {
    get { locked { $0.limits.cost } }
    set { change { $0.limits.cost = newValue } }
  }

  /// Seconds after which a value that was not set or read is evicted by the next trim.
  public var ageLimit: Double {
    get { locked { $0.limits.age } }
    set { locked { $0.limits.age = newValue } }
  }

  /// Number of values.
  public var count: Int { locked { $0.count } }

  /// Total cost of the values.
  public var totalCost: Int { locked { Int(clamping: $0.cost) } }

  // MARK: Values

  /// Whether the key has a value. Does not count as a use.
  @inlinable public func contains(_ key: Key) -> Bool { locked { $0.contains(key) } }

  /// The value of a key; nil if there is none. Makes it the most recently used one.
  @inlinable public func get(_ key: Key) -> Value? {
    let time = now()
    return locked { $0.get(key, at: time) }
  }

  /// Sets a key, replacing its value. `cost` counts towards `costLimit`; a value whose cost alone exceeds the
  /// limit is not kept.
  @inlinable public func set(_ key: Key, _ value: Value, cost: Int = 0) {
    let time = now()
    // This array must hold the only references when the values are released.
    let gone = locked { state in
      let old = state.set(key, value, cost: max(cost, 0), at: time)
      var gone = state.overLimits()
      if let old { gone.append(old) }
      return gone
    }
    Self.drop(consume gone, release)
  }

  /// The value of a key. Setting nil removes it.
  @inlinable public subscript(key: Key) -> Value? {
    get { get(key) }
    set { if let newValue { set(key, newValue) } else { remove(key) } }
  }

  /// Removes a key. Returns its value.
  @inlinable @discardableResult
  public func remove(_ key: Key) -> Value? { locked { $0.remove(key) } }

  /// Removes all keys.
  public func removeAll() {
    Self.drop(locked { $0.removeAll() }, release)
  }

  // MARK: Trimming

  /// Evicts the least recently used values until at most `count` are left.
  public func trim(toCount count: Int) { evict { $0.trim(toCount: count) } }

  /// Evicts the least recently used values until they cost at most `cost`.
  public func trim(toCost cost: Int) { evict { $0.trim(toCost: cost) } }

  /// Evicts values that were not set or read for this many seconds.
  public func trim(toAge seconds: Double) {
    let time = now()
    evict { $0.trim(toAge: seconds, at: time) }
  }

  /// Frees memory under pressure: half of the values, or all.
  public func yield(to level: MemoryPressure.Level) {
    switch level {
    case .some: trim(toCount: count / 2)
    case .critical: removeAll()
    }
  }

  private func trimByLimits() {
    let time = now()
    evict { $0.trim(toAge: $0.limits.age, at: time) }
  }

  // MARK: Eviction

  private func change(_ body: (inout LRUEntries<Key, Value>) -> Void) {
    evict { state in
      body(&state)
      return state.overLimits()
    }
  }

  /// Evicts in batches, so that other threads wait only briefly.
  private func evict(_ body: (inout LRUEntries<Key, Value>) -> [Value]) {
    while true {
      let gone = locked { body(&$0) }
      let isLast = gone.count < LRUEntries<Key, Value>.evictionBatchSize
      Self.drop(consume gone, release)
      if isLast { return }
    }
  }

  @usableFromInline static func drop(_ values: consuming [Value], _ release: EvictedValueRelease) {
    guard release == .inBackground, !values.isEmpty, LRUEntries<Key, Value>.isWorthReleasing else { return }
    let last = Locked(values)
    // Drop this thread's reference before the background thread can.
    values = []
    Background.runMaintenance { last.withLock { $0 = [] } }
  }
}
