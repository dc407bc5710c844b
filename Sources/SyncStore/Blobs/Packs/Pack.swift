internal import Synchronization

/// An open pack. Thread safe; one process adds to it, any number read and remove.
///
/// Invariants: an entry is complete before `count` covers it; everything below `durable` was synced; an
/// object's bytes never change, and of its entry only the word; a word that is not live never becomes live
/// again.
final class Pack: Sendable {
  let header: PackHeader
  /// Relative to the directory of the tier.
  let name: String
  let file: any StorageFile
  let table: Mapping
  let isWritable: Bool
  private let contents = LockedField<Mapping?>(nil, rank: .packContents)
  /// Lower bound of *count*, derived from valid entries in the table: no checksum guards *count*. 0 if
  /// *count* is right.
  private let leastCount = Atomic(0)
  /// Whether its directory entry is known to be durable.
  let isNamed = Atomic(false)
  let headerState: HeaderState

  /// State of the two copies of a pack's header.
  enum HeaderState: Sendable {
    case intact
    /// One copy is damaged and could not be rewritten.
    case damaged
  }

  init(
    _ header: PackHeader, name: String, file: any StorageFile, isWritable: Bool,
    headerState: HeaderState = .intact
  ) throws(StoreError) {
    (self.header, self.name, self.file, self.isWritable) = (header, name, file, isWritable)
    self.headerState = headerState
    table = try file.map(0..<header.tableBytes, writable: isWritable)
    let count = count
    // Entries are contiguous: if the one after the last is void, there are no more.
    guard count < header.slots, !isVoid(count) else { return }
    leastCount.store(entryCount(atLeast: count), ordering: .relaxed)
  }

  /// Whether both refer to the same file, which may have been closed and reopened.
  func isSame(as other: Pack) -> Bool { header.number == other.header.number }

  static func name(_ number: UInt64) -> String {
    let digits = String(number, radix: 16)
    return "packs/" + String(repeating: "0", count: 16 - digits.count) + digits + ".pack"
  }

  /// The number in a name made by `name(_:)`; nil for any other name.
  static func number(_ last: String) -> UInt64? {
    guard last.utf8.count == 21, last.hasSuffix(".pack"), let number = UInt64(last.prefix(16), radix: 16),
      name(number) == "packs/" + last, number <= PackLayout.greatestNumber
    else { return nil }
    return number
  }

  // MARK: Words

  private func load(_ offset: Int) -> UInt64 { table.withAtomic(offset) { $0.load(ordering: .acquiring) } }
  private func store(_ value: UInt64, _ offset: Int) {
    table.withAtomic(offset) { $0.store(value, ordering: .releasing) }
  }

  /// Number of entries.
  var count: Int {
    get {
      let stored = min(Int(truncatingIfNeeded: load(PackLayout.count) & 0xFFFF_FFFF), header.slots)
      return max(stored, leastCount.load(ordering: .relaxed))
    }
    set { store(UInt64(newValue), PackLayout.count) }
  }
  /// Number of entries known to be durable.
  var durable: Int {
    get { min(Int(truncatingIfNeeded: load(PackLayout.durable) & 0xFFFF_FFFF), count) }
    set { store(UInt64(newValue), PackLayout.durable) }
  }
  var isClosed: Bool { load(PackLayout.state) & PackLayout.closedState != 0 }
  /// Whether a sync of it failed, or its mapping has a fault.
  var hasFailed: Bool { hasMappingFault || load(PackLayout.state) & PackLayout.failedState != 0 }
  /// Whether the kernel refused a page of the table (F26, F28), or the file was truncated (F38).
  ///
  /// Stores since then are visible through this mapping alone, and the previous content reads as zeros.
  var hasMappingFault: Bool { table.fault != nil }
  /// The error for operations that need the table.
  var mappingFaultError: StoreError {
    StoreError(
      .poisoned,
      "a page of its table cannot be written: close the store, make room or check the disk, and open it again",
      path: file.path)
  }
  func setState(_ bit: UInt64) { store(load(PackLayout.state) | bit, PackLayout.state) }
  var boot: UInt64 {
    get { load(PackLayout.boot) }
    set { store(newValue, PackLayout.boot) }
  }

  /// Index after the last entry from `count` on whose checksum is valid; `count` if there is none.
  func entryCount(atLeast count: Int) -> Int {
    (count..<header.slots).last { isValid($0) || isRepairable($0) }.map { $0 + 1 } ?? count
  }

  private var isGuarded: Bool { header.version >= PackLayout.guardedVersion }

