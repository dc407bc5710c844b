/// Key → place of its greatest record, in memory: open addressing with linear probing. The keys themselves stay in the
/// journal; who looks one up says whether the record at a place is the one.
///
/// Invariants: at most 3 of 4 slots are taken; the capacity is a power of two of at most 2^32; a place is never 0, which
/// marks a free slot; a slot keeps enough of the hash to be moved to a larger table without a look at its key.
struct KeyIndex {
  // One cache line is read for nearly every look-up: a slot has 16 bytes.
  private struct Slot {
    var place: UInt64 = 0
    var hash: UInt32 = 0
  }

  private var slots: [Slot]
  /// How many keys it holds.
  private(set) var count = 0

  init() { slots = Array(repeating: Slot(), count: 16) }

  /// The slot of the key with this hash for which `matches` holds, and the place in it; nil if there is none.
  @inline(__always)
  func find(_ hash: UInt64, _ matches: (Location) -> Bool) -> (slot: Int, location: Location)? {
    let mask = slots.count - 1
    let kept = UInt32(truncatingIfNeeded: hash)
    var slot = Int(kept) & mask
    while slots[slot].place != 0 {
      if slots[slot].hash == kept {
        let location = Location(packed: slots[slot].place)
        if matches(location) { return (slot, location) }
      }
      slot = (slot + 1) & mask
    }
    return nil
  }

  /// Moves the key in `slot`, as `find` gave it, to another place.
  mutating func move(_ slot: Int, to location: Location) { slots[slot].place = location.packed }

  /// Adds a key that `find` did not find.
  mutating func insert(_ hash: UInt64, _ location: Location) {
    if (count + 1) * 4 > slots.count * 3 { grow() }
    place(Slot(place: location.packed, hash: UInt32(truncatingIfNeeded: hash)))
    count += 1
  }

  /// All places, in no particular order.
  var locations: [Location] {
    var locations: [Location] = []
    locations.reserveCapacity(count)
    for slot in slots where slot.place != 0 { locations.append(Location(packed: slot.place)) }
    return locations
  }

  private mutating func place(_ entry: Slot) {
    let mask = slots.count - 1
    var slot = Int(entry.hash) & mask
    while slots[slot].place != 0 { slot = (slot + 1) & mask }
    slots[slot] = entry
  }

  @inline(never)
  private mutating func grow() {
    let old = slots
    slots = Array(repeating: Slot(), count: old.count * 2)
    for slot in old where slot.place != 0 { place(slot) }
  }
}
