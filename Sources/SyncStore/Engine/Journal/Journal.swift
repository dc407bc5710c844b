/// The segments of one store, as one engine has mapped them. Protected by the engine's lock.
///
/// Invariants: the segment numbers covered are dense and ascending; each header names its predecessor's salt;
/// only the holder of the writers' mutex appends or begins a segment; the last segment is never a compacted
/// one.
struct Journal {
  let directory: String
  let environment: Environment
  let store: StoreID
  let writable: Bool
  /// The keys of the segments.
  let keys: JournalKeys
  var segments: [Segment] = []
  /// Finds segments by number, including those that compaction replaced and that are still being read.
  var table = SegmentTable()
  private(set) var replaced = ReplacedSegments()
  /// Segments that compaction has written but not installed yet.
  private(set) var uninstalled: [Segment] = []
  /// The next segment, if this process has prepared it.
  var prepared: PreparedSegment?
  /// Set while a compaction of this process uses the reserve's part for its copy.
  let copyHold: CopyReserveFlag
  /// Upper bound in bytes for the size of a new tail segment; sizes double up to it.
  let largestSegment: Int
  /// End of the records according to the index; nil if unknown. Shows how much a truncated last segment has
  /// lost.
  var knownEnd: Location?

  /// Bytes of the first segment, unless `largestSegment` is smaller.
  static let firstSegment = 1 << 20
  /// Segment sizes are multiples of this many bytes.
  static let smallestSegment = 64 << 10
  var preparedPath: String { directory + "/next" }
  /// File that compaction writes to.
  var compactingPath: String { directory + "/next.compacted" }

  init(
    directory: String, environment: Environment, store: StoreID, writable: Bool, largestSegment: Int,
    keys: JournalKeys, copyHold: CopyReserveFlag = CopyReserveFlag()
  ) {
    self.copyHold = copyHold
    (self.directory, self.environment, self.store) = (directory, environment, store)
    (self.writable, self.largestSegment, self.keys) = (writable, largestSegment, keys)
  }

  /// A copy of this journal with nothing mapped.
  func emptied() -> Journal {
    Journal(
      directory: directory, environment: environment, store: store, writable: writable,
      largestSegment: largestSegment, keys: keys, copyHold: copyHold)
  }

  // MARK: Segment lookup

  /// The segment of that number, also if compaction has replaced it and it is still being read; nil if not
  /// mapped.
  @inline(__always)
  func segment(_ number: UInt32) -> Segment? { table[number] }

  /// The index of the segment of that number among `segments`; nil if it is not there.
  func index(of number: UInt32) -> Int? {
    // Fast path: every append looks up the last segment.
    if let last = segments.last, last.number == number { return segments.count - 1 }
    return segments.lastIndex { $0.number == number }
  }

  /// The end of the records of the segment at `place`, from its own header or the next one's; nil for the
  /// last segment, unless its file was truncated.
  func closedLength(at place: Int) -> Int? {
    let own = segments[place].header.closedLength
    if own > 0 { return Int(own) }
    guard place + 1 < segments.count else { return segments[place].defects.truncatedEnd }
    return Int(segments[place + 1].header.predecessor.length)
  }

  /// True if `left` precedes `right` in the journal. Segment numbers do not show the order once compaction
  /// has run.
  func precedes(_ left: Location, _ right: Location) -> Bool {
    guard left.segment != right.segment else { return left.offset < right.offset }
    return (index(of: left.segment) ?? -1) < (index(of: right.segment) ?? -1)
  }

  /// The record at `location`, with its checksum verified.
  ///
  /// - Throws: `.damaged` if the record is not whole any more.
  func record(at location: Location) throws(StoreError) -> RecordView {
    guard let segment = segment(location.segment),
      let view = segment.record(at: location.offset, limit: segment.mapping.count)
    else {
      if let error = segment(location.segment)?.faultError { throw error }
      throw StoreError(
        .damaged,
        "the record at offset \(location.offset) does not match its checksum: run `Store.verify`",
        path: path(of: location.segment))
    }
    return view
  }

