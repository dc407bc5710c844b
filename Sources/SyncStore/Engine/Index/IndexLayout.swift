/// Offsets in the file of the hash index, and the check bits of its words. `schemas/index.md` is the byte
/// map; this is its counterpart in code.
enum IndexLayout {
  static let version: UInt16 = 1
  static let magic: [UInt8] = Array("SYNCINDX".utf8)
  /// A feature required of readers: the hash is keyed by a secret which is not in the file.
  static let encryptedFeature: UInt64 = 1

  /// The first page of the file.
  enum Header {
    static let version = 8
    static let readerFeatures = 12
    static let writerFeatures = 16
    static let store = 24
    static let boot = 40
    static let inode = 48
    static let fileSystem = 56
    static let birth = 64
    static let secret = 72
    /// Only in an index keyed by a secret of the store's keys.
    static let check = 88
    static let checksum = 120
    /// Bytes of the part that the checksum covers, with the checksum.
    static let fixedLength = 128
    // A cache line of their own: each lookup loads it, writers change it only when the directory doubles.
    static let depth = 128
    // Words that each change writes.
    static let intent = 192
    static let operand = 200
    static let count = 208
    static let applied = 216
    static let frontier = 224
    static let spare = 232
    static let clean = 240
    /// First pages of the parts of the directory, part 0 first.
    static let parts = 256
  }

  /// A page of keys.
  enum Page {
    static let head = 0
    static let identity = 8
    static let overflow = 16
    static let buckets = 64
    static let extras = buckets + bucketCount * 64
  }

  static let bucketCount = HashParts.bucketCount
  static let slotsPerBucket = 8
  static let slots = bucketCount * slotsPerBucket
  /// Keys at which a page is split: 75 %. Fuller pages have longer searches, emptier ones cost more memory.
  static let splitAt = 300
  /// Bits of the hash that can select an entry of the directory.
  static let maximumDepth = 22
  /// The page of part 0 of the directory.
  static let firstDirectoryPage: UInt32 = 1
  /// Marks a file that was closed after everything in it was synced; any other word means that it was not.
  static let clean: UInt64 = 0xC105_ED00_7A11_5AFE
  static let notClean: UInt64 = 0x3EFA_12FF_85EE_A501
}

/// Words with a check byte: any single flipped bit is detected, and a word of zeros is invalid.
enum CheckedWord {
  /// Adds the check byte to a number below 2^56.
  @inline(__always)
  static func encode(_ value: UInt64) -> UInt64 {
    var fold = value ^ (value >> 32)
    fold ^= fold >> 16
    fold ^= fold >> 8
    return value | ((fold & 0xFF) ^ 0xA5) << 56
  }

  /// The number in a word; nil if it is damaged.
  @inline(__always)
  static func decode(_ word: UInt64) -> UInt64? {
    let value = word & (1 << 56 - 1)
    return encode(value) == word ? value : nil
  }

  /// An entry of the directory: the number of a page, below 2^24, with its check byte.
  @inline(__always)
  static func entry(_ page: UInt32) -> UInt32 {
    page | ((page ^ page >> 8 ^ page >> 16) & 0xFF ^ 0xA5) << 24
  }

  /// The page that an entry names; nil if it is damaged.
  @inline(__always)
  static func page(_ entry: UInt32) -> UInt32? {
    let page = entry & 0xFF_FFFF
    return self.entry(page) == entry ? page : nil
  }

  /// The word for the depth of the directory: depth + 1 in each byte.
  @inline(__always)
  static func encodeDepth(_ depth: Int) -> UInt64 { UInt64(depth + 1) &* 0x0101_0101_0101_0101 }

  /// The depth in a word; nil if it is damaged or the file was retired.
  @inline(__always)
  static func decodeDepth(_ word: UInt64) -> Int? {
    let depth = Int(word & 0xFF) - 1
    guard depth >= 0, depth <= IndexLayout.maximumDepth, self.encodeDepth(depth) == word else { return nil }
    return depth
  }

  /// Replaces the depth once another file replaced this one.
  static let retired: UInt64 = 0xDEAD_1D00_0BEE_F00D

