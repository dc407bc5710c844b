/// A pass over all keys in units: no change is allowed while a unit is visited, but writers run between
/// units.
extension HashIndex {
  /// The number of units of a pass, a power of two, so that a unit has a few pages. It stays valid while keys
  /// are added.
  func scanUnitCount() throws(StoreError) -> Int { 1 << max(0, try depth() - 3) }

  /// Visits the refs of the keys whose hashes end in `unit`, of `units` units. A page that is not split that
  /// far also holds keys of other units: `isShared` says that the caller must check whether the key `belongs`
  /// to the unit. Only for the holder of the writers' mutex.
  func forEachRef(
    unit: Int, of units: Int, _ body: (_ place: UInt64, _ isShared: Bool) throws(StoreError) -> Void
  ) throws(StoreError) {
    let entries = 1 << (try self.depth())
    for index in stride(from: unit, to: entries, by: units) {
      var number = try page(try entry(UInt32(index)).load())
      let (prefix, depth) = try identity(of: pages.page(number), number)
      let isShared = 1 << depth < units
      // Of the entries that name a page the first one counts, in each unit that it has keys of.
      guard isShared ? index == unit : prefix == UInt32(index) else { continue }
      while true {
        let page = try pages.page(number)
        for slot in 0..<IndexLayout.slots {
          let word = page.load(IndexLayout.Page.buckets + slot * 8)
          guard Slot.isOdd(word) else { throw damaged() }
          if Slot.isTaken(word) { try body(Slot.ref(word), isShared) }
        }
        guard let next = try overflow(page, number) else { break }
        number = next
      }
    }
  }

  /// True if a key of this hash belongs to the unit.
  static func belongs(_ hash: UInt64, to unit: Int, of units: Int) -> Bool {
    Int(hash & UInt64(units - 1)) == unit
  }
}
