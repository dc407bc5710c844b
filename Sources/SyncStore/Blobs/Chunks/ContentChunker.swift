/// Cuts content where the content itself says so, so that an insertion moves the cuts next to it and no others: a hint of what
/// a receiver has already. A value; the same cuts however the bytes are fed.
///
/// FastCDC (W. Xia et al., FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data Deduplication, USENIX ATC
/// 2016): a rolling gear hash, no look at the first bytes of a chunk, and a stricter rule before the average size than behind it
/// (normalised chunking, level 2).
package struct ContentChunker: Sendable {
  /// Bytes of a chunk: at least a quarter of the average, at most four times it; the last one may be smaller.
  package let average: Int

  private let strictMask: UInt64
  private let laxMask: UInt64
  private var hash: UInt64 = 0
  /// Bytes of the chunk that is not ended.
  private var length = 0
  private var offset = 0

  /// Chunks of about `average` bytes, a power of two from 256 to 2^24.
  package init(average: Int = 64 << 10) {
    precondition(
      average.nonzeroBitCount == 1 && (256...1 << 24).contains(average),
      "the average of chunks is a power of two from 256 to 2^24")
    self.average = average
    let bits = average.trailingZeroBitCount
    // The upper bits have seen the most bytes.
    strictMask = ~(UInt64.max >> UInt64(bits + 2))
    laxMask = ~(UInt64.max >> UInt64(bits - 2))
  }

  /// Takes in the next bytes. Returns where chunks end, as offsets from the start of the content.
  package mutating func feed(_ bytes: Span<UInt8>) -> [Int] {
    var ends: [Int] = []
    let (least, most) = (average / 4, average * 4)
    // Looked up once: whether a static table is there would be asked for each byte.
    let gear = Self.gear
    var hash = hash
    defer { self.hash = hash }
    var next = 0
    while next < bytes.count {
      // What is too short for a chunk need not be looked at.
      if length < least {
        let skipped = min(least - length, bytes.count - next)
        (next, length) = (next + skipped, length + skipped)
        continue
      }
      let mask = length < average ? strictMask : laxMask
      let stop = min(bytes.count, next + (length < average ? average : most) - length)
      let start = next
      var found = false
      // Two bytes at once as in FastCDC's second version (W. Xia et al., The Design of Fast Content-Defined Chunking for Data
      // Deduplication Based Storage Systems, IEEE TPDS 2020), and that twice: a shift and an addition for each byte would wait for
      // those of the byte before.
      while next &+ 4 <= stop {
        let word: UInt32 = bytes.load(next)
        let first = gear[UInt8(truncatingIfNeeded: word)]
        let second = gear[UInt8(truncatingIfNeeded: word >> 8)]
        let third = gear[UInt8(truncatingIfNeeded: word >> 16)]
        let fourth = gear[UInt8(truncatingIfNeeded: word >> 24)]
        let behindFirst = hash &<< 1 &+ first
        let behindSecond = hash &<< 2 &+ (first &<< 1 &+ second)
        let behindThird = behindSecond &<< 1 &+ third
        hash = behindSecond &<< 2 &+ (third &<< 1 &+ fourth)
        next &+= 4
        if behindFirst & mask == 0 {
          next &-= 3
        } else if behindSecond & mask == 0 {
          next &-= 2
        } else if behindThird & mask == 0 {
          next &-= 1
        } else if hash & mask != 0 {
          continue
        }
        // The hash begins anew behind a cut.
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

  /// Where the last chunk ends; nil if the content ended with the one before.
  package func finish() -> Int? { length > 0 ? offset : nil }

  /// A fixed random number for each byte (SplitMix64 from the seed 1): other numbers would cut elsewhere.
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
