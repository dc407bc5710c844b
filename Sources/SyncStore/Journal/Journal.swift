/// The segments of one store, as one engine has them mapped. A struct under the engine's lock.
///
/// Invariants: the numbers for which segments stand are dense and ascending; each header names its predecessor's salt;
/// only the holder of the writers' mutex appends or begins a segment; the last one was never compacted.
struct Journal {
  let directory: String
  let environment: Environment
  let store: StoreID
  let writable: Bool
  /// The keys of its segments.
  let keys: JournalKeys
  var segments: [Segment] = []
  /// Finds them by number, and those that compaction replaced while they are read.
  var table = SegmentTable()
  /// What compaction replaced and may still be read.
  private(set) var replaced: [Segment] = []
  /// What compaction has written and that does not count yet.
  private(set) var uninstalled: [Segment] = []
  /// How many segments compaction has replaced so far.
  private(set) var replacedCount = 0
  /// The next segment, if this process has made it ready.
  var prepared: PreparedSegment?
  /// Does a compaction of this process use the part of the reserve for its copy?
  let copyHold: CopyReserveFlag
  /// The journal's tail-segment sizes double up to this, in bytes.
  let largestSegment: Int
  /// Where the records end, if the index vouches for it: tells what is lost of a last segment whose file was cut.
  var knownEnd: Location?

  /// Bytes of the first segment, unless the largest has fewer.
  static let firstSegment = 1 << 20
  /// Segments have a multiple of so many bytes.
  static let smallestSegment = 64 << 10
  var preparedPath: String { directory + "/next" }
  /// Where compaction writes.
  var compactingPath: String { directory + "/next.compacted" }

  init(
    directory: String, environment: Environment, store: StoreID, writable: Bool, largestSegment: Int,
    seal: JournalKeys, copyHold: CopyReserveFlag = CopyReserveFlag()
  ) {
    self.copyHold = copyHold
    (self.directory, self.environment, self.store) = (directory, environment, store)
    (self.writable, self.largestSegment, self.keys) = (writable, largestSegment, seal)
  }

  /// The same journal with nothing mapped.
  func emptied() -> Journal {
    Journal(
      directory: directory, environment: environment, store: store, writable: writable,
      largestSegment: largestSegment, seal: keys, copyHold: copyHold)
  }

  // MARK: Finding segments

  /// The segment of that number, also one that compaction replaced and somebody still reads; nil if it is not mapped.
  @inline(__always)
  func segment(_ number: UInt32) -> Segment? { table[number] }

  /// Where the segment of that number stands among `segments`; nil if it does not.
  func index(of number: UInt32) -> Int? {
    // The last one is asked for at every append.
    if let last = segments.last, last.number == number { return segments.count - 1 }
    return segments.lastIndex { $0.number == number }
  }

  /// Where the records of the segment at `place` end, as it says itself or the next one does; nil for the last one, unless its file was
  /// cut.
  func closedLength(at place: Int) -> Int? {
    let own = segments[place].header.closedLength
    if own > 0 { return Int(own) }
    guard place + 1 < segments.count else { return segments[place].truncatedEnd }
    return Int(segments[place + 1].header.previousLength)
  }

  /// Does the journal come to `left` before it comes to `right`? Numbers do not tell, once segments were compacted.
  func precedes(_ left: Location, _ right: Location) -> Bool {
    guard left.segment != right.segment else { return left.offset < right.offset }
    return (index(of: left.segment) ?? -1) < (index(of: right.segment) ?? -1)
  }

  /// The record at `location`, its checksum verified; `.damaged` if it is not whole any more.
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

  /// Where the segment of that number lies, or would.
  func path(of number: UInt32) -> String {
    directory + "/" + (table[number]?.header.name ?? SegmentName(number)).text
  }

  /// The bytes of all segment files.
  var fileBytes: Int { segments.reduce(0) { $0 + $1.mapping.count } }

  // MARK: Loading

  /// Maps all segments of the directory. The last one may be blank (its beginning was cut off by a loss of power): then
  /// it is left out, and its number returned.
  mutating func load() throws(StoreError) -> UInt32? {
    try load(SegmentName.chain(of: SegmentName.all(in: directory, environment.storage), from: 1))
  }

