private import Glibc

/// Chooses the storage calls that a test makes fail, one history per call.
package enum EachCall {
  private static let isAll = unsafe getenv("ALL_CALLS") != nil

  /// The next call to fail after `call`, starting with 1. With `ALL_CALLS=1` (`make calls`) every call,
  /// otherwise two of five. The chosen numbers mix parity and divisibility by three, because tests derive the
  /// aftermath of the failure from them.
  package static func after(_ call: Int) -> Int { isAll ? call + 1 : call + (call % 5 == 1 ? 3 : 2) }

  /// As `after(_:)` for slow tests: every seventh call.
  package static func longAfter(_ call: Int) -> Int { call + (isAll ? 1 : 7) }

  /// All seeds with `ALL_CALLS=1`, otherwise the first `part`.
  package static func seeds(_ all: UInt64, usually part: UInt64) -> Range<UInt64> { 0..<(isAll ? all : part) }
}
