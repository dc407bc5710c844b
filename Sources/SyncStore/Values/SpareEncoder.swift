private import Synchronization

/// An encoder that waits for the next value, so that a put need not make one: to make one takes as long as to code a few
/// properties.
///
/// Invariants: whoever changes `state` from `full` or `empty` to `changing` alone may touch `encoder`, until it sets `state`
/// again; `encoder` is there exactly while `state` is `full`, and nobody else has a reference to it.
final class SpareEncoder: @unchecked Sendable {
  private static let shared = SpareEncoder()
  private static let empty: UInt8 = 0
  private static let full: UInt8 = 1
  private static let changing: UInt8 = 2
  /// Bytes of a buffer that are kept.
  private static let keptBytes = 16 << 10

  private let state = Atomic<UInt8>(SpareEncoder.empty)
  private var encoder: ValueEncoder?

  /// The spare one, or a new one: also where another thread, or a value that is just encoding itself, has it.
  @inline(__always)
  static func take() -> ValueEncoder { shared.take() ?? ValueEncoder() }

  private func take() -> ValueEncoder? {
    guard begin(from: Self.full) else { return nil }
    let taken = encoder
    encoder = nil
    state.store(Self.empty, ordering: .releasing)
    return taken
  }

  /// Keeps an encoder, if there is none and no value has kept a reference to it.
  @inline(__always)
  static func give(_ encoder: inout ValueEncoder) { shared.give(&encoder) }

  private func give(_ given: inout ValueEncoder) {
    guard isKnownUniquelyReferenced(&given), given.buffer.count <= Self.keptBytes else { return }
    given.reset()
    guard begin(from: Self.empty) else { return }
    encoder = given
    state.store(Self.full, ordering: .releasing)
  }

  @inline(__always)
  private func begin(from present: UInt8) -> Bool {
    state.compareExchange(expected: present, desired: Self.changing, ordering: .acquiring).exchanged
  }
}
