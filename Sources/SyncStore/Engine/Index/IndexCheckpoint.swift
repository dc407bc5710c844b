/// Index checkpoint: what is needed to resume from the index without replaying the journal. It holds the last
/// position, sequence and stamp, the segments and their live bytes, and the refs of special records, those
/// that are more than a key's value. A mapped file next to the index, trusted exactly when the index is.
///
/// `schemas/ledger.md` is the byte map. Invariants: only the holder of the writers' mutex changes it; it is
/// valid up to the `applied` location of the index; a replay from there may find changes already made, and
/// repeats them.
final class IndexCheckpoint: Sendable {
  /// The file's name in the store's directory.
  static let fileName = "ledger"

  let pages: MappedPages
  let header: PageView
  private let file: any StorageFile
  /// Encrypts the digest, from which values could be guessed, if the store is encrypted.
  private let concealing: Secret?

  enum Field {
    static let magic = 0
    static let version = 8
    static let identity = 16
    static let checksum = 24
    static let position = 64
    static let sequence = 72
    static let clock = 80
    static let notes = 88
    static let segments = 96
    static let flags = 104
    static let digest = 112
    static let last = 136
    // A cache line of their own: each read loads it, only transactions change it.
    static let changes = 192
    static let pending = 200
    static let damage = 208
  }

  private static let magic: UInt64 = 0x4744_454C_434E_5953
  private static let version: UInt64 = 1
  private static let notesPerPage = 512
  static let segmentsPerPage = 256
  /// Limit on the segment slots that are assigned, in sequence, before the index must be rebuilt.
  static let segmentLimit = 1 << 18 - 1

  private init(_ file: any StorageFile, concealing: Secret?, writable: Bool) throws(StoreError) {
    pages = MappedPages(file, writable: writable)
    header = try pages.page(0)
    self.file = file
    self.concealing = concealing
  }

  /// The index checkpoint at `path`, if it belongs to the index of this identity; nil if it cannot be
  /// trusted.
  static func open(
    at path: String, _ storage: any Storage, identity: UInt64, concealing: Secret? = nil, writable: Bool
  ) throws(StoreError) -> IndexCheckpoint? {
    guard let file = try storage.openIfPresent(path, writable ? .readWrite : .readOnly),
      try file.sizeAtOpening >= firstBytes
    else { return nil }
    let checkpoint = try IndexCheckpoint(file, concealing: concealing, writable: writable)
    let header = checkpoint.header
    guard header.load(Field.magic) == magic, header.load(Field.version) == version,
      header.load(Field.identity) == identity, header.load(Field.checksum) == checksum(identity)
    else { return nil }
    return checkpoint
  }

  /// Creates an empty index checkpoint in an empty file.
  static func create(
    on file: any StorageFile, identity: UInt64, concealing: Secret? = nil
  ) throws(StoreError) -> IndexCheckpoint {
    try file.allocate(to: firstBytes)
    let checkpoint = try IndexCheckpoint(file, concealing: concealing, writable: true)
    let header = checkpoint.header
    for field in [Field.position, Field.sequence, Field.last, Field.notes, Field.segments] {
      header.store(CheckedWord.encode(0), at: field)
    }
    header.store(CheckedWord.encode(Flags.notesParked.rawValue), at: Field.flags)
    header.store(CheckedWord.withOddParity(0), at: Field.clock)
    header.store(version, at: Field.version)
    header.store(identity, at: Field.identity)
    header.store(checksum(identity), at: Field.checksum)
    header.store(magic, at: Field.magic)
    return checkpoint
  }

  /// Syncs the whole file.
  func sync() throws(StoreError) { try file.sync() }

  private static let firstBytes = Int(MappedPages.chunk(of: 0).upperBound) * MappedPages.pageBytes

  private static func checksum(_ identity: UInt64) -> UInt64 {
    var writer = ByteWriter()
    writer.write(magic)
    writer.write(version)
    writer.write(identity)
    return XXH3.hash64(writer.bytes, seed: 0)
  }

  // MARK: Counters

  /// The last position assigned.
  var position: UInt64 { get throws(StoreError) { try checkedWord(Field.position) } }
  /// The last sequence of the present actor.
  var sequence: UInt64 { get throws(StoreError) { try checkedWord(Field.sequence) } }
  /// A stamp at or just above the greatest one applied.
  var clock: Stamp {
    get throws(StoreError) {
      let word = header.load(Field.clock)
      guard Slot.isOdd(word) else { throw damaged() }
      return Stamp(rawValue: word & ~1)
    }
  }

  /// The ref of the last record; 0 if there is none yet.
  var last: UInt64 { get throws(StoreError) { try checkedWord(Field.last) } }

  /// Stores the last value of each. None of them may be trusted before `applied` of the index covers it.
  @inline(__always)
  func setCounters(position: UInt64, sequence: UInt64, clock: Stamp, last: UInt64) {
    header.store(CheckedWord.encode(last), at: Field.last)
    header.store(CheckedWord.encode(position), at: Field.position)
    header.store(CheckedWord.encode(sequence), at: Field.sequence)
    // Rounded up, which a clock always may be: the lowest bit is the parity of the rest.
    let stamp = clock.rawValue & 1 == 0 ? clock.rawValue : clock.rawValue &+ 1
    header.store(CheckedWord.withOddParity(stamp), at: Field.clock)
  }

