/// Growth of the index: page splits by copying and doubling of the directory. The next writer can complete
/// either after a crash. Only for the holder of the writers' mutex.
extension HashIndex {
  /// Pages that are populated at once, ahead of their use.
  private static let populatedPages: UInt32 = 64
  /// After a split failed on a full disk, it is tried again once the page holds this many keys more.
  private static let retryInterval = 16

  /// Splits a page that is full enough. Returns false if it cannot be split, but still has a free slot or can
  /// be linked.
  func makesRoom(for parts: HashParts, number: UInt32, page: PageView, count: Int, depth: Int)
    throws(StoreError) -> Bool
  {
    let isFull = count == IndexLayout.slots
    guard depth < maximumDepth, try !isLinked(page),
      isFull || (count - IndexLayout.splitAt).isMultiple(of: Self.retryInterval)
    else { return false }
    do throws(StoreError) {
      try split(number, page: page, depth: depth)
      return true
    } catch  where error.code == .diskFull && !isFull {
      return false
    }
  }

  func split(_ number: UInt32, page: PageView, depth: Int) throws(StoreError) {
    if try self.depth() == depth { try deepen(to: depth + 1) }
    let prefix = try identity(of: page, number).prefix
    let new = try nextPage()
    let view = try pages.page(new)
    let count = try copyHalf(of: page, depth, to: view)
    identify(view, new, prefix: prefix | 1 << UInt32(depth))
    view.store(Self.head(count: count, depth: depth + 1), at: IndexLayout.Page.head)
    write(CheckedWord.encode(UInt64(number)), to: header, IndexLayout.Header.operand)
    write(Intent.split(new: new).word, to: header, IndexLayout.Header.intent)
    try completeSplit(from: number, to: new)
  }