  func word(_ slot: Int) -> PackWord {
    PackWord(bits: load(PackLayout.offset(slot) + 48), isGuarded: isGuarded)
  }

  /// A word in the format of this pack.
  func newWord(stamp: UInt64, _ state: PackWord.State) -> PackWord {
    PackWord(stamp: stamp, state, isGuarded: isGuarded)
  }

  func setWord(_ word: PackWord, _ slot: Int) { store(word.bits, PackLayout.offset(slot) + 48) }

  /// Replaces `old` with `new`. False if the word was changed concurrently.
  func exchange(_ old: PackWord, by new: PackWord, _ slot: Int) -> Bool {
    table.withAtomic(PackLayout.offset(slot) + 48) {
      $0.compareExchange(expected: old.bits, desired: new.bits, ordering: .acquiringAndReleasing).exchanged
    }
  }

  /// Raises the stamp of a live object. False if it is no longer live.
  ///
  /// With `strictly` the stamp changes even if the clock is behind it: an eviction or sweep that listed the
  /// object earlier sees that it was used since.
  @discardableResult
  func raiseStamp(of slot: Int, to: UInt64, strictly: Bool = false) -> Bool {
    while true {
      let old = word(slot)
      guard old.isLive else { return false }
      guard isWritable else { return true }
      let new = strictly && old.stamp < PackLayout.greatestStamp ? max(to, old.stamp + 1) : to
      if old.stamp >= new, !old.hasFlippedBits { return true }
      // Rewrite a word with flipped bits, so that the next flipped bit finds all marks intact.
      if exchange(old, by: newWord(stamp: max(new, old.stamp), .live), slot) { return true }
    }
  }

  /// Removes an object whose stamp is below `limit`. False if it is not, or the object is gone.
  @discardableResult
  func remove(_ slot: Int, below limit: UInt64 = .max) -> Bool {
    while true {
      let old = word(slot)
      guard old.isLive, old.stamp < limit else { return false }
      if exchange(old, by: newWord(stamp: old.stamp, .removed), slot) { return true }
    }
  }

  /// Rewrites a word with flipped bits as its majority value.
  func repairWord(_ slot: Int) {
    let old = word(slot)
    guard isWritable, old.hasFlippedBits else { return }
    // If another thread or process has changed it since, its marks are right again.
    _ = exchange(old, by: newWord(stamp: old.stamp, old.state), slot)
  }

  // MARK: Entries

  /// The first eight bytes of a name: the key of the index.
  func prefix(_ slot: Int) -> UInt64 { table.load(PackLayout.offset(slot)) }

  func isNamed(_ name: BlobHash, _ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    return table.equals(start..<start + 32, name.bytes.span)
  }

  private func entryChecksum(_ start: Int) -> UInt64 {
    table.withBytes(start..<start + 48) { XXH3.hash64($0, seed: header.salt) }
  }

  /// Whether the slot holds a valid entry.
  func isValid(_ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    let size = Int(table.load(start + 36, as: UInt32.self) & 0x0FFF_FFFF)
    let offset = Int(table.load(start + 32, as: UInt32.self)) * PackLayout.alignment
    return table.load(start + 56, as: UInt64.self) == entryChecksum(start) && offset >= header.tableBytes
      && offset + size <= header.size
  }

  /// The entry with its single flipped bit corrected; nil if it is valid, void, or has more damage.
  ///
  /// A false match is negligible: 448 of 2^64 checksums count.
  private func repaired(_ slot: Int) -> [UInt8]? {
    guard !isValid(slot), !isVoid(slot) else { return nil }
    let start = PackLayout.offset(slot)
    var bytes = table.bytes(start..<start + 48)
    let stored = table.load(start + 56, as: UInt64.self)
    if (XXH3.hash64(bytes, seed: header.salt) ^ stored).nonzeroBitCount == 1 { return bytes }
    for bit in 0..<bytes.count * 8 {
      bytes[bit / 8] ^= 1 << (bit % 8)
      if XXH3.hash64(bytes, seed: header.salt) == stored { return bytes }
      bytes[bit / 8] ^= 1 << (bit % 8)
    }
    return nil
  }

  private func isRepairable(_ slot: Int) -> Bool { repaired(slot) != nil }

  /// Corrects one flipped bit of an entry. False if it is valid, or beyond repair.
  func repair(_ slot: Int) -> Bool {
    guard isWritable, !hasMappingFault, let bytes = repaired(slot) else { return false }
    let start = PackLayout.offset(slot)
    table.store(bytes, at: start)
    table.store(entryChecksum(start), at: start + 56)
    return isValid(slot)
  }

