internal import Synchronization

/// One pack that is open. Thread safe; one process adds to it, any number reads and removes.
///
/// Invariants: an entry is complete before `count` covers it; what `durable` covers was synced; an object's bytes never
/// change, and its entry only in its word; a word that is not live never becomes live again.
final class Pack: Sendable {
  let header: PackHeader
  /// Relative to the directory of the tier.
  let name: String
  let file: any StorageFile
  let table: Mapping
  let isWritable: Bool
  /// Is one of the two copies of its header damaged, and could not be written anew?
  let isHeaderDamaged: Bool
  private let contents = LockedField<Mapping?>(nil)
  /// Entries that the table shows to be there, whatever *count* says: no checksum guards that. 0 if *count* is right.
  private let leastCount = Atomic(0)
  /// Is its name known to be durable?
  let isNamed = Atomic(false)

  init(
    _ header: PackHeader, name: String, file: any StorageFile, isWritable: Bool, isHeaderDamaged: Bool = false
  ) throws(StoreError) {
    (self.header, self.name, self.file, self.isWritable) = (header, name, file, isWritable)
    self.isHeaderDamaged = isHeaderDamaged
    table = try file.map(0..<header.tableBytes, writable: isWritable)
    let count = count
    // Entries follow each other without a gap: where the one after the last is void, there is none.
    guard count < header.slots, !isVoid(count) else { return }
    leastCount.store(entryCount(atLeast: count), ordering: .relaxed)
  }

  /// Are both of one file? It may have been closed and opened again.
  func isSame(as other: Pack) -> Bool { header.number == other.header.number }

  static func name(_ number: UInt64) -> String {
    let digits = String(number, radix: 16)
    return "packs/" + String(repeating: "0", count: 16 - digits.count) + digits + ".pack"
  }

  /// The number in a name that `name(_:)` made; nil for any other.
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

  /// Entries that are there.
  var count: Int {
    get {
      let stored = min(Int(truncatingIfNeeded: load(PackLayout.count) & 0xFFFF_FFFF), header.slots)
      return max(stored, leastCount.load(ordering: .relaxed))
    }
    set { store(UInt64(newValue), PackLayout.count) }
  }
  /// Entries that are known durable.
  var durable: Int {
    get { min(Int(truncatingIfNeeded: load(PackLayout.durable) & 0xFFFF_FFFF), count) }
    set { store(UInt64(newValue), PackLayout.durable) }
  }
  var isClosed: Bool { load(PackLayout.state) & PackLayout.closedState != 0 }
  /// Was a sync of it an error, or is it cut off?
  var hasFailed: Bool { hasMappingFault || load(PackLayout.state) & PackLayout.failedState != 0 }
  /// Did the kernel refuse a page of the table (F26, F28), or is the file shorter than it was (F38)? What was stored there since is
  /// seen through this mapping alone, and zeros stand for what was there before.
  var hasMappingFault: Bool { table.fault != nil }
  /// The error of who needs the table.
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

  /// After the last entry whose checksum is right; `count` if there is none from there on.
  func entryCount(atLeast count: Int) -> Int {
    (count..<header.slots).last { isValid($0) || isRepairable($0) }.map { $0 + 1 } ?? count
  }

  private var isGuarded: Bool { header.version >= PackLayout.guardedVersion }

  func word(_ slot: Int) -> PackWord {
    PackWord(bits: load(PackLayout.offset(slot) + 48), isGuarded: isGuarded)
  }

  /// The word of an entry of this pack.
  func newWord(stamp: UInt64, isLive: Bool) -> PackWord {
    PackWord(stamp: stamp, isLive: isLive, isGuarded: isGuarded)
  }

  func setWord(_ word: PackWord, _ slot: Int) { store(word.bits, PackLayout.offset(slot) + 48) }

  /// Puts `new` in the place of `old`. False if it is another one by now.
  func exchange(_ old: PackWord, by new: PackWord, _ slot: Int) -> Bool {
    table.withAtomic(PackLayout.offset(slot) + 48) {
      $0.compareExchange(expected: old.bits, desired: new.bits, ordering: .acquiringAndReleasing).exchanged
    }
  }

  /// Lifts the stamp of a live object. False if it is none any more. With `isRising` the stamp is another one after this also where the
  /// clock stands behind it: who has listed the object before sees that somebody counts on it.
  @discardableResult
  func raiseStamp(of slot: Int, to: UInt64, strictly: Bool = false) -> Bool {
    while true {
      let old = word(slot)
      guard old.isLive else { return false }
      guard isWritable else { return true }
      let new = strictly && old.stamp < PackLayout.greatestStamp ? max(to, old.stamp + 1) : to
      if old.stamp >= new, !old.hasFlippedBits { return true }
      // One in doubt is written anew, so that the next flipped bit finds all its marks.
      if exchange(old, by: newWord(stamp: max(new, old.stamp), isLive: true), slot) { return true }
    }
  }