  /// The path of the segment of that number, whether or not its file exists.
  func path(of number: UInt32) -> String {
    directory + "/" + (table[number]?.header.name ?? SegmentName(number)).text
  }

  /// Total size of all segment files, in bytes.
  var fileBytes: Int { segments.reduce(0) { $0 + $1.mapping.count } }

  // MARK: Loading

  /// Maps all segments of the directory. The last one may be blank (a power loss cut off its beginning): then
  /// it is left out and its number returned.
  mutating func load() throws(StoreError) -> UInt32? {
    try load(SegmentName.chain(of: SegmentName.all(in: directory, environment.storage), from: 1))
  }

  /// Loads like `load()`, but takes the segments that a compaction replaced instead of its copy if that
  /// compaction is later than `adopted`, the last one that the index has adopted. `files` are the names in
  /// the directory.
  ///
  /// Sets `isUnfinished` if there are such segments, or leftovers to remove.
  mutating func loadUnfinished(
    _ files: [String], adopted: UInt32, _ isUnfinished: inout Bool
  ) throws(StoreError) -> UInt32? {
    let names = try SegmentName.all(of: files, in: directory)
    let counted = SegmentName.chain(of: names, from: 1)
    let chain = SegmentName.unfinishedChain(of: names, adopted: adopted)
    isUnfinished = chain != nil
    let blank = try load((chain ?? counted.names, counted.missing))
    // The index may refer to some records by their old location and to others by the new one.
    for copy in counted.names where table[copy.number] == nil && copy.compaction > 0 {
      if let segment = try map(copy, isLast: false) { addUninstalled(segment) }
    }
    return blank
  }

  private mutating func load(_ chain: (names: [SegmentName], missing: UInt32?)) throws(StoreError) -> UInt32?
  {
    for name in chain.names {
      guard let segment = try map(name, isLast: name == chain.names.last) else {
        guard name == chain.names.last else {
          throw StoreError(
            .damaged, "is blank, though others follow: restore it from a backup",
            path: directory + "/" + name.text)
        }
        return name.number
      }
      try add(segment)
    }
    if let missing = chain.missing {
      throw StoreError(
        .damaged, "segment \(missing) is missing: restore the file, or the store from a backup",
        path: directory)
    }
    return nil
  }

  /// Maps the segments up to `number` that other processes have begun since. Returns true if some of them are
  /// already compacted.
  @discardableResult
  mutating func extend(to number: UInt32) throws(StoreError) -> Bool {
    guard let last = segments.last?.header.covered.upperBound, last < number else { return false }
    // Segments written by other processes in the meantime may also have been compacted.
    let chain = SegmentName.chain(of: try SegmentName.all(in: directory, environment.storage), from: last + 1)
    for name in chain.names where name.covered.upperBound <= number {
      guard let segment = try map(name) else {
        throw StoreError(
          .damaged, "is blank, though records are said to be in it: restore the store from a backup",
          path: directory + "/" + name.text)
      }
      try add(segment)
      try checkEnd()
    }
    guard segments.last?.number == number else {
      throw StoreError(
        .damaged,
        "segment \(chain.missing ?? number) is missing, though records are said to be in it: restore the store from a backup",
        path: directory)
    }
    return chain.names.contains { $0.compaction > 0 }
  }

  /// Maps segments that compaction has replaced and not yet removed: the index may still refer to them.
  mutating func loadReplaced() throws(StoreError) {
    let names = try SegmentName.all(in: directory, environment.storage)
    let chain = SegmentName.chain(of: names, from: 1).names
    // There are mostly none: do not build a table when opening a store that other processes use.
    guard chain.count < names.count else { return }
    let counted = Set(chain)
    for name in names where !counted.contains(name) && name.covered.upperBound < segments.last?.number ?? 0 {
      do throws(StoreError) {
        if let segment = try map(name) { addReplaced(segment) }
      } catch {
        // Removed since it was listed, so nothing refers to it any more.
        guard try environment.storage.status(directory + "/" + name.text) == nil else { throw error }
      }
    }
  }

