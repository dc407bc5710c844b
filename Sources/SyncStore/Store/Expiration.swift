/// How long a value is to last.
///
/// ```swift
/// try store.put("session", token, lasting: .hours(2))
/// try store.put("offer", text, expires: Expiry.days(3).fromNow())
/// ```
public struct Expiry: Hashable, Comparable, Sendable {
  /// Milliseconds; at least 1.
  public let milliseconds: UInt64

  /// So many milliseconds; at least 1, and at most 2^47, some 4,400 years.
  public init(milliseconds: UInt64) { self.milliseconds = min(max(milliseconds, 1), 1 << 47) }

  /// So long: of a millisecond that has begun all counts.
  public init(_ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    let whole = UInt64(clamping: seconds).multipliedReportingOverflow(by: 1000)
    let part = UInt64(clamping: (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
    self.init(milliseconds: whole.overflow ? .max : whole.partialValue &+ part)
  }

  /// So many seconds.
  public static func seconds(_ count: Int) -> Expiry { Expiry(count, of: 1000) }
  /// So many minutes.
  public static func minutes(_ count: Int) -> Expiry { Expiry(count, of: 60 * 1000) }
  /// So many hours.
  public static func hours(_ count: Int) -> Expiry { Expiry(count, of: 3600 * 1000) }
  /// So many days of 24 hours.
  public static func days(_ count: Int) -> Expiry { Expiry(count, of: 24 * 3600 * 1000) }

  /// 60 seconds.
  public static let minute = minutes(1)
  /// 60 minutes.
  public static let hour = hours(1)
  /// 24 hours.
  public static let day = days(1)
  /// 7 days.
  public static let week = days(7)
  /// 30 days.
  public static let month = days(30)
  /// 365 days.
  public static let year = days(365)

  private init(_ count: Int, of unit: UInt64) {
    let (product, isTooLarge) = UInt64(max(count, 0)).multipliedReportingOverflow(by: unit)
    self.init(milliseconds: isTooLarge ? .max : product)
  }

  /// The deadline of what lasts so long from now on, by this machine's clock: milliseconds since 1970, as
  /// `put` takes it.
  public func fromNow() -> UInt64 { after(SystemCall.wallMilliseconds()) }

  /// The deadline of what lasts so long from `time` on, in milliseconds since 1970.
  public func after(_ time: UInt64) -> UInt64 {
    let (sum, isTooLarge) = time.addingReportingOverflow(milliseconds)
    return isTooLarge ? .max : sum
  }

  /// Shorter.
  public static func < (left: Expiry, right: Expiry) -> Bool { left.milliseconds < right.milliseconds }
}

/// What becomes of a deadline.
public enum DeadlineChange: Hashable, Sendable {
  /// From now on it expires at that time, in milliseconds since 1970. One that has passed ends it at once.
  case set(UInt64)
  /// It lasts so long from now on.
  case lasting(Expiry)
  /// It does not expire.
  case clear
}

/// Deadlines. A value with one is there until then, on every copy, by the clock of each; then it reads as
/// absent. Deadlines are part of the record: they replicate with the value, and another deadline is another
/// record.
extension Store {
  /// Changes when the value of a key expires, and not the value. False if it has none, or has expired: what
  /// has expired is not brought back.
  ///
  /// It is a new write of the same value, which replaces what other copies hold; one in the blob tier is not
  /// copied. With the deadline that it has already, nothing is written.
  ///
  /// - Throws: as `put`; `.damaged` if the record cannot be read; `.blobUnavailable` if the value is not here: a write that nobody has the
  ///   value of must not beat one that has. Read it first.
  @discardableResult
  public func expire(
    _ key: Key, _ change: DeadlineChange, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    let (isLive, tail) = try append { composer throws(StoreError) in
      try self.expire(key, change: change, &composer)
    }
    if isLive { try awaitDurability(tail, durability: durability) }
    return isLive
  }

  func expire(_ key: Key, change: DeadlineChange, _ composer: inout TransactionBuilder) throws(StoreError)
    -> Bool
  {
    try issuePending(&composer)
    var held = composer.record(of: key.bytes)
    if held == nil {
      held = try engine.withLock { engine throws(StoreError) in try engine.held(key.bytes) }
    }
    guard let held, held.isLive(at: composer.wall) else { return false }
    let deadline: UInt64? =
      switch change {
      case .set(let time): time
      case .lasting(let span): span.after(composer.wall)
      case .clear: nil
      }
    guard deadline != held.deadline else { return true }
    try retainBlob(of: held.content)
    try composer.issue(
      key: key.bytes, content: held.content, type: held.type, deadline: deadline, held: held.replaced)
    return true
  }

  /// When the value of a key expires, in milliseconds since 1970; nil if it has no value, or does not expire.
  ///
  /// - Throws: `.damaged` if it cannot be known what the key holds; `.closed`, `.forked`.
  public func deadline(of key: Key) throws(StoreError) -> UInt64? { try entry(key)?.deadline }

  /// How many keys have a value, and how many had one that has expired and was not replaced. Looks at every key.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed`, `.forked`.
  public func keyCounts(in range: KeyRange = .all) throws(StoreError) -> KeyCounts {
    let now = environment.now()
    let view = try snapshotState()
    var counts = KeyCounts()
    // Judged by the beginning of time nothing has expired.
    let all = SnapshotState.Scan(range: range, after: nil, reversed: false, limit: .max, time: 0)
    try StoreError.only {
      _ = try view.visitEntries(all, in: self) { entry in
        if let deadline = entry.deadline {
          counts.withDeadline += 1
          counts.expired += deadline <= now ? 1 : 0
        }
        counts.live += 1
        return .next
      }
    }
    counts.live -= counts.expired
    return counts
  }

  /// The deadline of a value that is put without one, by `Configuration.defaultExpiry`.
  @inline(__always)
  func deadline(_ deadline: UInt64?) -> UInt64? {
    if deadline != nil || configuration.defaultExpiry == nil { return deadline == .max ? nil : deadline }
    return configuration.defaultExpiry?.after(environment.now())
  }
}

extension Transaction {
  /// Changes when the value of a key expires, as `Store.expire` does.
  ///
  /// - Throws: as `Store.expire`; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public mutating func expire(_ key: Key, _ change: DeadlineChange) throws(StoreError) -> Bool {
    try store.expire(key, change: change, &builder)
  }
}

/// How many keys there are.
public struct KeyCounts: Hashable, Sendable {
  /// Keys that have a value.
  public internal(set) var live = 0
  /// Keys whose value has expired.
  public internal(set) var expired = 0
  /// Keys whose value has a deadline, expired or not.
  public internal(set) var withDeadline = 0
  /// All of them, with the expired ones.
  public var all: Int { live + expired }
}
