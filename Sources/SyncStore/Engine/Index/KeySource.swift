/// Keys in mapped memory, read millions of times by a sort.
protocol KeySource {
  /// The memory of the keys.
  var bytes: MappingTable { get }
  /// The key at a location.
  func key(at location: Location) -> KeyLocation
  /// Prefetches the first bytes at a location that is read soon.
  func prefetch(_ location: Location, _ count: Int)
}

/// Mapping and range of a key.
struct KeyLocation {
  /// Number of the mapping.
  var number: Int
  var start: Int
  var count: Int

  static let none = KeyLocation(number: -1, start: 0, count: 0)
  var range: Range<Int> { start..<(start + count) }
}

extension KeySource {
  /// Eight bytes of a key from `offset` on, big-endian; zeros after the end.
  @inline(__always)
  func word(_ key: KeyLocation, at offset: Int) -> UInt64 {
    let left = key.count - offset
    guard left > 0 else { return 0 }
    if left >= 8 { return bytes.load(key.number, at: key.start + offset, as: UInt64.self).byteSwapped }
    // Load the eight bytes that end with the key: bytes after it may be being written. Each key has that many
    // before it.
    let last: UInt64 = bytes.load(key.number, at: key.start + key.count - 8)
    return last.byteSwapped << UInt64(8 * (8 - left))
  }

  /// True if `left` sorts before `right`. They are known to agree in the first `depth` bytes.
  func isLess(_ left: KeyLocation, _ right: KeyLocation, from depth: Int = 0) -> Bool {
    var offset = depth
    while offset < left.count, offset < right.count {
      let (first, second) = (word(left, at: offset), word(right, at: offset))
      if first != second { return first < second }
      offset += 8
    }
    return left.count < right.count
  }

  /// Length of the common prefix, up to `limit`.
  @inline(__always)
  func commonPrefix(_ left: KeyLocation, _ right: KeyLocation, limit: Int) -> Int {
    let limit = min(limit, left.count, right.count)
    var offset = 0
    while offset < limit {
      let difference = word(left, at: offset) ^ word(right, at: offset)
      if difference != 0 { return min(limit, offset + difference.leadingZeroBitCount / 8) }
      offset += 8
    }
    return limit
  }
}

/// The keys of encrypted records, each decrypted once, for the duration of a sort.
///
/// A key's location here is not that of its record, which is stored in front of it.
struct DecryptedKeys: KeySource {
  let bytes: MappingTable
  /// The location of each key.
  let places: [Location]
  /// Records that could not be decrypted.
  let damaged: [Location]

  /// Bytes of a piece of memory, which is zeroed at the end. The first ones are smaller, each half of the
  /// next: few keys need few.
  private static let pieceBytes = 4 << 20
  private static let smallerPieces = 8
  /// Bytes in front of each key: the location of its record, and its length.
  private static let heading = 16
  private static let countOffset = 8

  /// Decrypts the keys of these records, in the order in which they are to be read.
  init(_ locations: some Sequence<Location>, in segments: SegmentSnapshot) {
    var pieces: [Mapping] = []
    var end = 0
    var places: [Location] = []
    var damaged: [Location] = []
    for location in locations {
      // In a segment that is not encrypted only the checksum detects damage.
      guard segments.isWhole(location) else {
        damaged.append(location)
        continue
      }
      let isThere: Void? = segments.withKey(location) { key in
        let count = Self.heading + (key.byteCount + 7) & ~7
        if end + count > pieces.last?.count ?? 0 {
          pieces.append(.heap(max(Self.pieceBytes >> max(0, Self.smallerPieces - pieces.count), count)))
          end = 0
        }
        let piece = pieces[pieces.count - 1]
        piece.store(location.packed, at: end)
        piece.store(UInt64(key.byteCount), at: end + Self.countOffset)
        piece.store(key, at: end + Self.heading)
        places.append(Location(segment: UInt32(pieces.count - 1), offset: end))
        end += count
      }
      if isThere == nil { damaged.append(location) }
    }
    bytes = MappingTable(pieces)
    (self.places, self.damaged) = (places, damaged)
  }

  @inline(__always)
  func key(at location: Location) -> KeyLocation {
    let number = Int(location.segment)
    let count = bytes.load(number, at: location.offset + Self.countOffset, as: UInt64.self)
    return KeyLocation(number: number, start: location.offset + Self.heading, count: Int(count))
  }

  @inline(__always)
  func prefetch(_ location: Location, _ count: Int) {
    bytes.prefetch(Int(location.segment), at: location.offset, bytes: min(count, 64))
  }

  /// The location of the record whose key is at this location.
  func record(at location: Location) -> Location {
    Location(packed: bytes.load(Int(location.segment), at: location.offset))
  }
}
