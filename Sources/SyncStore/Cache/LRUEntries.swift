/// What bounds a cache.
struct CacheLimits: Equatable, Sendable {
  var count: Int
  var cost: Int
  /// Seconds.
  var age: Double
}

/// Entries in the order of their last use: a dictionary of places in an array, whose entries are linked with each other.
///
/// Invariants: `newest` and `oldest` are the ends of the list, -1 if it is empty; a free place is in the list that begins at
/// `free`, linked by `older`; the dictionary names exactly the places that are not free.
struct LRUEntries<Key: Hashable & Sendable, Value: Sendable>: Sendable {
  private struct Entry: Sendable {
    var key: Key
    /// Nil in a free place.
    var value: Value?
    var cost: Int
    /// Milliseconds by the cache's clock.
    var used: UInt64
    var newer: Int32
    var older: Int32
  }

  var limits: CacheLimits
  private(set) var cost = 0
  private var places: [Key: Int32] = [:]
  private var entries: [Entry] = []
  private var newest: Int32 = -1
  private var oldest: Int32 = -1
  private var free: Int32 = -1

  /// How many leave while others wait.
  static var leaveAtOnce: Int { 1024 }
  /// A value without references is nothing to be released elsewhere.
  static var isWorthReleasing: Bool { !_isPOD(Value.self) }

  init(limits: CacheLimits) { self.limits = limits }

  var count: Int { places.count }

  func contains(_ key: Key) -> Bool { places[key] != nil }

  mutating func get(_ key: Key, at time: UInt64) -> Value? {
    guard let place = places[key] else { return nil }
    entries[Int(place)].used = time
    if place != newest {
      unlink(place)
      link(place)
    }
    return entries[Int(place)].value
  }

  /// Returns the value that was there before.
  mutating func set(_ key: Key, _ value: Value, cost: Int, at time: UInt64) -> Value? {
    if let place = places[key] {
      let old = entries[Int(place)].value
      self.cost += cost - entries[Int(place)].cost
      entries[Int(place)].value = value
      (entries[Int(place)].cost, entries[Int(place)].used) = (cost, time)
      if place != newest {
        unlink(place)
        link(place)
      }
      return old
    }
    let entry = Entry(key: key, value: value, cost: cost, used: time, newer: -1, older: -1)
    var place = free
    if place >= 0 {
      free = entries[Int(place)].older
      entries[Int(place)] = entry
    } else {
      place = Int32(entries.count)
      entries.append(entry)
    }
    places[key] = place
    self.cost += cost
    link(place)
    return nil
  }

  mutating func remove(_ key: Key) -> Value? {
    guard let place = places.removeValue(forKey: key) else { return nil }
    return take(place)
  }

  mutating func removeAll() -> [Value] {
    let gone = entries.compactMap(\.value)
    self = LRUEntries(limits: limits)
    return gone
  }

  // MARK: Leaving
  //
  // Each makes at most `leaveAtOnce` leave: who gets that many asks again.

  /// Those above the limits of count and cost. All of them: a limit holds after each call.
  mutating func overLimits() -> [Value] {
    guard count > limits.count || cost > limits.cost else { return [] }
    var gone: [Value] = []
    while oldest >= 0, count > limits.count || cost > limits.cost { gone.append(leave()) }
    return gone
  }

  mutating func trim(toCount limit: Int) -> [Value] { leave { $0.count > max(limit, 0) } }

  mutating func trim(toCost limit: Int) -> [Value] { leave { $0.cost > max(limit, 0) } }

  mutating func trim(toAge seconds: Double, at time: UInt64) -> [Value] {
    guard seconds < Double(UInt64.max / 2048) else { return [] }
    let milliseconds = UInt64(max(seconds, 0) * 1000)
    return leave { entries in
      let used = entries.entries[Int(entries.oldest)].used
      return time > used && time - used > milliseconds
    }
  }

  private mutating func leave(while isWanted: (borrowing LRUEntries) -> Bool) -> [Value] {
    var gone: [Value] = []
    while gone.count < Self.leaveAtOnce, oldest >= 0, isWanted(self) { gone.append(leave()) }
    return gone
  }

  private mutating func leave() -> Value {
    let place = oldest
    places[entries[Int(place)].key] = nil
    return take(place)
  }

  private mutating func take(_ place: Int32) -> Value {
    unlink(place)
    guard let value = entries[Int(place)].value.take() else {
      preconditionFailure("a free place is not named")
    }
    cost -= entries[Int(place)].cost
    entries[Int(place)].older = free
    free = place
    return value
  }

  // MARK: The list

  private mutating func link(_ place: Int32) {
    (entries[Int(place)].newer, entries[Int(place)].older) = (-1, newest)
    if newest >= 0 { entries[Int(newest)].newer = place } else { oldest = place }
    newest = place
  }

  private mutating func unlink(_ place: Int32) {
    let (newer, older) = (entries[Int(place)].newer, entries[Int(place)].older)
    if newer >= 0 { entries[Int(newer)].older = older } else { newest = older }
    if older >= 0 { entries[Int(older)].newer = newer } else { oldest = newer }
  }
}
