/// The limits of a cache.
@usableFromInline struct CacheLimits: Equatable, Sendable {
  @usableFromInline var count: Int
  @usableFromInline var cost: Int
  /// Seconds.
  @usableFromInline var age: Double
}

/// A key compared by identity: a string by its UTF-8 bytes, anything else by its own equality.
///
/// The test is of types, so it costs nothing where the key's type is known at compile time.
@usableFromInline struct CacheKey<Key: Hashable & Sendable>: Hashable, Sendable {
  @usableFromInline let key: Key

  @inlinable init(_ key: Key) { self.key = key }

  @inlinable static func == (first: CacheKey, second: CacheKey) -> Bool {
    if Key.self == String.self, let first = first.key as? String, let second = second.key as? String {
      return first.hasSameBytes(as: second)
    }
    return first.key == second.key
  }

  @inlinable func hash(into hasher: inout Hasher) {
    if Key.self == String.self, let text = key as? String {
      text.hashBytes(into: &hasher)
    } else {
      key.hash(into: &hasher)
    }
  }
}

/// Entries in the order of their last use: a dictionary of slots in an array, whose entries form a doubly
/// linked list.
///
/// Invariants: `newest` and `oldest` are the ends of the list, -1 if it is empty; free slots form the list
/// that begins at `free`, linked by `older`; the dictionary names exactly the slots that are not free.
///
/// All of it is inlinable into other modules: unspecialized generic code takes ten times as long.
@usableFromInline struct LRUEntries<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  @usableFromInline struct Entry: Sendable {
    @usableFromInline var key: Key
    /// Nil in a free slot.
    @usableFromInline var value: Value?
    @usableFromInline var cost: Int
    /// Milliseconds by the cache's clock.
    @usableFromInline var used: UInt64
    @usableFromInline var newer: Int32 = -1
    @usableFromInline var older: Int32 = -1

