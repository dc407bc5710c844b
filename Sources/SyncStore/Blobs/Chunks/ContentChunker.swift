/// Content-defined chunking: an insertion moves only the cuts next to it.
///
/// A value; the cuts do not depend on how the bytes are fed.
///
/// FastCDC (W. Xia et al., FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data
/// Deduplication, USENIX ATC 2016): a rolling gear hash, skipping the first bytes of a chunk, and a stricter
/// mask before the average size than after it (normalised chunking, level 2).
package struct ContentChunker: Sendable {
  /// Average size of a chunk: a chunk has at least a quarter and at most four times as many bytes; the last
  /// one may be smaller.
  package let average: Int

  private let strictMask: UInt64
  private let laxMask: UInt64
  private var hash: UInt64 = 0
  /// Bytes of the unfinished chunk.
  private var length = 0
  private var offset = 0

  /// Chunks of about `average` bytes, a power of two from 256 to 2^24.
  package init(average: Int = 64 << 10) {
    precondition(
      average.nonzeroBitCount == 1 && (256...1 << 24).contains(average),
      "the average of chunks is a power of two from 256 to 2^24")
    self.average = average
    let bits = average.trailingZeroBitCount
    // The upper bits depend on the most bytes.
    strictMask = ~(UInt64.max >> UInt64(bits + 2))
    laxMask = ~(UInt64.max >> UInt64(bits - 2))
  }

  /// Feeds the next bytes. Returns the ends of chunks, as offsets from the start of the content.
  package mutating func feed(_ bytes: Span<UInt8>) -> [Int] {
    var ends: [Int] = []
    let (least, most) = (average / 4, average * 4)
    // Hoisted: access to a static would check its initialization for each byte.
    let gear = Self.gear
    var hash = hash
    defer { self.hash = hash }
    var next = 0
    while next < bytes.count {
      // Bytes below the minimum size need no hashing.
      if length < least {
        let skipped = min(least - length, bytes.count - next)
        (next, length) = (next + skipped, length + skipped)
        continue
      }
      let mask = length < average ? strictMask : laxMask
      let stop = min(bytes.count, next + (length < average ? average : most) - length)
      let start = next
      var found = false
      // Two bytes at once as in FastCDC's second version (W. Xia et al., The Design of Fast Content-Defined
      // Chunking for Data Deduplication Based Storage Systems, IEEE TPDS 2020), and that twice: otherwise the
      // shift and addition of each byte would depend on those of the previous one.
      while next &+ 4 <= stop {
        let word: UInt32 = bytes.load(next)
        let first = gear[UInt8(truncatingIfNeeded: word)]
        let second = gear[UInt8(truncatingIfNeeded: word >> 8)]
        let third = gear[UInt8(truncatingIfNeeded: word >> 16)]
        let fourth = gear[UInt8(truncatingIfNeeded: word >> 24)]
        let afterFirst = hash &<< 1 &+ first
        let afterSecond = hash &<< 2 &+ (first &<< 1 &+ second)
        let afterThird = afterSecond &<< 1 &+ third
        hash = afterSecond &<< 2 &+ (third &<< 1 &+ fourth)
        next &+= 4
        if afterFirst & mask == 0 {
          next &-= 3
        } else if afterSecond & mask == 0 {
          next &-= 2
        } else if afterThird & mask == 0 {
          next &-= 1
        } else if hash & mask != 0 {
          continue
        }
        // The hash restarts after a cut.
        found = true
        break
      }
      while !found, next < stop {
        hash = hash &<< 1 &+ gear[bytes[next]]
        next &+= 1
        found = hash & mask == 0
      }
      length += next - start
      if found || length >= most {
        ends.append(offset + next)
        (hash, length) = (0, 0)
      }
    }
    offset += bytes.count
    return ends
  }

  /// End of the last chunk; nil if the content ended with the previous one.
  package func finish() -> Int? { length > 0 ? offset : nil }

  /// A fixed random number for each byte (SplitMix64 with seed 1): other numbers would move all cuts.
  private static let gear: ByteTable = {
    var state: UInt64 = 1
    return ByteTable { _ in
      state &+= 0x9E37_79B9_7F4A_7C15
      var mixed = state
      mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
      mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
      return mixed ^ (mixed >> 31)
    }
  }()
}
