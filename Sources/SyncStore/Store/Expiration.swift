/// When a value expires. From then on its key reads as absent, on every copy, by the clock of each.
///
/// ```swift
/// try store.put("session", token, expiration: .after(.hours(2)))
/// try store.put("offer", text, expiration: .at(1_893_456_000_000))
/// try store.put("motto", text, expiration: .never)
/// ```
///
/// Where a write takes an optional expiration, nil is `Configuration.defaultLifetime`, and without one
/// `.never`.
public enum Expiration: Hashable, Sendable {
  /// At this time, in milliseconds since 1970. A time that has passed expires the value at once; `.max` is
  /// `.never`.
  case at(UInt64)
  /// This long after the write, by the clock of this machine.
  case after(Lifetime)
  /// Never.
  case never

  /// The expiration of a value that has this deadline, in milliseconds since 1970; nil is `.never`.
  init(deadline: UInt64?) { self = deadline.map { .at($0) } ?? .never }

  /// The deadline of a value that is written at `time`, both in milliseconds since 1970; nil if it never
  /// expires.
  func deadline(from time: @autoclosure () -> UInt64) -> UInt64? {
    switch self {
    case .at(let deadline): deadline == .max ? nil : deadline
    case .after(let lifetime): lifetime.after(time())
    case .never: nil
    }
  }
}

/// A length of time from a write to the expiration of its value: 1 ms to some 4,400 years.
///
/// ```swift
/// let lease = Lifetime.seconds(10)
/// let short = Lifetime(.milliseconds(1500))
/// ```
public struct Lifetime: Hashable, Comparable, Sendable {
  /// Milliseconds; at least 1.
  public let milliseconds: UInt64

  /// A number of milliseconds, clamped to 1 … 2^47.
  public init(milliseconds: UInt64) { self.milliseconds = min(max(milliseconds, 1), 1 << 47) }

  /// The same length as `duration`, rounded up to milliseconds.
  public init(_ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    let whole = UInt64(clamping: seconds).multipliedReportingOverflow(by: 1000)
    let part = UInt64(clamping: (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
    self.init(milliseconds: whole.overflow ? .max : whole.partialValue &+ part)
  }

  /// A number of seconds; below 1 it is 1 ms.
  public static func seconds(_ count: Int) -> Lifetime { Lifetime(count, of: 1000) }
  /// A number of minutes; below 1 it is 1 ms.
  public static func minutes(_ count: Int) -> Lifetime { Lifetime(count, of: 60 * 1000) }
  /// A number of hours; below 1 it is 1 ms.
  public static func hours(_ count: Int) -> Lifetime { Lifetime(count, of: 3600 * 1000) }
  /// A number of days of 24 hours; below 1 it is 1 ms.
  public static func days(_ count: Int) -> Lifetime { Lifetime(count, of: 24 * 3600 * 1000) }

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

  /// The deadline of a value written now, by this machine's clock, in milliseconds since 1970.
  public func fromNow() -> UInt64 { after(SystemCall.wallMilliseconds()) }

  /// The deadline of a value written at `time`, both in milliseconds since 1970.
  public func after(_ time: UInt64) -> UInt64 {
    let (sum, isTooLarge) = time.addingReportingOverflow(milliseconds)
    return isTooLarge ? .max : sum
  }

  /// Whether `left` is the shorter one.
  public static func < (left: Lifetime, right: Lifetime) -> Bool { left.milliseconds < right.milliseconds }
}

/// Deadlines. A deadline is part of the record: it replicates with the value, and changing it writes a new
/// record.
extension Store {
  /// Changes the deadline of a key's value, not the value itself. False if the key has no value or it has
  /// expired: an expired value cannot be revived.
  ///
  /// ```swift
  /// try store.expire("session", .after(.hours(1)))
  /// ```
  ///
  /// The change is a new write of the same value, which replicates; the content of a large value is not
  /// copied. If the value already has this deadline, nothing is written.
  ///
  /// - Throws: as `put`; `.damaged` if the record cannot be read; `.blobUnavailable` if a large value is not
  ///   on this copy: a write whose value no copy can supply must not win. Read the value first.
  @discardableResult
  public func expire(
    _ key: Key, _ expiration: Expiration, durability: Durability? = nil
  ) throws(StoreError) -> Bool {
    let (isLive, tail) = try writes.append { builder throws(StoreError) in
      try self.expire(key, expiration: expiration, &builder)
    }
    if isLive { try awaitDurability(tail, durability: durability) }
    return isLive
  }

  func expire(
    _ key: Key, expiration: Expiration, _ builder: inout TransactionBuilder
  ) throws(StoreError) -> Bool {
    try writes.issuePending(&builder)
    guard let held = try liveRecord(key, in: builder) else { return false }
    let deadline = expiration.deadline(from: builder.wall)
    guard deadline != held.deadline else { return true }
    try retainBlob(of: held.content)
    let replaced = try writes.heldForWriting(key.bytes, in: builder)
    try builder.issue(
      key: key.bytes, content: held.content, type: held.type, deadline: deadline, held: replaced)
    return true
  }

  /// When the value of a key expires, in milliseconds since 1970; nil if it has no value, or does not expire.
  ///
  /// - Throws: `.damaged` if damage leaves it unknown what the key holds; `.closed`, `.forked`.
  public func deadline(of key: Key) throws(StoreError) -> UInt64? { try entry(key)?.deadline }

  /// Numbers of keys with a live value, an expired value that was not replaced, and a deadline. Visits every
  /// key in the range.
  ///
  /// - Throws: `.damaged` as `scanEntries`; `.closed`, `.forked`.
  public func keyCounts(in range: KeyRange = .all) throws(StoreError) -> KeyCounts {
    let now = environment.now()
    let view = try snapshotState()
    var counts = KeyCounts()
    // At time 0 nothing has expired, so the scan also visits expired entries.
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

  /// The deadline of a value that is written now; nil means `Configuration.defaultLifetime`.
  @inline(__always)
  func deadline(for expiration: Expiration?) -> UInt64? {
    if let expiration { return expiration.deadline(from: environment.now()) }
    return configuration.defaultLifetime?.after(environment.now())
  }
}

extension Transaction {
  /// Changes when the value of a key expires, as `Store.expire` does.
  ///
  /// - Throws: as `Store.expire`; `.outOfBounds` if it does not fit into the transaction any more.
  @discardableResult
  public mutating func expire(_ key: Key, _ expiration: Expiration) throws(StoreError) -> Bool {
    try store.expire(key, expiration: expiration, &builder)
  }
}

/// Numbers of keys by the state of their values.
public struct KeyCounts: Hashable, Sendable {
  /// Keys that have a value.
  public internal(set) var live = 0
  /// Keys whose value has expired.
  public internal(set) var expired = 0
  /// Keys whose value has a deadline, expired or not.
  public internal(set) var withDeadline = 0
  /// Live and expired keys together.
  public var all: Int { live + expired }
}
