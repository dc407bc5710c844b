/// Changes of single keys. Only for the holder of the writers' mutex.
///
/// Each change of the number of keys stands between two stores of the intent word: who dies in between leaves which page
/// to count again, and what both counts were. Everything else is one store that either happened or did not.
extension HashIndex {
  /// Adds a key that `find` did not find. `place` is between 1 and 2^47 - 3.
  ///
  /// Throws `.diskFull` if there is no room for it, and `.damaged`; nothing has changed then.
  package func insert(_ hash: UInt64, _ place: UInt64) throws(StoreError) {
    precondition(isWriting && place != 0 && place < Slot.refLimit, "a place, from one who may write")
    let parts = HashParts(hash)
    while true {
      var number = try page(try entry(parts, header.load(IndexLayout.Header.depth)).load())
      var page = try pages.page(number)
      var (count, depth) = try head(of: page)
      if count >= IndexLayout.splitAt,
        try makesRoom(for: parts, number: number, page: page, count: count, depth: depth)
      {
        continue
      }
      while count == IndexLayout.slots {
        if let next = try overflow(page, number) {
          number = next
        } else {
          number = try addOverflow(to: page, number)
        }
        page = try pages.page(number)
        (count, depth) = try head(of: page)
      }
      let free = try self.free(in: page, from: parts.bucket)
      let total = try beginChange(of: number, count)
      let displacement =
        free.bucket - parts.bucket + (free.bucket < parts.bucket ? IndexLayout.bucketCount : 0)
      let extra = SlotExtra(splitBits: parts.splitBits, displacement: displacement)
      page.storeShort(extra.bits, at: Self.extraOffset(free.bucket, free.slot))
      write(
        Slot.make(tag: parts.tag, ref: place), to: page, Self.slotOffset(free.bucket, free.slot))
      endChange(of: page, count: count + 1, depth: depth, total: total + 1)
      return
    }
  }

  /// Moves a key from one place to another, at once for every reader. False if it is not at the old place.
  package func replace(_ hash: UInt64, _ old: UInt64, with new: UInt64) throws(StoreError) -> Bool {
    precondition(isWriting && new != 0 && new < Slot.refLimit, "a place, from one who may write")
    guard let found = try locate(hash, old) else { return false }
    let word = Slot.make(tag: HashParts(hash).tag, ref: new)
    write(word, to: found.view, Self.slotOffset(found.bucket, found.slot))
    return true
  }

