/// When an object was last counted on, and whether it is still there: the word of its entry that changes.
///
/// One compare-and-swap of it decides between who counts on an object and who removes it, also between processes. So no
/// checksum beside it can guard it, and it guards itself: in a pack of version 2 six bits, each in a byte of its own, say
/// that the object was removed. It was if five of them do: no flipped bit, and no single byte, loses an object or brings
/// one back. In version 1 one bit says it.
struct PackWord: Equatable, Sendable {
  /// As it lies in the table.
  let bits: UInt64
  /// Is it one of a pack of version 2 or later?
  let isGuarded: Bool

  /// The lowest bit of each of the lower six bytes.
  private static let marks: UInt64 = 0x0000_0101_0101_0101
  private static let markCount = 6

  init(bits: UInt64, isGuarded: Bool) { (self.bits, self.isGuarded) = (bits, isGuarded) }

  /// A guarded word holds no greater stamp than `PackLayout.greatestStamp`, which it takes for one.
  init(stamp: UInt64, isLive: Bool, isGuarded: Bool) {
    self.isGuarded = isGuarded
    guard isGuarded else {
      bits = stamp << 1 | (isLive ? 1 : 0)
      return
    }
    let stamp = min(stamp, PackLayout.greatestStamp)
    var bits = (stamp >> 42) << 48
    for byte in UInt64(0)..<6 { bits |= (stamp >> (7 * byte) & 0x7F) << (8 * byte + 1) }
    self.bits = isLive ? bits : bits | Self.marks
  }

  private var markedBits: Int { (bits & Self.marks).nonzeroBitCount }

  var isLive: Bool { isGuarded ? markedBits < Self.markCount - 1 : bits & 1 != 0 }

  /// Do the bits that say whether it lives contradict each other? Then some of them were changed by the disk.
  var hasFlippedBits: Bool { isGuarded && markedBits != 0 && markedBits != Self.markCount }

  /// Milliseconds since 1970, then 16 bits that order what happens within one: the order of last use is exact.
  var stamp: UInt64 {
    guard isGuarded else { return bits >> 1 }
    var stamp = (bits >> 48) << 42
    for byte in UInt64(0)..<6 { stamp |= (bits >> (8 * byte + 1) & 0x7F) << (7 * byte) }
    return stamp
  }

  /// Milliseconds since 1970.
  var milliseconds: UInt64 { stamp >> 16 }
}