  /// Copies the keys whose hash bit `bit` is set to their buckets in a new page that is not visible yet.
  ///
  /// Which keys these are is unpredictable: each is stored, and those that stay are overwritten by the next,
  /// because a branch that is mispredicted every other time would take longer than everything else.
  private func copyHalf(of page: PageView, _ bit: Int, to new: PageView) throws(StoreError) -> Int {
    var filled = InlineArray<50, Int>(repeating: 0)
    var count = 0
    for bucket in 0..<IndexLayout.bucketCount {
      guard page.line(Self.slotOffset(bucket, 0)).isSound else { throw damaged() }
      for slot in 0..<IndexLayout.slotsPerBucket {
        let word = page.load(Self.slotOffset(bucket, slot))
        guard Slot.isTaken(word) else { break }
        let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(bucket, slot)))
        guard extra.isSound, extra.displacement < IndexLayout.bucketCount else { throw damaged() }
        let isCopied = extra.hashBit(bit, of: word)
        let home = bucket - extra.displacement
        var target = home < 0 ? home + IndexLayout.bucketCount : home
        var copy = SlotExtra(splitBits: extra.splitBits, displacement: 0)
        if filled[target] == IndexLayout.slotsPerBucket {
          guard isCopied else { continue }
          var displacement = 0
          while filled[target] == IndexLayout.slotsPerBucket {
            target = target + 1 == IndexLayout.bucketCount ? 0 : target + 1
            displacement += 1
          }
          copy = SlotExtra(splitBits: extra.splitBits, displacement: displacement)
        }
        new.storeShort(copy.bits, at: Self.extraOffset(target, filled[target]))
        new.store(word, at: Self.slotOffset(target, filled[target]))
        filled[target] += isCopied ? 1 : 0
        count += isCopied ? 1 : 0
      }
    }
    for bucket in 0..<IndexLayout.bucketCount {
      for slot in filled[bucket]..<IndexLayout.slotsPerBucket {
        new.store(Slot.empty, at: Self.slotOffset(bucket, slot))
      }
    }
    return count
  }

  private func identify(_ page: PageView, _ number: UInt32, prefix: UInt32) {
    page.store(CheckedWord.encode(UInt64(number) | UInt64(prefix) << 24), at: IndexLayout.Page.identity)
    page.store(CheckedWord.encode(0), at: IndexLayout.Page.overflow)
  }

  /// Empties a page that is not visible yet.
  func clear(_ page: PageView, _ number: UInt32, prefix: UInt32) {
    identify(page, number, prefix: prefix)
    for slot in 0..<IndexLayout.slots { page.store(Slot.empty, at: IndexLayout.Page.buckets + slot * 8) }
  }

  private func completeSplit(from number: UInt32, to new: UInt32) throws(StoreError) {
    try claimPage(new)
    let (prefix, depth) = try identity(of: pages.page(new), new)
    guard depth > 0 else { throw damaged() }
    var index = prefix
    let end = UInt32(1) << UInt32(try self.depth())
    while index < end {
      try entry(index).store(CheckedWord.entry(new))
      observer?()
      index += 1 << UInt32(depth)
    }
    let page = try pages.page(number)
    let count = try repack(page, clearing: depth - 1)
    write(Self.head(count: count, depth: depth), to: page, IndexLayout.Page.head)
    write(Intent.none, to: header, IndexLayout.Header.intent)
  }

  /// Links a new overflow page to the page.
  func addOverflow(to page: PageView, _ number: UInt32) throws(StoreError) -> UInt32 {
    let (prefix, depth) = try identity(of: page, number)
    guard depth >= maximumDepth else { throw damaged() }
    let new = try nextPage()
    let view = try pages.page(new)
    clear(view, new, prefix: prefix)
    view.store(Self.head(count: 0, depth: depth), at: IndexLayout.Page.head)
    write(CheckedWord.encode(UInt64(number)), to: header, IndexLayout.Header.operand)
    write(Intent.link(new: new).word, to: header, IndexLayout.Header.intent)
    try completeLink(from: number, to: new)
    return new
  }

  private func completeLink(from number: UInt32, to new: UInt32) throws(StoreError) {
    try claimPage(new)
    write(CheckedWord.encode(UInt64(new)), to: try pages.page(number), IndexLayout.Page.overflow)
    write(Intent.none, to: header, IndexLayout.Header.intent)
  }

  // MARK: Directory

  /// Doubles the directory. Its entries are copied to the new half, which counts once the depth is stored.
  private func deepen(to depth: Int) throws(StoreError) {
    var start: UInt32 = 0
    let part = MappedPages.part(of: 1 << UInt32(depth - 1))
    if part > 0 {
      let needed = MappedPages.pages(ofPart: part)
      start = try frontier()
      let chunk = MappedPages.chunk(of: start)
      if chunk.upperBound - start < needed { start = chunk.upperBound }
      guard start + needed <= MappedPages.limit else { throw full() }
      try pages.allocate(start)
      pages.populate(start..<start + needed)
    }
    write(CheckedWord.encode(UInt64(start)), to: header, IndexLayout.Header.operand)
    write(Intent.deepen(depth).word, to: header, IndexLayout.Header.intent)
    try completeDeepening(to: depth, start)
  }

  private func completeDeepening(to depth: Int, _ start: UInt32) throws(StoreError) {
    let half = UInt32(1) << UInt32(depth - 1)
    let part = MappedPages.part(of: half)
    if part > 0 {
      // Allocated before the intent was stored.
      guard try reaches(Int(start) + 1) else { throw damaged() }
      let frontier = try frontier()
      // The pages left at the end of a chunk become spare pages. They are fewer than a part of the directory
      // and long used up when the next part is added.
      if frontier < start { write(Self.spare(frontier..<start), to: header, IndexLayout.Header.spare) }
      if frontier <= start {
        let end = start + MappedPages.pages(ofPart: part)
        write(CheckedWord.encode(UInt64(end)), to: header, IndexLayout.Header.frontier)
      }
      write(CheckedWord.encode(UInt64(start)), to: header, IndexLayout.Header.parts + 8 * part)
      try pages.allocate(start)
      try pages.setPart(part, start: start)
    }
    for index in 0..<half { try entry(half + index).store(try entry(index).load()) }
    write(CheckedWord.encodeDepth(depth), to: header, IndexLayout.Header.depth)
    write(Intent.none, to: header, IndexLayout.Header.intent)
  }

  // MARK: Pages

  static func spare(_ pages: Range<UInt32>) -> UInt64 {
    CheckedWord.encode(UInt64(pages.lowerBound) | UInt64(pages.upperBound) << 24)
  }

  /// The first page that was never used.
  func frontier() throws(StoreError) -> UInt32 {
    let frontier = try checkedWord(IndexLayout.Header.frontier)
    guard frontier <= MappedPages.limit else { throw damaged() }
    return UInt32(frontier)
  }

  /// A free page; it stays free until `claimPage`.
  func nextPage() throws(StoreError) -> UInt32 {
    let spare = try checkedWord(IndexLayout.Header.spare)
    if spare & 0xFF_FFFF < spare >> 24 {
      try pages.allocate(UInt32(spare & 0xFF_FFFF))
      return UInt32(spare & 0xFF_FFFF)
    }
    let next = try frontier()
    guard next < MappedPages.limit else { throw full() }
    try pages.allocate(next)
    if next >= populatedEnd {
      populatedEnd = min(MappedPages.chunk(of: next).upperBound, next + Self.populatedPages)
      pages.populate(next..<populatedEnd)
    }
    return next
  }

  /// Claims a page that `nextPage` returned; does nothing if that was done.
  private func claimPage(_ page: UInt32) throws(StoreError) {
    let spare = try checkedWord(IndexLayout.Header.spare)
    if spare & 0xFF_FFFF < spare >> 24, spare & 0xFF_FFFF == page {
      write(Self.spare(page + 1..<UInt32(spare >> 24)), to: header, IndexLayout.Header.spare)
    } else if try frontier() == page {
      write(CheckedWord.encode(UInt64(page) + 1), to: header, IndexLayout.Header.frontier)
    }
  }

  private func full() -> StoreError {
    StoreError(.outOfBounds, "has as many pages as can be: keep fewer keys", path: file.path)
  }

  // MARK: Crash recovery

  /// Completes the change of a writer that died, in time independent of the number of keys, except for the
  /// doubling of the directory. Idempotent: a crash in it leaves it to the next call. Must be called after
  /// taking over the writers' mutex from a dead process, and by the first process that opens the file.
  /// Returns true if there was something to complete.
  package func recoverIntent() throws(StoreError) -> Bool {
    precondition(isWriting, "from one who may write")
    let intent = try checkedWord(IndexLayout.Header.intent)
    guard intent != 0 else { return false }
    let operand = try checkedWord(IndexLayout.Header.operand)
    guard let known = Intent(intent) else { throw damaged() }
    switch known {
    case .change(let number, let count):
      let page = try pages.page(number)
      let depth = try head(of: page).depth
      let actual = try repack(page, clearing: nil)
      let total = Int(operand) + actual - count
      guard total >= 0 else { throw damaged() }
      write(Self.head(count: actual, depth: depth), to: page, IndexLayout.Page.head)
      write(CheckedWord.encode(UInt64(total)), to: header, IndexLayout.Header.count)
      write(Intent.none, to: header, IndexLayout.Header.intent)
    case .split(let new): try completeSplit(from: number(operand), to: new)
    case .link(let new): try completeLink(from: number(operand), to: new)
    case .deepen(let depth):
      guard depth > 0, depth <= IndexLayout.maximumDepth else { throw damaged() }
      try completeDeepening(to: depth, number(operand))
    }
    return true
  }

  private func number(_ operand: UInt64) throws(StoreError) -> UInt32 {
    guard operand < MappedPages.limit else { throw damaged() }
    return UInt32(operand)
  }

  /// Packs a page and counts its keys, after removing those whose hash bit `bit` is set and the second of two
  /// copies of a key that was being moved.
  private func repack(_ page: PageView, clearing bit: Int?) throws(StoreError) -> Int {
    func isCleared(_ word: UInt64, _ extra: SlotExtra) -> Bool {
      guard let bit else { return false }
      return extra.hashBit(bit, of: word)
    }
    var count = 0
    var passed = try isLinked(page) ? UInt64.max : 0
    for bucket in 0..<IndexLayout.bucketCount {
      var last: UInt64 = 0
      guard page.line(Self.slotOffset(bucket, 0)).isSound else { throw damaged() }
      for slot in 0..<IndexLayout.slotsPerBucket {
        let word = page.load(Self.slotOffset(bucket, slot))
        guard Slot.isTaken(word) else { continue }
        let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(bucket, slot)))
        guard extra.isSound, extra.displacement < IndexLayout.bucketCount else { throw damaged() }
        let isGone = isCleared(word, extra) || word == last
        // Stored either way, as in `copyHalf`.
        write(isGone ? Slot.removed : word, to: page, Self.slotOffset(bucket, slot))
        last = isGone ? last : word
        count += isGone ? 0 : 1
        for distance in 0..<(isGone ? 0 : extra.displacement) {
          let before = bucket - 1 - distance
          passed |= 1 << UInt64(before < 0 ? before + IndexLayout.bucketCount : before)
        }
      }
    }
    for bucket in 0..<IndexLayout.bucketCount {
      packBucket(bucket, of: page, isPassed: passed >> UInt64(bucket) & 1 != 0)
    }
    return count
  }
}
