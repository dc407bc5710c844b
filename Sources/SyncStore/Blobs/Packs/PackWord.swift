/// The mutable word of an entry: when its object was last used, and whether it is live.
///
/// One compare-and-swap of it decides between a use and a removal, also between processes. A separate
/// checksum cannot guard it, so it guards itself: in a pack of version 2 six bits, each in a byte of its own,
/// mark the object as removed, and five of them suffice. Thus no flipped bit, and no single byte, loses an
/// object or brings one back. Version 1 has one bit.
struct PackWord: Equatable, Sendable {
  /// The word as stored in the table.
  let bits: UInt64
  /// Whether it belongs to a pack of version 2 or later.
  let isGuarded: Bool

  /// Whether the object may be read.
  enum State: Sendable { case live, removed }

  /// The lowest bit of each of the lower six bytes.
  private static let marks: UInt64 = 0x0000_0101_0101_0101
  private static let markCount = 6

  init(bits: UInt64, isGuarded: Bool) { (self.bits, self.isGuarded) = (bits, isGuarded) }

  /// The stamp of a guarded word is capped at `PackLayout.greatestStamp`.
  init(stamp: UInt64, _ state: State, isGuarded: Bool) {
    self.isGuarded = isGuarded
    guard isGuarded else {
      bits = stamp << 1 | (state == .live ? 1 : 0)
      return
    }
    let stamp = min(stamp, PackLayout.greatestStamp)
    var bits = (stamp >> 42) << 48
    for byte in UInt64(0)..<6 { bits |= (stamp >> (7 * byte) & 0x7F) << (8 * byte + 1) }
    self.bits = state == .live ? bits : bits | Self.marks
  }

  private var markedBits: Int { (bits & Self.marks).nonzeroBitCount }

  var state: State { isLive ? .live : .removed }

  var isLive: Bool { isGuarded ? markedBits < Self.markCount - 1 : bits & 1 != 0 }

  /// Whether the removal marks contradict each other: some of them were changed by the disk.
  var hasFlippedBits: Bool { isGuarded && markedBits != 0 && markedBits != Self.markCount }

  /// Milliseconds since 1970, then 16 bits that order uses within one: the order of last use is exact.
  var stamp: UInt64 {
    guard isGuarded else { return bits >> 1 }
    var stamp = (bits >> 48) << 42
    for byte in UInt64(0)..<6 { stamp |= (bits >> (8 * byte + 1) & 0x7F) << (7 * byte) }
    return stamp
  }

  /// Milliseconds since 1970.
  var milliseconds: UInt64 { stamp >> 16 }
}