    @inlinable init(key: Key, value: Value, cost: Int, used: UInt64) {
      (self.key, self.value, self.cost, self.used) = (key, value, cost, used)
    }
  }

  @usableFromInline var limits: CacheLimits
  /// Wide enough for the sum of maximal costs.
  @usableFromInline var cost: Int128 = 0
  @usableFromInline var slots: [CacheKey<Key>: Int32] = [:]
  @usableFromInline var entries: [Entry] = []
  @usableFromInline var newest: Int32 = -1
  @usableFromInline var oldest: Int32 = -1
  @usableFromInline var free: Int32 = -1

  /// Maximum number of entries evicted under one hold of the lock.
  @inlinable static var evictionBatchSize: Int { 1024 }
  /// A value without references is not worth releasing elsewhere.
  @inlinable static var isWorthReleasing: Bool { !_isPOD(Value.self) }

  @usableFromInline init(limits: CacheLimits) { self.limits = limits }

  @inlinable var count: Int { slots.count }

  @inlinable func contains(_ key: Key) -> Bool { slots[CacheKey(key)] != nil }

  @inlinable mutating func get(_ key: Key, at time: UInt64) -> Value? {
    guard let place = slots[CacheKey(key)] else { return nil }
    return touch(place, at: time)
  }

  /// Makes an entry the newest one. Returns its value.
  @inlinable mutating func touch(_ place: Int32, at time: UInt64) -> Value? {
    let (first, last) = (newest, oldest)
    var (end, value) = (last, Value?.none)
    do {
      // One uniqueness check of the array, not one for each of five fields.
      var span = entries.mutableSpan
      span[Int(place)].used = time
      value = span[Int(place)].value
      if place != first {
        let (newer, older) = (span[Int(place)].newer, span[Int(place)].older)
        // It is not the newest entry, so it has a newer one.
        span[Int(newer)].older = older
        if older >= 0 { span[Int(older)].newer = newer } else { end = newer }
        (span[Int(place)].newer, span[Int(place)].older) = (-1, first)
        span[Int(first)].newer = place
      }
    }
    (newest, oldest) = (place, end)
    return value
  }

  /// Sets a key. Returns the previous value.
  @inlinable mutating func set(_ key: Key, _ value: Value, cost: Int, at time: UInt64) -> Value? {
    // One hash lookup for both cases: a new key gets the next free slot.
    let next = free >= 0 ? free : Int32(entries.count)
    let place = Self.findOrInsert(&slots[CacheKey(key)], next)
    if place != next {
      let old = touch(place, at: time)
      self.cost += Int128(cost) - Int128(entries[Int(place)].cost)
      entries[Int(place)].value = value
      entries[Int(place)].cost = cost
      return old
    }
    let entry = Entry(key: key, value: value, cost: cost, used: time)
    if next == free {
      free = entries[Int(next)].older
      entries[Int(next)] = entry
    } else {
      entries.append(entry)
    }
    self.cost += Int128(cost)
    link(next)
    return nil
  }

  @inlinable @inline(__always)
  static func findOrInsert(_ place: inout Int32?, _ next: Int32) -> Int32 {
    if let place { return place }
    place = next
    return next
  }

  @inlinable mutating func remove(_ key: Key) -> Value? {
    guard let place = slots.removeValue(forKey: CacheKey(key)) else { return nil }
    return removeEntry(at: place)
  }

  @inlinable mutating func removeAll() -> [Value] {
    let gone = entries.compactMap(\.value)
    self = LRUEntries(limits: limits)
    return gone
  }

  // MARK: Eviction
  //
  // Each call evicts at most `evictionBatchSize` entries: a caller that gets that many calls again.

  /// Evicts entries above the limits of count and cost. Not batched: these limits hold after each call.
  @inlinable mutating func overLimits() -> [Value] {
    let costLimit = Int128(limits.cost)
    guard count > limits.count || cost > costLimit else { return [] }
    var gone: [Value] = []
    while oldest >= 0, count > limits.count || cost > costLimit { gone.append(evictOldest()) }
    return gone
  }

  @inlinable mutating func trim(toCount limit: Int) -> [Value] { evict { $0.count > max(limit, 0) } }

  @inlinable mutating func trim(toCost limit: Int) -> [Value] { evict { $0.cost > Int128(max(limit, 0)) } }

  @inlinable mutating func trim(toAge seconds: Double, at time: UInt64) -> [Value] {
    guard seconds < Double(UInt64.max / 2048) else { return [] }
    let milliseconds = UInt64(max(seconds, 0) * 1000)
    return evict { entries in
      let used = entries.entries[Int(entries.oldest)].used
      return time > used && time - used > milliseconds
    }
  }

  @inlinable mutating func evict(while isWanted: (borrowing LRUEntries) -> Bool) -> [Value] {
    var gone: [Value] = []
    while gone.count < Self.evictionBatchSize, oldest >= 0, isWanted(self) { gone.append(evictOldest()) }
    return gone
  }

  @inlinable mutating func evictOldest() -> Value {
    let place = oldest
    slots[CacheKey(entries[Int(place)].key)] = nil
    return removeEntry(at: place)
  }

  @inlinable mutating func removeEntry(at place: Int32) -> Value {
    unlink(place)
    guard let value = entries[Int(place)].value.take() else {
      preconditionFailure("a free place is not named")
    }
    cost -= Int128(entries[Int(place)].cost)
    entries[Int(place)].older = free
    free = place
    return value
  }

  // MARK: Linked list

  @inlinable mutating func link(_ place: Int32) {
    (entries[Int(place)].newer, entries[Int(place)].older) = (-1, newest)
    if newest >= 0 { entries[Int(newest)].newer = place } else { oldest = place }
    newest = place
  }

  @inlinable mutating func unlink(_ place: Int32) {
    let (newer, older) = (entries[Int(place)].newer, entries[Int(place)].older)
    if newer >= 0 { entries[Int(newer)].older = older } else { newest = older }
    if older >= 0 { entries[Int(older)].newer = newer } else { oldest = newer }
  }
}