  /// Removes an object that was counted on last with a stamp below `limit`. False if it was not, or is gone.
  @discardableResult
  func remove(_ slot: Int, below limit: UInt64 = .max) -> Bool {
    while true {
      let old = word(slot)
      guard old.isLive, old.stamp < limit else { return false }
      if exchange(old, by: newWord(stamp: old.stamp, isLive: false), slot) { return true }
    }
  }

  /// Writes a word in doubt as what it is taken for.
  func repairWord(_ slot: Int) {
    let old = word(slot)
    guard isWritable, old.hasFlippedBits else { return }
    // Where somebody else has changed it meanwhile, its marks are right again.
    _ = exchange(old, by: newWord(stamp: old.stamp, isLive: old.isLive), slot)
  }

  // MARK: Entries

  /// The first eight bytes of a name: what the index goes by.
  func prefix(_ slot: Int) -> UInt64 { table.load(PackLayout.offset(slot)) }

  func isNamed(_ name: BlobHash, _ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    return table.equals(start..<start + 32, name.bytes.span)
  }

  private func entryChecksum(_ start: Int) -> UInt64 {
    table.withBytes(start..<start + 48) { XXH3.hash64($0, seed: header.salt) }
  }

  /// Is what stands there an entry?
  func isValid(_ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    let size = Int(table.load(start + 36, as: UInt32.self) & 0x0FFF_FFFF)
    let offset = Int(table.load(start + 32, as: UInt32.self)) * PackLayout.alignment
    return table.load(start + 56, as: UInt64.self) == entryChecksum(start) && offset >= header.tableBytes
      && offset + size <= header.size
  }

  /// The entry with the one bit turned back that was flipped in it; nil if it is whole, void, or more was changed. No other entry
  /// has the same checksum: 448 of 2^64 values count.
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

  /// Turns back one flipped bit of an entry. False if it is whole, or cannot be made so.
  func repair(_ slot: Int) -> Bool {
    guard isWritable, !hasMappingFault, let bytes = repaired(slot) else { return false }
    let start = PackLayout.offset(slot)
    table.store(bytes, at: start)
    table.store(entryChecksum(start), at: start + 56)
    return isValid(slot)
  }

  /// Was it lost with the power, before it was durable?
  func isVoid(_ slot: Int) -> Bool {
    let start = PackLayout.offset(slot)
    return table.lastNonZero(start..<start + PackLayout.entryBytes) == nil
  }

  /// Bytes of an object.
  func size(_ slot: Int) -> Int {
    Int(table.load(PackLayout.offset(slot) + 36, as: UInt32.self) & 0x0FFF_FFFF)
  }

  /// Is the object sealed, be it live or dead?
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

  /// Adds an entry behind the others: only for the one that has the pack locked.
  func publish(_ entry: PackEntry, stamp: UInt64) {
    let slot = count
    let start = PackLayout.offset(slot)
    table.store(entry.encoded, at: start)
    table.store(entryChecksum(start), at: start + 56)
    store(newWord(stamp: stamp, isLive: true).bits, start + 48)
    count = slot + 1
  }

  // MARK: Objects

  /// The objects, mapped; nil where the file system maps nothing any more.
  private func mapped() throws(StoreError) -> Mapping? {
    try contents.withLock { contents throws(StoreError) in
      if let contents { return contents }
      let end = min(try file.status().size, header.size)
      guard end > header.tableBytes else { throw truncatedError }
      do throws(StoreError) {
        contents = try file.map(header.tableBytes..<end, writable: false)
      } catch {
        // One that has turned read-only in use (F34) can still be read.
        guard error.code == .readOnly else { throw error }
      }
      return contents
    }
  }

  private var truncatedError: StoreError {
    StoreError(.damaged, "was cut short: run `Store.verify`", path: file.path)
  }

  /// The bytes of an object in place, unverified, for the time of `body`.
  ///
  /// - Throws: `.damaged` if they are not all there; `.inputOutput` if the disk fails under them.
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

  /// Are the bytes what they were when they were put?
  func isWhole(_ entry: PackEntry) throws(StoreError) -> Bool {
    do throws(StoreError) {
      return try withBytes(entry) { XXH3.hash64($0, seed: 0) } == entry.checksum
    } catch {
      guard error.code == .damaged else { throw error }
      return false
    }
  }

  /// Behind the last object that an entry names.
  var end: Int {
    var end = header.tableBytes
    for slot in 0..<count {
      guard let entry = entry(slot) else { continue }
      end = max(end, PackLayout.aligned(entry.offset + entry.size))
    }
    return end
  }

  /// Live objects, and their bytes.
  var live: (count: Int, bytes: Int) {
    var live = (count: 0, bytes: 0)
    for slot in 0..<count where word(slot).isLive {
      live = (live.count + 1, live.bytes + size(slot))
    }
    return live
  }
}
