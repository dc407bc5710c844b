/// Key → place of its greatest record, in memory: open addressing with linear probing. The keys themselves stay in the
/// journal; who looks one up says whether the record at a place is the one.
///
/// Invariants: at most 7 of 8 slots are taken; the capacity is a power of two; a place is never 0, which marks a free slot.
struct KeyIndex {
  private var hashes: [UInt32]
  private var places: [UInt64]
  /// How many keys it holds.
  private(set) var count = 0

  init() {
    hashes = Array(repeating: 0, count: 16)
    places = Array(repeating: 0, count: 16)
  }

  /// The slot of the key with this hash for which `matches` holds, and the place in it; nil if there is none.
  func find(_ hash: UInt64, _ matches: (Location) -> Bool) -> (slot: Int, location: Location)? {
    let mask = places.count - 1
    let tag = Self.tag(hash)
    var slot = Int(truncatingIfNeeded: hash) & mask
    while places[slot] != 0 {
      let location = Location(packed: places[slot])
      if hashes[slot] == tag, matches(location) { return (slot, location) }
      slot = (slot + 1) & mask
    }
    return nil
  }

  /// Moves the key in `slot`, as `find` gave it, to another place.
  mutating func move(_ slot: Int, to location: Location) { places[slot] = location.packed }

  /// Adds a key that `find` did not find. `rehash` gives the hash of the key at a place.
  mutating func insert(_ hash: UInt64, _ location: Location, rehash: (Location) -> UInt64) {
    if (count + 1) * 8 > places.count * 7 { grow(rehash) }
    place(hash, location.packed)
    count += 1
  }

  /// All places, in no particular order.
  var locations: [Location] { places.lazy.filter { $0 != 0 }.map(Location.init(packed:)) }

  private mutating func place(_ hash: UInt64, _ packed: UInt64) {
    let mask = places.count - 1
    var slot = Int(truncatingIfNeeded: hash) & mask
    while places[slot] != 0 { slot = (slot + 1) & mask }
    hashes[slot] = Self.tag(hash)
    places[slot] = packed
  }

  private mutating func grow(_ rehash: (Location) -> UInt64) {
    let old = places
    places = Array(repeating: 0, count: old.count * 2)
    hashes = Array(repeating: 0, count: old.count * 2)
    for packed in old where packed != 0 { place(rehash(Location(packed: packed)), packed) }
  }

  private static func tag(_ hash: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: hash >> 32) }
}
