private import Glibc

/// Which calls of a storage a test lets fail, one history after the other.
package enum EachCall {
  private static let isAll = unsafe getenv("ALL_CALLS") != nil

  /// The call after `call`, the first of which is 1: all of them with `ALL_CALLS=1` (`make calls`), else two of five, of
  /// which some are odd and some even, and some can be divided by three: tests choose by that what comes behind the failure.
  package static func after(_ call: Int) -> Int { isAll ? call + 1 : call + (call % 5 == 1 ? 3 : 2) }

  /// The same for what takes long: one of seven.
  package static func longAfter(_ call: Int) -> Int { call + (isAll ? 1 : 7) }

  /// So many seeds with `ALL_CALLS=1`, else a part of them.
  package static func seeds(_ all: UInt64, usually part: UInt64) -> Range<UInt64> { 0..<(isAll ? all : part) }
}
