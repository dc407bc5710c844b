/// Keys written by an uncommitted append: hash of a key → index of its entry. Callers of a lookup compare the
/// keys.
///
/// Open addressing with linear probing. Invariants: at most half of the slots are taken; their number is a
/// power of two, or 0 while there are no keys; 0 marks a free slot, indices from 0 on are stored plus 1,
/// negative ones unchanged.
struct PendingKeys: Sendable {
  private var slots: [Int32] = []
  private var hashes: [UInt64] = []
  private var count = 0

  var isEmpty: Bool { count == 0 }

  /// The index of the key with this hash for which `matches` holds; nil if the append has not written it.
  func find(_ hash: UInt64, _ matches: (Int) -> Bool) -> Int? {
    count == 0 ? nil : index(in: slot(of: hash, matches))
  }

  /// Makes room for one more key.
  mutating func reserve() {
    guard count * 2 >= slots.count else { return }
    let (oldPlaces, oldHashes) = (slots, hashes)
    slots = Array(repeating: 0, count: max(oldPlaces.count * 2, 16))
    hashes = Array(repeating: 0, count: slots.count)
    for old in oldPlaces.indices where oldPlaces[old] != 0 {
      let slot = slot(of: oldHashes[old]) { _ in false }
      (slots[slot], hashes[slot]) = (oldPlaces[old], oldHashes[old])
    }
  }

  /// The slot of the key; after `reserve`, the free slot for it if it is new.
  func slot(of hash: UInt64, _ matches: (Int) -> Bool) -> Int {
    let mask = slots.count - 1
    var slot = Int(truncatingIfNeeded: hash) & mask
    while let index = index(in: slot), hashes[slot] != hash || !matches(index) { slot = (slot + 1) & mask }
    return slot
  }

  /// Sets the index of the key that has this slot.
  mutating func set(_ slot: Int, hash: UInt64, to index: Int) {
    if slots[slot] == 0 { count += 1 }
    (slots[slot], hashes[slot]) = (Int32(index < 0 ? index : index + 1), hash)
  }

  /// The index in a slot; nil if it is free.
  func index(in slot: Int) -> Int? {
    let place = Int(slots[slot])
    return place == 0 ? nil : place < 0 ? place : place - 1
  }
}
