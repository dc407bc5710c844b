extension HashIndex {
  /// Checks every word of the index: that it is valid, that each key is in the position that its bits say,
  /// and that all counts agree. Throws `.damaged` if not. Only for the holder of the writers' mutex, after
  /// `recoverIntent`.
  package func verify() throws(StoreError) {
    guard try checkedWord(IndexLayout.Header.intent) == 0 else { throw damaged() }
    let depth = try self.depth()
    for index in 0..<UInt32(1) << UInt32(depth) {
      let number = try page(try entry(index).load())
      let common = try identity(of: pages.page(number), number)
      guard common.depth <= depth, index & (1 << UInt32(common.depth) - 1) == common.prefix else {
        throw damaged()
      }
    }
    var total = 0
    try forEachPage { (number, page) throws(StoreError) in total += try verify(page, number) }
    guard total == (try count) else { throw damaged() }
  }

  /// Verifies a page and returns its number of keys.
  private func verify(_ page: PageView, _ number: UInt32) throws(StoreError) -> Int {
    let (prefix, depth) = try identity(of: page, number)
    let isLinked = try isLinked(page)
    var open: UInt64 = 0
    var count = 0
    for bucket in 0..<IndexLayout.bucketCount {
      let line = page.line(Self.slotOffset(bucket, 0))
      guard line.isSound else { throw damaged() }
      if line.isOpen { open |= 1 << UInt64(bucket) }
    }
    for bucket in 0..<IndexLayout.bucketCount {
      var last: UInt64?
      for slot in 0..<IndexLayout.slotsPerBucket {
        let word = page.load(Self.slotOffset(bucket, slot))
        guard Slot.isOdd(word), Slot.ref(word) != 0 else { throw damaged() }
        defer { last = word }
        guard Slot.isTaken(word) else {
          guard word == Slot.empty || word == Slot.removed else { throw damaged() }
          // The free slots of a bucket are all alike; in a page with an overflow page, none is empty.
          let before = last.map { Slot.isTaken($0) ? word : $0 } ?? word
          guard before == word, !(isLinked && word == Slot.empty) else { throw damaged() }
          continue
        }
        if let last, !Slot.isTaken(last) { throw damaged() }
        let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(bucket, slot)))
        guard extra.isSound, extra.displacement < IndexLayout.bucketCount else { throw damaged() }
        for bit in 0..<depth where extra.hashBit(bit, of: word) != (prefix >> UInt32(bit) & 1 != 0) {
          throw damaged()
        }
        for distance in 0..<extra.displacement {
          let before = bucket - 1 - distance
          let passed = before < 0 ? before + IndexLayout.bucketCount : before
          guard open >> UInt64(passed) & 1 == 0 else { throw damaged() }
        }
        count += 1
      }
    }
    guard count == (try head(of: page).count) else { throw damaged() }
    return count
  }
}
