/// Changes of single keys. Only for the holder of the writers' mutex.
///
/// Each change of the number of keys is bracketed by two stores of the intent word: after a crash in between,
/// it tells which page must be counted again, and both counts from before. Everything else is one store that
/// either happened or did not.
extension HashIndex {
  /// Adds a key that `find` did not find. `place` is between 1 and 2^47 - 3.
  ///
  /// Throws `.diskFull` if there is no space for it, and `.damaged`; then nothing has changed.
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

  /// Replaces the ref of a key, atomically for every reader. Returns false if the old ref is not there.
  package func replace(_ hash: UInt64, _ old: UInt64, with new: UInt64) throws(StoreError) -> Bool {
    precondition(isWriting && new != 0 && new < Slot.refLimit, "a place, from one who may write")
    guard let found = try locate(hash, old) else { return false }
    let word = Slot.make(tag: HashParts(hash).tag, ref: new)
    write(word, to: found.view, Self.slotOffset(found.bucket, found.slot))
    return true
  }

  /// Removes the key with this ref. Returns false if it is not there.
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
      // A page with an overflow page has no empty slots: searches must continue there.
      packBucket(found.bucket, of: page, isPassed: true)
    } else {
      // Searches for keys of the buckets that it was displaced from may end earlier now: otherwise they would
      // get ever longer.
      var bucket = found.bucket
      for _ in 0...extra.displacement {
        try packBucket(bucket, of: page)
        bucket = bucket == 0 ? IndexLayout.bucketCount - 1 : bucket - 1
      }
    }
    endChange(of: page, count: count - 1, depth: depth, total: total - 1)
    return true
  }

  // MARK: Change steps

  /// Page, bucket and slot of the key with this ref; nil if it is not there.
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

  /// Stores the intent and returns the number of keys before the change, of which at least `least` must be
  /// present.
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

  // MARK: Bucket packing

  /// Packs the taken slots of a bucket before the free ones, which become empty unless a search must continue
  /// past the bucket.
  private func packBucket(_ bucket: Int, of page: PageView) throws(StoreError) {
    packBucket(bucket, of: page, isPassed: try isProbedPast(bucket, of: page))
  }

  /// `packBucket` if it is known whether a key that belongs in or before the bucket is stored after it.
  func packBucket(_ bucket: Int, of page: PageView, isPassed: Bool) {
    // Store each slot, even unchanged: which ones are taken is unpredictable (see `copyHalf`). At each moment
    // at most one key is stored twice, with only free slots between the two copies.
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

  /// True if a key stored after the bucket belongs in it or before it.
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

/// The change in progress, as a word of the header: after the writer's death the next writer completes it.
enum Intent: Equatable {
  /// Add or remove a key of a page with this number of keys. The operand is the number of keys in all pages.
  case change(UInt32, Int)
  /// Split a page; the other half is complete in a new one. The operand is the page that is split.
  case split(new: UInt32)
  /// Double the directory to this depth. The operand is the first page of its new part, if it needs one.
  case deepen(Int)
  /// Link a complete overflow page to a full page, which is the operand.
  case link(new: UInt32)

  /// No change in progress.
  static let none = CheckedWord.encode(0)

  var word: UInt64 {
    switch self {
    case .change(let page, let count): CheckedWord.encode(1 | UInt64(page) << 8 | UInt64(count) << 32)
    case .split(let page): CheckedWord.encode(2 | UInt64(page) << 8)
    case .deepen(let depth): CheckedWord.encode(3 | UInt64(depth) << 8)
    case .link(let page): CheckedWord.encode(4 | UInt64(page) << 8)
    }
  }

  /// Decodes a checked word; nil for no intent, and for a word that no program writes.
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
