/// Values in memory, the least recently used of which leave when there are too many, when they cost too much, when they are
/// too old, or when memory runs short.
///
/// After YYMemoryCache: each call is O(1), but for those that remove many. Thread-safe; one mutex, held for a look at a hash
/// table and a change of four links. Values that leave are released outside of it, and, unless that is switched off, on another
/// thread than the caller's.
///
/// Keys that are strings are compared by their UTF-8 bytes, as those of a `DiskCache` are; all others by their own equality.
///
/// Invariants: the list of entries is that of the dictionary, from the last used to the one that leaves next; counts and
/// costs are their sums; after each call the limits of count and cost hold.
public final class MemoryCache<Key: Hashable & Sendable, Value: Sendable>: @unchecked Sendable {
  /// For people: what a log line calls it.
  public let name: String
  /// Seconds between two looks at ages, and at what threads have left to be done.
  public let trimInterval: Double
  /// Are values that leave released on a thread of the background? Else on the caller's. Handing one over costs a microsecond
  /// or two: worth it where the release of a value takes longer.
  public let releasesInBackground: Bool

  @usableFromInline let mutex = CacheMutex()
  // Under the mutex.
  @usableFromInline var entries: LRUEntries<Key, Value>
  private let maintenance: CacheMaintenance
  @usableFromInline let now: @Sendable () -> UInt64

  /// An empty cache.
  ///
  /// - Parameters:
  ///   - name: for people.
  ///   - countLimit: at most so many values.
  ///   - costLimit: at most so much cost, whatever its unit is: bytes, often.
  ///   - ageLimit: values that nobody has set or got for so many seconds leave with the next trim.
  ///   - trimInterval: seconds between two trims by age; 0 for none.
  ///   - releasesInBackground: false to release values on the threads that make them leave.
  ///   - yieldsToPressure: false to keep everything when the machine is short of memory (`MemoryPressure`).
  public convenience init(
    name: String = "", countLimit: Int = .max, costLimit: Int = .max, ageLimit: Double = .infinity,
    trimInterval: Double = 5, releasesInBackground: Bool = true, yieldsToPressure: Bool = true
  ) {
    self.init(
      name: name, countLimit: countLimit, costLimit: costLimit, ageLimit: ageLimit,
      trimInterval: trimInterval,
      releasesInBackground: releasesInBackground, yieldsToPressure: yieldsToPressure,
      now: { SystemCall.monotonicMilliseconds() })
  }

  /// The same by another clock, in milliseconds, for tests.
  package init(
    name: String, countLimit: Int, costLimit: Int, ageLimit: Double, trimInterval: Double,
    releasesInBackground: Bool, yieldsToPressure: Bool, now: @escaping @Sendable () -> UInt64
  ) {
    (self.name, self.trimInterval, self.releasesInBackground) = (name, trimInterval, releasesInBackground)
    self.now = now
    entries = LRUEntries(limits: CacheLimits(count: countLimit, cost: costLimit, age: ageLimit))
    maintenance = CacheMaintenance()
    if trimInterval > 0 {
      maintenance.schedule(every: trimInterval) { [weak self] in self?.trimByLimits() }
    }
    if yieldsToPressure { maintenance.onMemoryPressure { [weak self] level in self?.yield(to: level) } }
  }

  deinit {
    maintenance.end()
    if releasesInBackground { Self.release(locked { $0.removeAll() }, inBackground: true) }
  }

  @inlinable @inline(__always)
  func locked<Result>(_ body: (inout LRUEntries<Key, Value>) -> Result) -> Result {
    mutex.lock()
    defer { mutex.unlock() }
    return body(&entries)
  }

  // MARK: Limits and totals

  /// At most so many values; lowering it makes values leave.
  public var countLimit: Int {
    get { locked { $0.limits.count } }
    set { change { $0.limits.count = newValue } }
  }

  /// At most so much cost; lowering it makes values leave.
  public var costLimit: Int {
    get { locked { $0.limits.cost } }
    set { change { $0.limits.cost = newValue } }
  }

  /// Seconds after which a value that nobody has set or got leaves, with the next trim.
  public var ageLimit: Double {
    get { locked { $0.limits.age } }
    set { locked { $0.limits.age = newValue } }
  }

  /// How many values there are.
  public var count: Int { locked { $0.count } }

  /// What they cost together.
  public var totalCost: Int { locked { Int(clamping: $0.cost) } }

  // MARK: Values

  /// Is there a value? It does not count as used.
  @inlinable public func contains(_ key: Key) -> Bool { locked { $0.contains(key) } }

  /// The value of a key, which is the last used one then; nil if there is none.
  @inlinable public func get(_ key: Key) -> Value? {
    let time = now()
    return locked { $0.get(key, at: time) }
  }

  /// Sets a key, in place of the value it had. `cost` counts towards `costLimit`. A value that costs more than the limit by
  /// itself is not kept.
  @inlinable public func set(_ key: Key, _ value: Value, cost: Int = 0) {
    let time = now()
    // Nothing but this array has them when they are released.
    let gone = locked { state in
      let old = state.set(key, value, cost: max(cost, 0), at: time)
      var gone = state.overLimits()
      if let old { gone.append(old) }
      return gone
    }
    Self.release(consume gone, inBackground: releasesInBackground)
  }

  /// The value of a key. Nil makes it leave.
  @inlinable public subscript(key: Key) -> Value? {
    get { get(key) }
    set { if let newValue { set(key, newValue) } else { remove(key) } }
  }

  /// Makes a key leave. Returns its value.
  @inlinable @discardableResult
  public func remove(_ key: Key) -> Value? { locked { $0.remove(key) } }

  /// Makes all keys leave.
  public func removeAll() {
    Self.release(locked { $0.removeAll() }, inBackground: releasesInBackground)
  }

  // MARK: Trimming

  /// Makes the least recently used leave until there are at most so many.
  public func trim(toCount count: Int) { evict { $0.trim(toCount: count) } }

  /// Makes the least recently used leave until they cost at most so much.
  public func trim(toCost cost: Int) { evict { $0.trim(toCost: cost) } }

  /// Makes those leave that nobody has set or got for so many seconds.
  public func trim(toAge seconds: Double) {
    let time = now()
    evict { $0.trim(toAge: seconds, at: time) }
  }

  /// Gives memory back as the machine, or the program, asks for it: half of the values, or all.
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

  // MARK: Leaving

  private func change(_ body: (inout LRUEntries<Key, Value>) -> Void) {
    evict { state in
      body(&state)
      return state.overLimits()
    }
  }

  /// A batch at a time, so that nobody waits for long.
  private func evict(_ body: (inout LRUEntries<Key, Value>) -> [Value]) {
    while true {
      let gone = locked { body(&$0) }
      let isLast = gone.count < LRUEntries<Key, Value>.evictionBatchSize
      Self.release(consume gone, inBackground: releasesInBackground)
      if isLast { return }
    }
  }

  @usableFromInline static func release(_ values: consuming [Value], inBackground: Bool) {
    guard inBackground, !values.isEmpty, LRUEntries<Key, Value>.isWorthReleasing else { return }
    let last = Locked(values)
    // This thread's reference goes before the other one can.
    values = []
    Background.runMaintenance { last.withLock { $0 = [] } }
  }
}
