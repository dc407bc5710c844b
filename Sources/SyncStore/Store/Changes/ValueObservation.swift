/// The values of one key: the current one, then the newest each time it is written or expires. Made by
/// `Store.observe`.
///
/// A slow reader misses intermediate values, never the last one. `next` returns nil (as the outer optional)
/// at once when the task is cancelled, and throws `.closed` when the store is closed.
public struct ValueObservation: AsyncSequence, Sendable {
  /// The error type.
  public typealias Failure = StoreError
  /// The value; nil while the key has none.
  public typealias Element = Value?

  let store: Store
  /// The observed key.
  public let key: Key

  /// An iterator that begins with the value at that time.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(store, key) }

  /// Iterates over values.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private let follower: JournalFollower<Value?>
    private var isAtEnd = false

    /// The last value delivered.
    private enum Last: Equatable {
      case nothing
      case absent
      case value(Dot)
    }

    init(_ store: Store, _ key: Key) {
      let last = Locked(Last.nothing)
      follower = JournalFollower(store.changeSignal) { () throws(StoreError) in
        try last.withLock { last throws(StoreError) in
          let now = store.environment.now()
          let record = try store.currentRecord(key.bytes).flatMap { $0.isLive(at: now) ? $0 : nil }
          let found = record.map { Last.value($0.dot) } ?? .absent
          guard found != last else {
            let next = [record?.deadline, try store.nextParkedDue(key.bytes, at: now)].compactMap { $0 }.min()
            let rest = next.map { Int(clamping: $0 > now ? $0 - now : 0) }
            return .wait(milliseconds: rest.map(AsyncIterator.wait))
          }
          let value = try record.map { record throws(StoreError) in try store.value(of: record) } ?? nil
          last = value == nil ? .absent : found
          return .found(value)
        }
      }
    }

    /// Clocks are set forward, so an expiry is checked at least once a minute.
    private static func wait(_ rest: Int) -> Int { Swift.min(Swift.max(rest, 1), 60_000) }

    /// The next value; an inner nil while the key has none.
    ///
    /// - Throws: `.closed`, and as `get`.
    public mutating func next() async throws(StoreError) -> Value?? { try await next(isolation: nil) }

    /// `next()` for callers isolated to an actor.
    public mutating func next(
      isolation actor: isolated (any Actor)?
    ) async throws(StoreError) -> Value?? {
      guard !isAtEnd, !Task.isCancelled else {
        isAtEnd = true
        return nil
      }
      switch await follower.next() {
      case .found(let value): return .some(value)
      case .cancelled:
        isAtEnd = true
        return nil
      case .failed(let error):
        isAtEnd = true
        throw error
      }
    }
  }
}

extension Store {
  /// The values of a key: the current one, then the newest one after each change by any copy; see
  /// `ValueObservation`.
  public func observe(_ key: Key) -> ValueObservation { ValueObservation(store: self, key: key) }
}