  /// The same with what a compaction has replaced in the place of its copy, if it is later than the last one that the index
  /// has `adopted`. `isUnfinished` is set if there is something of the kind, or to be removed. `files` are the names in the
  /// directory.
  mutating func loadUnfinished(
    _ files: [String], adopted: UInt32, _ isUnfinished: inout Bool
  ) throws(StoreError) -> UInt32? {
    let names = try SegmentName.all(of: files, in: directory)
    let counted = SegmentName.chain(of: names, from: 1)
    let chain = SegmentName.unfinishedChain(of: names, adopted: adopted)
    isUnfinished = chain != nil
    let blank = try load((chain ?? counted.names, counted.missing))
    // The index may name some records where they were, and some where they are.
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

  /// Maps the segments up to `number` that others have begun since. True if they have compacted some of them already.
  @discardableResult
  mutating func extend(to number: UInt32) throws(StoreError) -> Bool {
    guard let last = segments.last?.header.covered.upperBound, last < number else { return false }
    // What others have written in the meantime, they may have compacted too.
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

  /// Maps what compaction has replaced and not yet removed: the index may still name it.
  mutating func loadReplaced() throws(StoreError) {
    let names = try SegmentName.all(in: directory, environment.storage)
    let chain = SegmentName.chain(of: names, from: 1).names
    // Mostly there is none; so no table is made for a first opening beside others.
    guard chain.count < names.count else { return }
    let counted = Set(chain)
    for name in names where !counted.contains(name) && name.covered.upperBound < segments.last?.number ?? 0 {
      do throws(StoreError) {
        if let segment = try map(name) { addReplaced(segment) }
      } catch {
        // Removed since it was listed: then nothing names it any more.
        guard try environment.storage.status(directory + "/" + name.text) == nil else { throw error }
      }
    }
  }

  /// Removes what compaction has replaced and a kill has left. Only for the holder of the writers' mutex.
  func removeReplaced() throws(StoreError) {
    let names = try SegmentName.all(in: directory, environment.storage)
    let counted = Set(SegmentName.chain(of: names, from: 1).names)
    let last = segments.last?.number ?? 0
    let replaced = names.filter { !counted.contains($0) && $0.covered.upperBound < last }
    // The name of what replaced them has to last before theirs go.
    if !replaced.isEmpty { try environment.storage.syncDirectory(directory) }
    for name in replaced { _ = try environment.storage.remove(directory + "/" + name.text) }
    _ = try environment.storage.remove(compactingPath)
  }

  private mutating func add(_ segment: Segment) throws(StoreError) {
    try checkChain(segment)
    segments.append(segment)
    table.insert(segment)
  }

  /// Leaves out the segments behind the one at `place`.
  mutating func drop(behind place: Int) {
    for segment in segments[(place + 1)...] { table.remove(segment.number) }
    segments.removeSubrange((place + 1)...)
  }

  // MARK: Compaction

  /// Puts `segment` in the place of those it stands for, which can still be read until `forget`.
  mutating func replace(by segment: Segment) {
    let stands = segment.header.covered
    // One that was found at opening stands there already.
    guard !segments.contains(where: { $0 === segment }) else { return }
    guard let first = segments.firstIndex(where: { $0.header.covered.lowerBound == stands.lowerBound }),
      let last = segments.firstIndex(where: { $0.header.covered.upperBound == stands.upperBound })
    else { return }
    replaced += segments[first...last]
    replacedCount += last - first + 1
    segments.replaceSubrange(first...last, with: [segment])
    uninstalled.removeAll { $0 === segment }
    table.insert(segment)
  }

  /// The numbers of the segments that stand for those.
  func numbers(within stands: ClosedRange<UInt32>) -> [UInt32] {
    segments.filter { stands.contains($0.header.covered.lowerBound) }.map(\.number)
  }

  /// Keeps what `other` had mapped readable.
  mutating func retainMappings(of other: Journal) {
    for segment in other.segments + other.replaced where table[segment.number] == nil {
      table.insert(segment)
      replaced.append(segment)
      replacedCount += 1
    }
  }

  /// Makes a segment readable that does not count yet.
  mutating func addUninstalled(_ segment: Segment) {
    table.insert(segment)
    uninstalled.append(segment)
  }

  /// Makes a segment readable that does not count any more.
  mutating func addReplaced(_ segment: Segment) {
    guard table[segment.number] == nil else { return }
    table.insert(segment)
    replaced.append(segment)
    replacedCount += 1
  }

  /// May there be segments that the index has given no number?
  var lacksSlots: Bool { table.lacksSlots }

  /// Gives segments that have none the numbers that the index calls them by, as far as it has some for them.
  mutating func assignSlots(
    _ slot: (Segment) throws(StoreError) -> (Int, IndexCheckpoint.LiveByteCounter)?
  ) throws(StoreError) {
    var lacksSlots = false
    for segment in segments + replaced + uninstalled where segment.slot == nil {
      guard let (slot, account) = try slot(segment) else {
        lacksSlots = true
        continue
      }
      (segment.slot, segment.liveByteCounter) = (slot, account)
      table.registerSlot(of: segment)
    }
    table.lacksSlots = lacksSlots
  }

  /// Takes the numbers of an index away that is used no more.
  mutating func forgetSlots() {
    for segment in segments + replaced + uninstalled { (segment.slot, segment.liveByteCounter) = (nil, nil) }
    table.forgetSlots()
  }

  /// Unmaps what compaction replaced, but for what came behind the first `count` of all it ever did.
  mutating func unmapReplaced(before count: Int) {
    let gone = min(replaced.count, max(0, count - (replacedCount - replaced.count)))
    for segment in replaced[..<gone] {
      table.remove(segment.number)
      // It may be a writer, or a reader, that lets go of it last.
      segment.file.deferRelease()
    }
    replaced.removeFirst(gone)
  }

  private func checkChain(_ segment: Segment) throws(StoreError) {
    guard let previous = segments.last else { return }
    let end = Int(
      previous.header.closedLength > 0 ? previous.header.closedLength : segment.header.previousLength)
    guard segment.header.previousSalt == previous.header.chainSalt,
      segment.header.basePosition >= previous.header.basePosition,
      (SegmentHeader.length...previous.mapping.count).contains(end)
    else {
      throw StoreError(
        .foreignFile,
        "does not continue segment \(previous.number): segments were swapped or mixed (F40); "
          + "restore the store from a backup", path: path(of: segment.number))
    }
  }

  /// The segment of that name; nil if it is blank. Only the last one may be appended to.
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
        header: header, file: file, mapping: content.mapping, seal: try keys.cipher(for: header, path: path),
        usesPwrite: writable && environment.usesPwrite && header.compaction == 0 && isLast)
      segment.truncatedEnd = content.truncatedEnd
      if content.missing > 0, writable, content.truncatedEnd == nil {
        let bytes = CountText.of(content.missing, noun: "byte")
        segment.repairs.append("its file was \(bytes) shorter than its header says: it was lengthened")
      } else {
        segment.missingBytes = content.missing
      }
      segment.headerDamaged = damaged
      if damaged, writable, repairHeader(page, of: file, path) {
        segment.headerDamaged = false
        segment.repairs.append("one of the two copies of its header was damaged: it was written anew")
      }
      // Not of the last one: who is just beginning it may die, and another one write something else there.
      if !isLast || header.compaction > 0 { segment.readLeadingDefinition(in: page) }
      return segment
    }
  }

  /// The first page of a file that ends within it: the first copy of the header may be whole.
  private static func padded(_ page: [UInt8]) -> [UInt8] {
    guard !page.isEmpty, page.count < SegmentHeader.length else { return page }
    return page + [UInt8](repeating: 0, count: SegmentHeader.length - page.count)
  }

  /// Writes the copy of a header that is not whole as the other one is: a loss of power may have torn it. Nothing else ever writes to
  /// the header of a segment that is there, so nobody is in the way. False if it could not be done: the other copy serves as well.
  private func repairHeader(_ page: [UInt8], of file: any StorageFile, _ path: String) -> Bool {
    guard let mending = SegmentHeader.headerRepair(page),
      (try? file.write(mending.bytes, at: mending.offset)) != nil
    else { return false }
    StoreLog.log(.warning, path: path, "one of the two copies of its header was damaged: it was written anew")
    return true
  }
}