  /// Whether the slot is all zeros: never written, or lost in a power failure before it was durable.
  func isVoid(_ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    return table.lastNonZero(start..<start + PackLayout.entryBytes) == nil
  }

  /// Size of an object in bytes.
  func size(_ slot: Int) -> Int {
    Int(table.load(PackLayout.offset(slot) + 36, as: UInt32.self) & 0x0FFF_FFFF)
  }

  /// Whether the object is encrypted, live or not.
  func isEncryptedObject(_ slot: Int) -> Bool {
    table.load(PackLayout.offset(slot) + 36, as: UInt32.self) & 1 << 28 != 0
  }

  /// The entry of a slot; nil if it is damaged.
  func entry(_ slot: Int) -> PackEntry? {
    guard slot < header.slots, isValid(slot) else { return nil }
    let start = PackLayout.offset(slot)
    guard let name = BlobHash(bytes: table.bytes(start..<start + 32)) else { return nil }
    return PackEntry(
      name: name, offset: Int(table.load(start + 32, as: UInt32.self)) * PackLayout.alignment,
      size: size(slot), isEncrypted: isEncryptedObject(slot), checksum: table.load(start + 40))
  }

  /// Appends an entry. The caller must hold the lock of the pack.
  func publish(_ entry: PackEntry, stamp: UInt64) {
    let slot = count
    let start = PackLayout.offset(slot)
    table.store(entry.encoded, at: start)
    table.store(entryChecksum(start), at: start + 56)
    store(newWord(stamp: stamp, .live).bits, start + 48)
    count = slot + 1
  }

  // MARK: Objects

  /// Mapping of the objects; nil if the file system no longer permits mappings.
  private func mapped() throws(StoreError) -> Mapping? {
    try contents.withLock { contents throws(StoreError) in
      if let contents { return contents }
      let end = min(try file.status().size, header.size)
      guard end > header.tableBytes else { throw truncatedError }
      do throws(StoreError) {
        contents = try file.map(header.tableBytes..<end, writable: false)
      } catch {
        // A file system that turned read-only in use (F34) can still be read.
        guard error.code == .readOnly else { throw error }
      }
      return contents
    }
  }

  private var truncatedError: StoreError {
    StoreError(.damaged, "was cut short: run `Store.verify`", path: file.path)
  }

  /// Calls `body` with the bytes of an object in place, unverified; they are valid only during `body`.
  ///
  /// - Throws: `.damaged` if bytes are missing; `.inputOutput` if the disk fails while they are read.
  func withBytes<Result>(
    _ entry: PackEntry, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    guard let mapping = try mapped() else { return try withCopy(entry, body) }
    let start = entry.offset - header.tableBytes
    guard start >= 0, start + entry.size <= mapping.count else { throw truncatedError }
    let result = try mapping.withBytes(start..<start + entry.size) { bytes throws(StoreError) in
      try body(bytes)
    }
    switch mapping.fault {
    case nil: return result
    case .truncated: throw truncatedError
    case .refused: throw StoreError(.inputOutput, "cannot be read: check the disk", path: file.path)
    }
  }

  private func withCopy<Result>(
    _ entry: PackEntry, _ body: (RawSpan) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    let bytes = try file.read(entry.size, at: entry.offset)
    guard bytes.count == entry.size else { throw truncatedError }
    let copy = Mapping.heap(bytes.count)
    copy.store(bytes, at: 0)
    return try copy.withBytes(0..<bytes.count) { bytes throws(StoreError) in try body(bytes) }
  }

  /// Whether the bytes match the checksum from the put.
  func isWhole(_ entry: PackEntry) throws(StoreError) -> Bool {
    do throws(StoreError) {
      return try withBytes(entry) { XXH3.hash64($0, seed: 0) } == entry.checksum
    } catch {
      guard error.code == .damaged else { throw error }
      return false
    }
  }

  /// Offset after the last object named by an entry.
  var end: Int {
    var end = header.tableBytes
    for slot in 0..<count {
      guard let entry = entry(slot) else { continue }
      end = max(end, PackLayout.aligned(entry.offset + entry.size))
    }
    return end
  }

  /// Number of live objects, and their bytes.
  var live: (count: Int, bytes: Int) {
    var live = (count: 0, bytes: 0)
    for slot in 0..<count where word(slot).isLive {
      live = (live.count + 1, live.bytes + size(slot))
    }
    return live
  }
}