  /// Facts about the store that never become false again.
  struct Flags: OptionSet {
    let rawValue: UInt64
    /// Some record had a deadline.
    static let deadlines = Flags(rawValue: 1)
    /// Some record was parked.
    static let parked = Flags(rawValue: 2)
    /// `parked` is set whenever a record is parked: older programs did not set it.
    static let notesParked = Flags(rawValue: 4)
  }

  var flags: Flags { get throws(StoreError) { Flags(rawValue: try checkedWord(Field.flags)) } }

  func set(_ flags: Flags) throws(StoreError) {
    let before = try self.flags
    if !before.isSuperset(of: flags) {
      header.store(CheckedWord.encode(before.union(flags).rawValue), at: Field.flags)
    }
  }

  /// True if damage was found in the journal. Then the next opening scans the whole journal.
  var isDamageFound: Bool { header.load(Field.damage) != 0 }

  /// Records that damage was found. Any process with write access may call it.
  func setDamageFound() { header.store(1, at: Field.damage) }

  // MARK: Running digest

  /// True if the running digest is maintained.
  @inline(__always)
  var keepsDigest: Bool { header.load(Field.digest + 16) != 0 }

  /// The running digest, if it is maintained and is that of the journal up to `applied`.
  func digest(at applied: UInt64) -> StateDigest? {
    let stored = stored
    return header.load(Field.digest + 16) == Self.check(stored, applied) ? concealed(stored) : nil
  }

  /// Starts maintaining the running digest, or stops with nil, for an unknown digest.
  func setDigest(_ digest: StateDigest?, at applied: UInt64) {
    if let digest { changeDigest { $0 = digest } }
    header.store(digest == nil ? 0 : Self.check(stored, applied), at: Field.digest + 16)
  }

  /// Changes the running digest. It is valid again after `moveDigest`.
  func changeDigest(_ change: (inout StateDigest) -> Void) {
    var changed = concealed(stored)
    change(&changed)
    let words = concealing.map { AES256Block.encrypt((changed.high, changed.low), $0) }
    header.store(words?.0 ?? changed.high, at: Field.digest)
    header.store(words?.1 ?? changed.low, at: Field.digest + 8)
  }

  /// Declares the running digest valid for the journal up to `applied`.
  @inline(__always)
  func moveDigest(to applied: UInt64) {
    if keepsDigest { header.store(Self.check(stored, applied), at: Field.digest + 16) }
  }

  /// The digest as stored, possibly encrypted.
  private var stored: StateDigest {
    StateDigest(high: header.load(Field.digest), low: header.load(Field.digest + 8))
  }

  private func concealed(_ stored: StateDigest) -> StateDigest {
    guard let concealing else { return stored }
    let words = AES256Block.decrypt((stored.high, stored.low), concealing)
    return StateDigest(high: words.0, low: words.1)
  }

  /// A check word that changes with any single flipped bit of the three words; never 0.
  @inline(__always)
  private static func check(_ digest: StateDigest, _ applied: UInt64) -> UInt64 {
    let low = digest.low &* 0xC2B2_AE3D_27D4_EB4F
    let words = digest.high &* 0x9E37_79B1_85EB_CA87 ^ (low << 17 | low >> 47) ^ applied
    return words == 0 ? 1 : words
  }

  // MARK: Seqlock

  /// Seqlock for changes of several keys: a read of the index is consistent if it was even, and the same
  /// before and after.
  @inline(__always)
  var seqlock: UInt64 { header.load(Field.changes) }

  /// Where the records begin that are being indexed; nil if there are none.
  var pending: Location? {
    let packed = header.load(Field.pending)
    return packed == 0 ? nil : Location(packed: packed)
  }

  /// Marks the index as possibly holding only a part of the changes from `start` on.
  func beginWrite(from start: Location) {
    header.store(start.packed, at: Field.pending)
    header.store(seqlock | 1, at: Field.changes)
  }

  /// Marks those changes as complete.
  func endWrite() {
    guard seqlock & 1 != 0 else { return }
    header.store(seqlock &+ 1, at: Field.changes)
    header.store(0, at: Field.pending)
  }

  // MARK: Segments

  /// Number of segment slots assigned.
  var segmentCount: Int { get throws(StoreError) { Int(try checkedWord(Field.segments)) } }

  /// The segment numbers in these slots.
  func segments(in slots: Range<Int>) throws(StoreError) -> [UInt32] {
    var numbers: [UInt32] = []
    while numbers.count < slots.count {
      let slot = slots.lowerBound + numbers.count
      let (page, offset) = try counterPosition(ofSegment: slot)
      let end = min(slots.upperBound, slot - slot % Self.segmentsPerPage + Self.segmentsPerPage)
      for distance in 0..<end - slot {
        numbers.append(UInt32(truncatingIfNeeded: try checkedWord(offset + distance * 16, of: page)))
      }
    }
    return numbers
  }