  /// Removes replaced segments that a killed compaction left. Only for the holder of the writers' mutex.
  func removeReplaced() throws(StoreError) {
    let names = try SegmentName.all(in: directory, environment.storage)
    let counted = Set(SegmentName.chain(of: names, from: 1).names)
    let last = segments.last?.number ?? 0
    let replaced = names.filter { !counted.contains($0) && $0.covered.upperBound < last }
    // The name of their replacement must be durable before theirs are removed.
    if !replaced.isEmpty { try environment.storage.syncDirectory(directory) }
    for name in replaced { _ = try environment.storage.remove(directory + "/" + name.text) }
    _ = try environment.storage.remove(compactingPath)
  }

  private mutating func add(_ segment: Segment) throws(StoreError) {
    try checkChain(segment)
    segments.append(segment)
    table.insert(segment)
  }

  /// Leaves out the segments after the one at `place`.
  mutating func drop(after place: Int) {
    for segment in segments[(place + 1)...] { table.remove(segment.number) }
    segments.removeSubrange((place + 1)...)
  }

  // MARK: Compaction

  /// Replaces the segments that `segment` covers. They stay readable until `unmapReplaced`.
  mutating func replace(by segment: Segment) {
    let stands = segment.header.covered
    // A replacement found at opening is in place already.
    guard !segments.contains(where: { $0 === segment }) else { return }
    guard let first = segments.firstIndex(where: { $0.header.covered.lowerBound == stands.lowerBound }),
      let last = segments.firstIndex(where: { $0.header.covered.upperBound == stands.upperBound })
    else { return }
    replaced.append(segments[first...last])
    segments.replaceSubrange(first...last, with: [segment])
    uninstalled.removeAll { $0 === segment }
    table.insert(segment)
  }

  /// The numbers of the segments that cover the numbers in `stands`.
  func numbers(within stands: ClosedRange<UInt32>) -> [UInt32] {
    segments.filter { stands.contains($0.header.covered.lowerBound) }.map(\.number)
  }

  /// The segments that a compaction after `installed` replaced. Its copy is not installed completely, so the
  /// index may still refer to them.
  func partlyReplaced(after installed: UInt32) -> [Segment] {
    guard !replaced.isEmpty else { return [] }
    let names = replaced.kept.map(\.header.name)
    return segments.filter { $0.header.compaction > installed }
      .flatMap { SegmentName.replaced(by: $0.header.name, among: names) }
      .compactMap { table[$0.number] }
  }

  /// Keeps the mappings of `other` readable.
  mutating func retainMappings(of other: Journal) {
    for segment in other.segments + other.replaced.kept { addReplaced(segment) }
  }

  /// Makes a segment readable that is not installed yet.
  mutating func addUninstalled(_ segment: Segment) {
    table.insert(segment)
    uninstalled.append(segment)
  }

  /// Makes a segment readable that was replaced.
  mutating func addReplaced(_ segment: Segment) {
    guard table[segment.number] == nil else { return }
    table.insert(segment)
    replaced.append(CollectionOfOne(segment))
  }

  /// True if some segments may have no slot in the index yet.
  var lacksSlots: Bool { table.lacksSlots }

  /// Assigns index slots to the segments that have none, as far as the index has slots for them.
  mutating func assignSlots(
    _ slot: (Segment) throws(StoreError) -> (Int, LiveByteCounter)?
  ) throws(StoreError) {
    var lacksSlots = false
    for segment in segments + replaced.kept + uninstalled where segment.slot == nil {
      guard let (slot, account) = try slot(segment) else {
        lacksSlots = true
        continue
      }
      (segment.slot, segment.liveByteCounter) = (slot, account)
      table.registerSlot(of: segment)
    }
    table.lacksSlots = lacksSlots
  }

  /// Drops the slots of an index that is no longer in use.
  mutating func forgetSlots() {
    for segment in segments + replaced.kept + uninstalled {
      (segment.slot, segment.liveByteCounter) = (nil, nil)
    }
    table.forgetSlots()
  }

