private import Synchronization

/// An encoder or source that can be reused for the next value.
protocol Reusable: AnyObject {
  init()
  /// Bytes of the last value.
  var heldBytes: Int { get }
  /// Resets it for reuse.
  func reset()
}

/// Pools one encoder or source, so that a put or a get need not allocate one: that takes as long as coding a
/// few properties.
///
/// Invariants: only the thread that changes `state` from `full` or `empty` to `changing` may touch `item`,
/// until it sets `state` again; `item` is set exactly while `state` is `full`, and nothing else references
/// it.
final class ReusePool<Item: Reusable>: @unchecked Sendable {
  private let state = Atomic<UInt8>(ReusePoolState.empty)
  private var item: Item?

  /// The pooled item, or a new one if another thread or an enclosing value has it.
  @inline(__always)
  func acquire() -> Item { acquirePooled() ?? Item() }

  private func acquirePooled() -> Item? {
    guard beginChange(from: ReusePoolState.full) else { return nil }
    let taken = item
    item = nil
    state.store(ReusePoolState.empty, ordering: .releasing)
    return taken
  }

  /// Returns an item to the pool if that is empty, the item holds little memory, and no value has kept a
  /// reference to it.
  @inline(__always)
  func release(_ given: inout Item) {
    guard isKnownUniquelyReferenced(&given), given.heldBytes <= ReusePoolState.keptBytes else { return }
    given.reset()
    guard beginChange(from: ReusePoolState.empty) else { return }
    item = given
    state.store(ReusePoolState.full, ordering: .releasing)
  }

  @inline(__always)
  private func beginChange(from present: UInt8) -> Bool {
    state.compareExchange(expected: present, desired: ReusePoolState.changing, ordering: .acquiring).exchanged
  }
}

private enum ReusePoolState {
  static let empty: UInt8 = 0
  static let full: UInt8 = 1
  static let changing: UInt8 = 2
  /// Bytes of the largest value after which an item is pooled.
  static let keptBytes = 16 << 10
}

extension ValueEncoder: Reusable {
  static let pool = ReusePool<ValueEncoder>()
  var heldBytes: Int { buffer.count }
}

extension ValueSource: Reusable {
  static let pool = ReusePool<ValueSource>()
  var heldBytes: Int { bytes.count }
}