  /// Assigns the next slot to a segment; nil if there are no more.
  func add(segment number: UInt32, live: Int) throws(StoreError) -> Int? {
    let slot = try segmentCount
    guard slot < Self.segmentLimit else { return nil }
    try pages.allocate(Self.page(ofSegment: slot))
    let (page, offset) = try counterPosition(ofSegment: slot)
    page.store(UInt64(UInt(bitPattern: live)), at: offset + 8)
    page.store(CheckedWord.encode(UInt64(number)), at: offset)
    header.store(CheckedWord.encode(UInt64(slot) + 1), at: Field.segments)
    return slot
  }

  /// The live-byte counter of a segment.
  func liveByteCounter(_ slot: Int) throws(StoreError) -> LiveByteCounter {
    let (page, offset) = try counterPosition(ofSegment: slot)
    return LiveByteCounter(page: page, offset: offset + 8)
  }

  private static func page(ofSegment slot: Int) -> UInt32 { UInt32(1 + 3 * (slot / segmentsPerPage)) }

  private func counterPosition(ofSegment slot: Int) throws(StoreError) -> (PageView, Int) {
    guard slot >= 0, slot < Self.segmentLimit else { throw damaged() }
    return (try pages.page(Self.page(ofSegment: slot)), slot % Self.segmentsPerPage * 16)
  }

  // MARK: Special records

  /// Number of special records, and marks of installed compactions.
  var specialRecordCount: Int { get throws(StoreError) { try notes.count } }

  /// The stored refs of special records.
  struct SpecialRecords {
    /// Refs of records that are more than a key's value, in the order in which they were added.
    var refs: [UInt64] = []
    /// The count of the last compaction whose copy is installed completely: nothing refers any more to what
    /// it replaced.
    var installedCompaction: UInt32 = 0
  }

  /// Above all refs: such a word holds a count of compactions.
  private static let installedCompactionMark: UInt64 = 1 << 48

  func specialRecords() throws(StoreError) -> SpecialRecords {
    while true {
      let (count, round) = try notes
      var noted = SpecialRecords()
      for index in 0..<count {
        let page = try pages.page(Self.page(ofNote: index, round))
        let note = try checkedWord(Self.offset(ofNote: index), of: page)
        if note < Self.installedCompactionMark {
          noted.refs.append(note)
        } else {
          noted.installedCompaction = UInt32(truncatingIfNeeded: note)
        }
      }
      // Another process may have rewritten the list concurrently, and again in the same pages.
      if try notes.round == round { return noted }
    }
  }

  /// Adds a ref to the list.
  func addSpecialRecord(_ place: UInt64) throws(StoreError) {
    let (count, round) = try notes
    try store(place, as: count, round)
    header.store(Self.notes(count + 1, round), at: Field.notes)
  }

  /// Replaces the whole list: the new one is complete before it becomes valid.
  func replaceSpecialRecords(_ notes: SpecialRecords) throws(StoreError) {
    let round = (try self.notes.round + 1) & 0xFF_FFFF
    let all = [Self.installedCompactionMark | UInt64(notes.installedCompaction)] + notes.refs
    for (index, note) in all.enumerated() { try store(note, as: index, round) }
    header.store(Self.notes(all.count, round), at: Field.notes)
  }

  private func store(_ place: UInt64, as index: Int, _ round: Int) throws(StoreError) {
    let number = Self.page(ofNote: index, round)
    if index.isMultiple(of: Self.notesPerPage) { try pages.allocate(number) }
    try pages.page(number).store(CheckedWord.encode(place), at: Self.offset(ofNote: index))
  }

  /// Number of entries, and how often the list was rewritten: even and odd rounds have pages of their own.
  private var notes: (count: Int, round: Int) {
    get throws(StoreError) {
      let word = try checkedWord(Field.notes)
      return (Int(word & 0xFFFF_FFFF), Int(word >> 32))
    }
  }

  private static func notes(_ count: Int, _ round: Int) -> UInt64 {
    CheckedWord.encode(UInt64(count) | UInt64(round) << 32)
  }
  private static func page(ofNote index: Int, _ round: Int) -> UInt32 {
    UInt32(2 + (round & 1) + 3 * (index / notesPerPage))
  }
  private static func offset(ofNote index: Int) -> Int { index % notesPerPage * 8 }

  // MARK: Words

  @inline(__always)
  private func checkedWord(_ offset: Int) throws(StoreError) -> UInt64 { try checkedWord(offset, of: header) }

  @inline(__always)
  private func checkedWord(_ offset: Int, of page: PageView) throws(StoreError) -> UInt64 {
    guard let value = CheckedWord.decode(page.load(offset)) else { throw damaged() }
    return value
  }

  @inline(never)
  private func damaged() -> StoreError {
    StoreError(.damaged, "holds bytes that were never written: it is to be built anew", path: file.path)
  }
}