  /// Unmaps replaced segments that are among the first `count` ever replaced; later ones stay mapped.
  mutating func unmapReplaced(before count: Int) {
    for segment in replaced.removeAll(before: count) {
      table.remove(segment.number)
      // Deferred: the last reference may be held by a writer or reader, which must not pay for the release.
      segment.file.deferRelease()
    }
  }

  private func checkChain(_ segment: Segment) throws(StoreError) {
    guard let previous = segments.last else { return }
    let end = Int(
      previous.header.closedLength > 0 ? previous.header.closedLength : segment.header.predecessor.length)
    guard segment.header.predecessor.salt == previous.header.chainSalt,
      segment.header.basePosition >= previous.header.basePosition,
      (SegmentHeader.length...previous.mapping.count).contains(end)
    else {
      throw StoreError(
        .foreignFile,
        "does not continue segment \(previous.number): segments were swapped or mixed (F40); "
          + "restore the store from a backup", path: path(of: segment.number))
    }
  }

  /// Maps the segment of that name; nil if it is blank. Only the last segment may be appended to.
  func map(_ name: SegmentName, isLast: Bool = true) throws(StoreError) -> Segment? {
    let path = directory + "/" + name.text
    let file = try environment.storage.open(path, writable ? .readWrite : .readOnly)
    let page = Self.padded(try file.read(Segment.headBytes, at: 0))
    switch SegmentHeader.read(page) {
    case .blank: return nil
    case .bad:
      throw StoreError(
        .damaged, "both copies of its header are damaged: restore it from a backup", path: path)
    case .newer(let version):
      let what =
        version == SegmentHeader.version
        ? "uses features of format \(version) that this program does not know"
        : "was written in format \(version), this program knows \(SegmentHeader.version)"
      throw StoreError(.newerFormat, "\(what): update it", path: path)
    case .whole(let header, let damaged):
      guard header.store == store, header.number == name.number, header.covered == name.covered else {
        throw StoreError(
          .foreignFile, "is segment \(header.number) of store \(header.store): move it away", path: path)
      }
      guard !writable || header.unknownToWriters == 0 else {
        throw StoreError(
          .newerFormat,
          "was written by a newer program, this one can only read it: update it, or open the store for reading only",
          path: path)
      }
      guard header.size >= SegmentHeader.length else {
        throw StoreError(
          .damaged, "its header says that it has \(header.size) bytes: restore it from a backup", path: path)
      }
      let content = try content(of: file, header, isLast: isLast)
      let segment = try Segment(
        header: header, file: file, mapping: content.mapping,
        cipher: try keys.cipher(for: header, path: path),
        usesPwrite: writable && environment.usesPwrite && header.compaction == 0 && isLast)
      segment.defects = content.defects
      if damaged {
        let isRepaired = writable && repairHeader(page, of: file, path)
        segment.defects.recordHeaderDamage(isRepaired: isRepaired)
      }
      // Not for a last, appended segment: a process that is just beginning it may die, and another one may
      // write something else there.
      if !isLast || header.compaction > 0 { segment.readLeadingDefinition(in: page) }
      return segment
    }
  }

  /// Pads the first page of a file that ends within it: the first copy of the header may still be whole.
  private static func padded(_ page: [UInt8]) -> [UInt8] {
    guard !page.isEmpty, page.count < SegmentHeader.length else { return page }
    return page + [UInt8](repeating: 0, count: SegmentHeader.length - page.count)
  }

  /// Rewrites a damaged copy of the header from the whole one: a power loss may have torn it. Nothing else
  /// writes to the header of an existing segment, so there is no race. Returns false on failure: the other
  /// copy serves as well.
  private func repairHeader(_ page: [UInt8], of file: any StorageFile, _ path: String) -> Bool {
    guard let mending = SegmentHeader.headerRepair(page),
      (try? file.write(mending.bytes, at: mending.offset)) != nil
    else { return false }
    StoreLog.log(.warning, path: path, "one of the two copies of its header was damaged: it was written anew")
    return true
  }
}