  /// Sets bit 0 of a word, which must be free, to odd parity.
  static func withOddParity(_ word: UInt64) -> UInt64 { word | UInt64(~word.nonzeroBitCount & 1) }
}

/// A word of a bucket: free, or a record ref with a tag. Each has odd parity, which a word with one flipped
/// bit, and a word of zeros, do not have.
enum Slot {
  /// Bits of a record ref.
  static let refMask: UInt64 = 1 << 47 - 1
  /// Never taken since its bucket had a free slot: a search can stop here. Only at the end of a bucket.
  static let empty: UInt64 = 0xE000_FFFF_FFFF_FFFF
  /// Free, but a key that belongs here can be in a later bucket.
  static let removed: UInt64 = 0xD001_FFFF_FFFF_FFFE
  /// Record refs are below.
  static let refLimit: UInt64 = refMask - 1
  private static let parity: UInt64 = 1 << 47

  @inline(__always)
  static func make(tag: UInt64, ref: UInt64) -> UInt64 {
    let word = tag << 48 | ref
    return isOdd(word) ? word : word | parity
  }

  @inline(__always) static func ref(_ word: UInt64) -> UInt64 { word & refMask }
  @inline(__always) static func tag(_ word: UInt64) -> UInt64 { word >> 48 }
  @inline(__always) static func isTaken(_ word: UInt64) -> Bool { word & refMask < refLimit }

  /// Folded by hand: the shortest form without the popcount instruction, which the oldest x86-64 lacks.
  @inline(__always)
  static func isOdd(_ word: UInt64) -> Bool {
    var fold = word ^ word >> 32
    fold ^= fold >> 16
    fold ^= fold >> 8
    fold ^= fold >> 4
    return (0x6996 as UInt64) &>> (fold & 15) & 1 != 0
  }
}

/// The 16 bits next to a slot, which only writers read: bits 0–8 of the hash, the number of buckets between
/// the home bucket and the slot's, and a parity bit that makes the number of ones odd.
struct SlotExtra {
  let bits: UInt16

  init(bits: UInt16) { self.bits = bits }

  init(splitBits: UInt16, displacement: Int) {
    let bits = splitBits | UInt16(displacement) << 9
    self.bits = Slot.isOdd(UInt64(bits)) ? bits : bits | 0x8000
  }

  var isSound: Bool { Slot.isOdd(UInt64(bits)) }
  var splitBits: UInt16 { bits & 0x1FF }
  var displacement: Int { Int(bits >> 9 & 63) }

  /// Bit `number` of the hash of the key in a slot with this word.
  func hashBit(_ number: Int, of word: UInt64) -> Bool {
    number < 9
      ? bits &>> UInt16(truncatingIfNeeded: number) & 1 != 0
      : Slot.tag(word) &>> UInt64(truncatingIfNeeded: number &- 9) & 1 != 0
  }
}

extension LineScan {
  /// True for eight valid slots. Eight odd words have an even sum; zeros would have one, too.
  @inline(__always)
  var isSound: Bool { !Slot.isOdd(fold) && last != 0 }

  /// True if a search can end here.
  @inline(__always)
  var isOpen: Bool { last == Slot.empty }
}

extension CacheLine {
  /// True for eight valid slots: see `LineScan.isSound`.
  @inline(__always)
  var isSound: Bool {
    !Slot.isOdd(zero ^ one ^ two ^ three ^ four ^ five ^ six ^ seven) && seven != 0
  }

  /// True if a search can end here.
  @inline(__always)
  var isOpen: Bool { seven == Slot.empty }

  /// Bit n is set if slot n has this tag.
  @inline(__always)
  func matches(_ tag: UInt64) -> UInt32 {
    // Branch-free: which slot matches is unpredictable, so a branch for each would be mispredicted.
    @inline(__always) func bit(_ word: UInt64, _ number: UInt32) -> UInt32 {
      ((UInt32(truncatingIfNeeded: word >> 48 ^ tag) &- 1) >> 31) << number
    }
    return bit(zero, 0) | bit(one, 1) | bit(two, 2) | bit(three, 3)
      | bit(four, 4) | bit(five, 5) | bit(six, 6) | bit(seven, 7)
  }
}
