/// The hash index: hash of a key → record ref, in a mapped file shared by several processes. Extendible
/// hashing (Fagin, Nievergelt, Pippenger, Strong 1979): a directory of 2^depth entries names pages; a full
/// page is split by copying half of it to a new page and redirecting the directory entries, so that the index
/// is never rehashed as a whole.
///
/// Invariants:
/// - Single writer: every change requires the writers' mutex of the store, `recoverIntent` after taking the
///   mutex over from a dead process, and `beginWriting` once before.
/// - Readers take no lock. They may see a change slightly late, but never miss a key that was present all the
///   time: a key moves within its bucket only from a later slot to an earlier one, after it was copied there,
///   and buckets are read from the last slot to the first; a key leaves its page only after the directory
///   names the new one, and a reader that finds nothing checks that the entry it used is still current.
/// - A key is in the bucket that its hash names, or in one of the following of the same page, with no bucket
///   between them that ends in an empty slot; or in an overflow page of the same layout, if the page itself
///   has no free slot.
/// - Free slots of a bucket come after all taken ones once a change is complete.
/// - The keys themselves stay in the journal: the caller of a lookup decides whether the record at a ref is
///   the one.
package final class HashIndex: @unchecked Sendable {
  // The variables belong to the holder of the writers' mutex.

  let pages: MappedPages
  let header: PageView
  let file: any StorageFile
  /// Called after each store visible to other processes, so that tests can stop there.
  var observer: (() -> Void)?
  let maximumDepth: Int
  let seed: UInt64
  var known: IndexHeader
  var boot: UInt64 = 0
  var isWriting = false
  /// Pages below this number are populated.
  var populatedEnd: UInt32 = 0

  init(
    _ file: any StorageFile, writable: Bool, _ known: IndexHeader, seed: UInt64,
    maximumDepth: Int = IndexLayout.maximumDepth
  ) throws(StoreError) {
    precondition(maximumDepth <= IndexLayout.maximumDepth, "deeper than there are bits")
    pages = MappedPages(file, writable: writable)
    header = try pages.page(0)
    self.file = file
    self.maximumDepth = maximumDepth
    self.known = known
    self.seed = seed
    try pages.setPart(0, start: IndexLayout.firstDirectoryPage)
  }

  // MARK: Reading

  /// The record ref of the key with this hash for which `matches` returns true; nil if there is none.
  /// Lock-free, from any thread and process. `matches` sees refs in the index, seldom that of another key.
  ///
  /// Throws `.damaged` if the index must be rebuilt, `.closed` if it was rebuilt and this file is no longer
  /// in use.
  @inline(__always)
  package func find(_ hash: UInt64, _ matches: (_ place: UInt64) -> Bool) throws(StoreError) -> UInt64? {
    let parts = HashParts(hash)
    let depth = header.load(IndexLayout.Header.depth)
    let entry = try self.entry(parts, depth)
    let used = entry.load()
    let page = try pages.page(try self.page(used))
    // Fast path: one probe is nearly always enough. The less work there is, the further ahead the processor
    // runs: it waits for this cache line while it already works on the caller's next steps.
    let line = page.scanLine(Self.slotOffset(parts.bucket, 0), tag: parts.tag)
    if line.isSound {
      if line.matches == 0 {
        if line.isOpen, entry.load() == used, header.load(IndexLayout.Header.depth) == depth { return nil }
      } else {
        let word = page.load(Self.slotOffset(parts.bucket, line.matches.trailingZeroBitCount &>> 2))
        if Slot.isTaken(word), Slot.tag(word) == parts.tag, matches(Slot.ref(word)) {
          return Slot.ref(word)
        }
      }
    }
    return try findFurther(parts, matches)
  }

  /// True if there may be a key with this hash. Keys whose hashes share the compared bits also match.
  @inline(__always)
  package func has(_ hash: UInt64) throws(StoreError) -> Bool { try find(hash) { _ in true } != nil }

  /// The slow path of `find`, from the beginning, for keys that need more than one probe.
  @inline(never)
  private func findFurther(
    _ parts: HashParts, _ matches: (_ place: UInt64) -> Bool
  ) throws(StoreError) -> UInt64? {
    while true {
      let depth = header.load(IndexLayout.Header.depth)
      let entry = try self.entry(parts, depth)
      let used = entry.load()
      var number = try page(used)
      while true {
        let page = try pages.page(number)
        var bucket = parts.bucket
        var left = IndexLayout.bucketCount
        var isOpen = false
        while left > 0, !isOpen {
          let look = page.scanLine(Self.slotOffset(bucket, 0), tag: parts.tag)
          guard look.isSound else { throw damaged() }
          var canEnd = look.isOpen
          if look.matches != 0 {
            let line = page.line(IndexLayout.Page.buckets &+ bucket &* 64)
            guard line.isSound else { throw damaged() }
            var found = line.matches(parts.tag)
            var isChanged = false
            while found != 0 {
              let word = page.load(Self.slotOffset(bucket, found.trailingZeroBitCount))
              if Slot.isTaken(word), matches(Slot.ref(word)) { return Slot.ref(word) }
              // The key may have moved to an earlier slot between the two loads.
              isChanged = page.line(IndexLayout.Page.buckets &+ bucket &* 64) != line
              if isChanged { break }
              found &= found &- 1
            }
            if isChanged { continue }
            canEnd = line.isOpen
          }
          isOpen = canEnd
          left &-= 1
          bucket = bucket &+ 1 == IndexLayout.bucketCount ? 0 : bucket &+ 1
        }
        if isOpen { break }
        guard let next = try overflow(page, number) else { break }
        number = next
      }
      if header.load(IndexLayout.Header.depth) == depth, entry.load() == used { return nil }
    }
  }

  /// Prefetches the cache lines that `find` and `insert` of a key with this hash read. Call it some keys
  /// ahead in a batch, so that their cache misses overlap. A hint: it changes nothing and never fails.
  @inline(__always)
  package func prefetch(_ hash: UInt64) {
    let parts = HashParts(hash)
    guard let depth = CheckedWord.decodeDepth(header.load(IndexLayout.Header.depth)),
      let number = pages.entry(parts.entry(depth: depth)).flatMap({ CheckedWord.page($0.load()) }),
      let page = try? pages.page(number)
    else { return }
    page.prefetch(Self.slotOffset(parts.bucket, 0))
    page.prefetch(IndexLayout.Page.head)
    page.prefetch(Self.extraOffset(parts.bucket, 0))
  }

  /// Number of keys. Exact for the holder of the writers' mutex.
  package var count: Int {
    get throws(StoreError) {
      let count = Int(try checkedWord(IndexLayout.Header.count))
      // Bound it: callers allocate memory for this many.
      guard try reaches(count / IndexLayout.slots + min(count % IndexLayout.slots, 1)) else {
        throw damaged()
      }
      return count
    }
  }

  /// The location up to which the index holds all keys, as the caller set it: an even number. Atomic.
  package var applied: UInt64 {
    get throws(StoreError) {
      let word = header.load(IndexLayout.Header.applied)
      guard Slot.isOdd(word) else { throw damaged() }
      return word & ~1
    }
  }

  /// Sets the location up to which the index holds all keys. Only for the holder of the writers' mutex.
  package func setApplied(_ location: UInt64) {
    precondition(isWriting && location & 1 == 0, "an even number, from one who may write")
    write(CheckedWord.withOddParity(location), to: header, IndexLayout.Header.applied)
  }

  /// True if another file replaced this one (`install`). It finds nothing any more and must be reopened.
  package var isRetired: Bool { header.load(IndexLayout.Header.depth) == CheckedWord.retired }

  /// Size of the file in bytes.
  package var fileBytes: Int {
    get throws(StoreError) { try file.status().size }
  }

  /// True if the file has at least this many pages. It grows and never shrinks, so the size at opening mostly
  /// suffices, without a system call.
  func reaches(_ pages: Int) throws(StoreError) -> Bool {
    if try pages <= file.sizeAtOpening / MappedPages.pageBytes { return true }
    return try pages <= fileBytes / MappedPages.pageBytes
  }

  /// Visits the ref of each key, in no particular order. Only for the holder of the writers' mutex: a page
  /// that is split concurrently would be visited twice or in part.
  package func forEachRef(_ body: (_ place: UInt64) throws(StoreError) -> Void) throws(StoreError) {
    try forEachRef(part: 0, of: 1, body)
  }

  /// Visits the refs of one of `parts` parts with about the same number of keys.
  func forEachRef(
    part: Int, of parts: Int, _ body: (_ place: UInt64) throws(StoreError) -> Void
  ) throws(StoreError) {
    try forEachPage(part: part, of: parts) { (_, page) throws(StoreError) in
      for slot in 0..<IndexLayout.slots {
        let word = page.load(IndexLayout.Page.buckets + slot * 8)
        guard Slot.isOdd(word) else { throw damaged() }
        if Slot.isTaken(word) { try body(Slot.ref(word)) }
      }
    }
  }

  /// Visits the ref of each key with the stored bits of the key's hash (`HashParts.fingerprint`). Otherwise
  /// like `forEachRef`.
  func forEachEntry(
    _ body: (_ place: UInt64, _ fingerprint: UInt32) throws(StoreError) -> Void
  ) throws(StoreError) {
    try forEachPage { (_, page) throws(StoreError) in
      for bucket in 0..<IndexLayout.bucketCount {
        for slot in 0..<IndexLayout.slotsPerBucket {
          let word = page.load(Self.slotOffset(bucket, slot))
          guard Slot.isOdd(word) else { throw damaged() }
          guard Slot.isTaken(word) else { continue }
          let extra = SlotExtra(bits: page.loadShort(Self.extraOffset(bucket, slot)))
          guard extra.isSound, extra.displacement < IndexLayout.bucketCount else { throw damaged() }
          let home = (bucket + IndexLayout.bucketCount - extra.displacement) % IndexLayout.bucketCount
          let fingerprint = HashParts.fingerprint(
            tag: Slot.tag(word), splitBits: extra.splitBits, bucket: home)
          try body(Slot.ref(word), fingerprint)
        }
      }
    }
  }

  /// Visits each page of keys, overflow pages after theirs.
  func forEachPage(
    part: Int = 0, of parts: Int = 1, _ body: (UInt32, PageView) throws(StoreError) -> Void
  ) throws(StoreError) {
    let entries = 1 << (try self.depth())
    for index in UInt32(entries * part / parts)..<UInt32(entries * (part + 1) / parts) {
      var number = try page(try entry(index).load())
      guard try identity(of: pages.page(number), number).prefix == index else { continue }
      while true {
        let page = try pages.page(number)
        try body(number, page)
        guard let next = try overflow(page, number) else { break }
        number = next
      }
    }
  }

  // MARK: Slot words

  @inline(__always)
  static func slotOffset(_ bucket: Int, _ slot: Int) -> Int {
    IndexLayout.Page.buckets &+ bucket &* 64 &+ slot &* 8
  }

  @inline(__always)
  static func extraOffset(_ bucket: Int, _ slot: Int) -> Int {
    IndexLayout.Page.extras &+ bucket &* 16 &+ slot &* 2
  }

  @inline(__always)
  func entry(_ parts: HashParts, _ depthWord: UInt64) throws(StoreError) -> EntryView {
    guard let depth = CheckedWord.decodeDepth(depthWord) else { throw damaged() }
    return try entry(parts.entry(depth: depth))
  }

  @inline(__always)
  func entry(_ index: UInt32) throws(StoreError) -> EntryView {
    if let entry = pages.entry(index) { return entry }
    return try mappedEntry(index)
  }

  @inline(never)
  private func mappedEntry(_ index: UInt32) throws(StoreError) -> EntryView {
    let part = MappedPages.part(of: index)
    try pages.setPart(part, start: UInt32(try checkedWord(IndexLayout.Header.parts + 8 * part) & 0xFF_FFFF))
    guard let entry = pages.entry(index) else { throw damaged() }
    return entry
  }

  @inline(__always)
  func page(_ entry: UInt32) throws(StoreError) -> UInt32 {
    guard let page = CheckedWord.page(entry) else { throw damaged() }
    return page
  }

  /// The overflow page of page `number`; nil if there is none. It was allocated later, so its number is
  /// greater: following a link that violates this could loop for ever.
  @inline(never)
  func overflow(_ page: PageView, _ number: UInt32) throws(StoreError) -> UInt32? {
    let next = try checkedWord(IndexLayout.Page.overflow, of: page)
    guard next != 0 else { return nil }
    guard next > number, next < MappedPages.limit else { throw damaged() }
    return UInt32(next)
  }

  /// True if the page has an overflow page.
  func isLinked(_ page: PageView) throws(StoreError) -> Bool {
    try checkedWord(IndexLayout.Page.overflow, of: page) != 0
  }

  func depth() throws(StoreError) -> Int {
    guard let depth = CheckedWord.decodeDepth(header.load(IndexLayout.Header.depth)) else { throw damaged() }
    return depth
  }

  /// Number of keys in a page, and the number of hash bits that they share.
  @inline(__always)
  func head(of page: PageView) throws(StoreError) -> (count: Int, depth: Int) {
    let head = try checkedWord(IndexLayout.Page.head, of: page)
    let (count, depth) = (Int(head & 0xFFFF), Int(head >> 16))
    guard count <= IndexLayout.slots, depth <= IndexLayout.maximumDepth else { throw damaged() }
    return (count, depth)
  }

  /// The hash bits that the keys of page `number` share.
  func identity(of page: PageView, _ number: UInt32) throws(StoreError) -> (prefix: UInt32, depth: Int) {
    let identity = try checkedWord(IndexLayout.Page.identity, of: page)
    let depth = try head(of: page).depth
    let prefix = UInt32(identity >> 24 & 0xFF_FFFF)
    guard identity & 0xFF_FFFF == number, prefix >> UInt32(depth) == 0 else { throw damaged() }
    return (prefix, depth)
  }

  @inline(__always)
  func checkedWord(_ offset: Int) throws(StoreError) -> UInt64 { try checkedWord(offset, of: header) }

  @inline(__always)
  func checkedWord(_ offset: Int, of page: PageView) throws(StoreError) -> UInt64 {
    guard let value = CheckedWord.decode(page.load(offset)) else { throw damaged() }
    return value
  }

  /// Stores a word that readers or other processes can see.
  @inline(__always)
  func write(_ word: UInt64, to page: PageView, _ offset: Int) {
    page.store(word, at: offset)
    if let observer { observer() }
  }

  @inline(never)
  func damaged() -> StoreError {
    if isRetired {
      return StoreError(.closed, "another file took its place: open it again", path: file.path)
    }
    return StoreError(
      .damaged, "holds bytes that were never written: it is to be built anew", path: file.path)
  }
}
