private import Synchronization

/// What codes a value and can be used again for the next one.
protocol Reusable: AnyObject {
  init()
  /// Bytes of the value that it was used for last.
  var heldBytes: Int { get }
  /// Makes it as good as new.
  func reset()
}

/// An encoder or a source that waits for the next value, so that a put or a get need not make one: to make one takes as long
/// as to code a few properties.
///
/// Invariants: whoever changes `state` from `full` or `empty` to `changing` alone may touch `item`, until it sets `state`
/// again; `item` is there exactly while `state` is `full`, and nobody else has a reference to it.
final class ReusePool<Item: Reusable>: @unchecked Sendable {
  private let state = Atomic<UInt8>(ReusePoolState.empty)
  private var item: Item?

  /// The spare one, or a new one: also where another thread, or a value that is just being coded itself, has it.
  @inline(__always)
  func acquire() -> Item { acquirePooled() ?? Item() }

  private func acquirePooled() -> Item? {
    guard beginChange(from: ReusePoolState.full) else { return nil }
    let taken = item
    item = nil
    state.store(ReusePoolState.empty, ordering: .releasing)
    return taken
  }

  /// Keeps one, if there is none, it holds little memory, and no value has kept a reference to it.
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
  /// Bytes of a value after which it is kept.
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