  /// Takes away the key at a place. False if it is not there.
  package func remove(_ hash: UInt64, _ place: UInt64) throws(StoreError) -> Bool {
    precondition(isWriting, "from one who may write")
    guard let found = try locate(hash, place) else { return false }
    let page = found.view
    let (count, depth) = try head(of: page)
    let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(found.bucket, found.slot)))
    guard extra.isSound, count > 0 else { throw damaged() }
    let isLinked = try isLinked(page)
    let total = try beginChange(of: found.page, count, least: 1)
    write(Slot.removed, to: page, Self.slotOffset(found.bucket, found.slot))
    if isLinked {
      // A page that goes on elsewhere has no empty slots: searches must go there.
      packBucket(found.bucket, of: page, isPassed: true)
    } else {
      // Searches for keys of the buckets that it was pushed out of may end earlier now: they would get ever longer.
      var bucket = found.bucket
      for _ in 0...extra.displacement {
        try packBucket(bucket, of: page)
        bucket = bucket == 0 ? IndexLayout.bucketCount - 1 : bucket - 1
      }
    }
    endChange(of: page, count: count - 1, depth: depth, total: total - 1)
    return true
  }

  // MARK: Steps

  /// Where a key at a place stands; nil if it is not there.
  private func locate(_ hash: UInt64, _ place: UInt64) throws(StoreError)
    -> (page: UInt32, view: PageView, bucket: Int, slot: Int)?
  {
    let parts = HashParts(hash)
    let wanted = Slot.make(tag: parts.tag, ref: place)
    var number = try page(try entry(parts, header.load(IndexLayout.Header.depth)).load())
    while true {
      let page = try pages.page(number)
      var bucket = parts.bucket
      for _ in 0..<IndexLayout.bucketCount {
        let line = page.scanLine(Self.slotOffset(bucket, 0), tag: parts.tag)
        guard line.isSound else { throw damaged() }
        var found = line.matches
        while found != 0 {
          let slot = found.trailingZeroBitCount / 4
          if page.load(Self.slotOffset(bucket, slot)) == wanted { return (number, page, bucket, slot) }
          found &= found - 1
        }
        if line.isOpen { return nil }
        bucket = bucket + 1 == IndexLayout.bucketCount ? 0 : bucket + 1
      }
      guard let next = try overflow(page, number) else { return nil }
      number = next
    }
  }

  /// The first free slot for a key of `bucket`, in a page that has one.
  private func free(in page: PageView, from first: Int) throws(StoreError) -> (bucket: Int, slot: Int) {
    var bucket = first
    for _ in 0..<IndexLayout.bucketCount {
      let line = page.scanLine(Self.slotOffset(bucket, 0), tag: 0)
      guard line.isSound else { throw damaged() }
      // Free slots come last.
      if !Slot.isTaken(line.last) {
        for slot in 0..<IndexLayout.slotsPerBucket
        where !Slot.isTaken(page.load(Self.slotOffset(bucket, slot))) {
          return (bucket, slot)
        }
      }
      bucket = bucket + 1 == IndexLayout.bucketCount ? 0 : bucket + 1
    }
    throw damaged()
  }

  /// The number of keys before the change, which is possible if there are at least so many.
  private func beginChange(of page: UInt32, _ count: Int, least: UInt64 = 0) throws(StoreError) -> UInt64 {
    let total = try checkedWord(IndexLayout.Header.count)
    guard total >= least, header.load(IndexLayout.Header.intent) == Intent.none else { throw damaged() }
    write(CheckedWord.encode(total), to: header, IndexLayout.Header.operand)
    write(Intent.change(page, count).word, to: header, IndexLayout.Header.intent)
    return total
  }

  private func endChange(of page: PageView, count: Int, depth: Int, total: UInt64) {
    write(Self.head(count: count, depth: depth), to: page, IndexLayout.Page.head)
    write(CheckedWord.encode(total), to: header, IndexLayout.Header.count)
    write(Intent.none, to: header, IndexLayout.Header.intent)
  }

  static func head(count: Int, depth: Int) -> UInt64 {
    CheckedWord.encode(UInt64(count) | UInt64(depth) << 16)
  }

  // MARK: Tidying buckets

  /// Puts the taken slots of a bucket before the free ones, which become empty unless a search must go on behind it.
  private func packBucket(_ bucket: Int, of page: PageView) throws(StoreError) {
    packBucket(bucket, of: page, isPassed: try isProbedPast(bucket, of: page))
  }

  /// As above, for who knows whether a key that belongs in or before the bucket lies behind it.
  func packBucket(_ bucket: Int, of page: PageView, isPassed: Bool) {
    // Each slot is stored, also where it stays as it is: which ones are taken cannot be foreseen (see `copyHalf`). At each
    // moment at most one key stands twice, and only free slots between its two places.
    var end = 0
    for slot in 0..<IndexLayout.slotsPerBucket {
      let word = page.load(Self.slotOffset(bucket, slot))
      page.storeShort(page.loadShort(Self.extraOffset(bucket, slot)), at: Self.extraOffset(bucket, end))
      write(word, to: page, Self.slotOffset(bucket, end))
      write(slot == end ? word : Slot.removed, to: page, Self.slotOffset(bucket, slot))
      end += Slot.isTaken(word) ? 1 : 0
    }
    let free = isPassed ? Slot.removed : Slot.empty
    for slot in (end..<IndexLayout.slotsPerBucket).reversed() {
      write(free, to: page, Self.slotOffset(bucket, slot))
    }
  }

  /// Is there a key behind the bucket that belongs in it, or before it?
  private func isProbedPast(_ bucket: Int, of page: PageView) throws(StoreError) -> Bool {
    for distance in 1..<IndexLayout.bucketCount {
      let next = (bucket + distance) % IndexLayout.bucketCount
      for slot in 0..<IndexLayout.slotsPerBucket where Slot.isTaken(page.load(Self.slotOffset(next, slot))) {
        let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(next, slot)))
        guard extra.isSound else { throw damaged() }
        if extra.displacement >= distance { return true }
      }
      if page.load(Self.slotOffset(next, 7)) == Slot.empty { return false }
    }
    return false
  }
}

/// What the holder of the writers' mutex is about to do, in a word of the header: who finds it after a death completes it.
enum Intent: Equatable {
  /// Add or take away a key of a page that had so many. The operand is how many all pages had.
  case change(UInt32, Int)
  /// Split a page, the other half of which is complete in a new one. The operand is the page that is split.
  case split(new: UInt32)
  /// Let the directory be so deep. The operand is where its new part begins, if it needs one.
  case deepen(Int)
  /// Let a page, complete, go on after another one, which is full. The operand is that one.
  case link(new: UInt32)

  /// Nothing.
  static let none = CheckedWord.encode(0)

  var word: UInt64 {
    switch self {
    case .change(let page, let count): CheckedWord.encode(1 | UInt64(page) << 8 | UInt64(count) << 32)
    case .split(let page): CheckedWord.encode(2 | UInt64(page) << 8)
    case .deepen(let depth): CheckedWord.encode(3 | UInt64(depth) << 8)
    case .link(let page): CheckedWord.encode(4 | UInt64(page) << 8)
    }
  }

  /// What an opened word says; nil for nothing, and for what no program writes.
  init?(_ value: UInt64) {
    let page = UInt32(value >> 8 & 0xFF_FFFF)
    switch value & 0xFF {
    case 1: self = .change(page, Int(value >> 32))
    case 2: self = .split(new: page)
    case 3: self = .deepen(Int(page))
    case 4: self = .link(new: page)
    default: return nil
    }
  }
}
