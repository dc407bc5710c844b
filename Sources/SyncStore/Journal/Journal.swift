/// The segments of one store, as one engine has them mapped. A struct under the engine's lock.
///
/// Invariants: numbers are dense and ascending; each header names its predecessor's salt and length; only the holder of
/// the writers' mutex appends or begins a segment.
struct Journal {
  let directory: String
  let environment: Environment
  let store: StoreID
  let writable: Bool
  var segments: [Segment] = []
  /// The journal's tail-segment sizes double up to this, in bytes.
  let largestSegment: Int

  /// Bytes of the first segment.
  static let smallestSegment = 1 << 20
  private static let suffix = ".segment"
  private var preparedPath: String { directory + "/next" }

  init(
    directory: String, environment: Environment, store: StoreID, writable: Bool, largestSegment: Int
  ) {
    (self.directory, self.environment, self.store) = (directory, environment, store)
    (self.writable, self.largestSegment) = (writable, largestSegment)
  }

  // MARK: Finding segments

  /// The segment of that number; nil if it is not mapped here.
  func segment(_ number: UInt32) -> Segment? { Self.segment(number, in: segments) }

  /// The same for who must not copy the journal to ask it.
  @inline(__always)
  static func segment(_ number: UInt32, in segments: [Segment]) -> Segment? {
    guard let first = segments.first?.number, number >= first else { return nil }
    let index = Int(number - first)
    return index < segments.count ? segments[index] : nil
  }

  /// Where the records of the segment at `index` end: as the next one says; nil for the last one.
  func sealedLength(at index: Int) -> Int? {
    index + 1 < segments.count ? Int(segments[index + 1].header.previousLength) : nil
  }

  /// The record at `location`, its checksum verified; `.damaged` if it is not whole any more.
  func record(at location: Location) throws(StoreError) -> RecordView {
    guard let segment = segment(location.segment),
      let view = segment.record(at: location.offset, limit: segment.mapping.count)
    else {
      throw StoreError(
        .damaged,
        "the record at offset \(location.offset) does not match its checksum: run `verify --repair`",
        path: path(of: location.segment))
    }
    return view
  }

  func path(of number: UInt32) -> String {
    let digits = String(number)
    return directory + "/" + String(repeating: "0", count: 16 - digits.count) + digits + Self.suffix
  }

  /// The bytes of all segment files.
  var fileBytes: Int { segments.reduce(0) { $0 + $1.mapping.count } }

  // MARK: Loading

  /// Maps all segments of the directory. The last one may be blank (its beginning was cut off by a loss of power): then
  /// it is left out, and its number returned.
  mutating func load() throws(StoreError) -> UInt32? {
    var numbers: [UInt32] = []
    for name in try environment.storage.list(directory) where name.hasSuffix(Self.suffix) {
      guard let number = UInt32(name.dropLast(Self.suffix.count)), path(of: number).hasSuffix("/" + name)
      else {
        throw StoreError(
          .foreignFile, "has a name that no segment has: move it away", path: directory + "/" + name)
      }
      numbers.append(number)
    }
    numbers.sort()
    for (offset, number) in numbers.enumerated() {
      guard number == UInt32(offset) + 1 else {
        throw StoreError(
          .damaged, "segment \(offset + 1) is missing: restore the file, or the store from a backup",
          path: directory)
      }
      guard let segment = try map(number) else {
        guard number == numbers.last else {
          throw StoreError(
            .damaged, "is blank, though others follow: restore it from a backup", path: path(of: number))
        }
        return number
      }
      try checkChain(segment)
      segments.append(segment)
    }
    return nil
  }

  /// Maps the segments up to `number` that others have begun since.
  mutating func extend(to number: UInt32) throws(StoreError) {
    while let last = segments.last?.number, last < number {
      guard let segment = try map(last + 1) else {
        throw StoreError(.damaged, "is blank, though records are said to be in it", path: path(of: last + 1))
      }
      try checkChain(segment)
      segments.append(segment)
    }
  }

  private func checkChain(_ segment: Segment) throws(StoreError) {
    guard let previous = segments.last else { return }
    guard segment.header.previousSalt == previous.header.salt,
      Int(segment.header.previousLength) <= previous.mapping.count,
      Int(segment.header.previousLength) >= SegmentHeader.length
    else {
      throw StoreError(
        .foreignFile,
        "does not continue segment \(previous.number): segments were swapped or mixed (F40); "
          + "restore the store from a backup", path: path(of: segment.number))
    }
  }

  private func map(_ number: UInt32) throws(StoreError) -> Segment? {
    let path = path(of: number)
    let file = try environment.storage.open(path, writable ? .readWrite : .readOnly)
    switch SegmentHeader.read(try file.read(SegmentHeader.length, at: 0)) {
    case .blank: return nil
    case .bad:
      throw StoreError(
        .damaged, "both copies of its header are damaged: restore it from a backup", path: path)
    case .newer(let version):
      throw StoreError(
        .newerFormat,
        "was written in format \(version), this program knows \(SegmentHeader.version): update it",
        path: path)
    case .whole(let header, let damaged):
      guard header.store == store, header.number == number else {
        throw StoreError(
          .foreignFile, "is segment \(header.number) of store \(header.store): move it away", path: path)
      }
      let size = try file.status().size
      guard size >= Int(header.size), header.size >= SegmentHeader.length else {
        throw StoreError(
          .damaged, "has \(size) bytes, its header says \(header.size): restore it from a backup", path: path)
      }
      let segment = Segment(
        header: header, file: file, mapping: try file.map(Int(header.size), writable: writable))
      segment.headerDamaged = damaged
      return segment
    }
  }

  // MARK: Beginning a segment

  /// Begins the next segment, which ends the last one at `length`, with `transactions` in it and place for `room` bytes.
  /// Returns where they end.
  ///
  /// Its beginning is durable before it has its name: whatever happens, it is wholly there or wholly absent (F5), and a
  /// later one never without it. Its name is durable when this returns; if this fails although `isNamed`, nothing may be
  /// appended behind `length` any more.
  @discardableResult
  mutating func begin(
    after length: Int, durable: Int, position: UInt64, room: Int = 0, transactions: [[JournalEntry]] = []
  ) throws(StoreError) -> Int {
    let storage = environment.storage
    let last = segments.last
    let number = (last?.number ?? 0) + 1
    // Under a name that only the holder of the writers' mutex uses: `next` may be replaced at any time.
    let unnamed = preparedPath + ".new"
    do throws(StoreError) {
      let size = sizeOfNext(room: transactions.reduce(room) { $0 + RecordEncoder.bound($1) })
      let file = try takePrepared(as: unnamed, size: size)
      let mapping = try file.map(try file.status().size, writable: true)
      let header = SegmentHeader(
        store: store, number: number, salt: environment.randomWord(), basePosition: position,
        size: UInt32(mapping.count), previousSalt: last?.header.salt ?? 0, previousLength: UInt32(length),
        previousDurable: UInt32(durable), created: environment.now())
      let segment = Segment(header: header, file: file, mapping: mapping)
      var encoder = RecordEncoder(
        segment: segment, start: SegmentHeader.length, durable: 0, position: position)
      for entries in transactions { encoder.encode(entries) }
      mapping.store(header.encoded(), at: 0)
      try file.sync()
      try storage.rename(unnamed, to: path(of: number))
      try storage.syncDirectory(directory)
      segments.append(segment)
      return encoder.end
    } catch {
      _ = try? storage.remove(unnamed)
      throw error
    }
  }

  /// Is there a file with this segment's name? If that cannot be told, there may be.
  func isNamed(_ number: UInt32) -> Bool {
    do throws(StoreError) { return try environment.storage.status(path(of: number)) != nil } catch {
      return true
    }
  }

  /// How large the next segment is to be: they double up to the largest, and one transaction always fits.
  func sizeOfNext(room: Int) -> Int {
    let grown = segments.last.map { min($0.mapping.count * 2, largestSegment) } ?? Self.smallestSegment
    let needed = (SegmentHeader.length + room + 0xFFFFF) & ~0xFFFFF
    return max(grown, needed, Self.smallestSegment)
  }

  /// A file of `size` zeros or more: the prepared one if it is large enough.
  private func takePrepared(as path: String, size: Int) throws(StoreError) -> any StorageFile {
    let storage = environment.storage
    if let status = try storage.status(preparedPath), status.kind == .file, status.size >= size {
      try storage.rename(preparedPath, to: path)
      return try storage.open(path, .readWrite)
    }
    _ = try storage.remove(path)
    let file = try storage.open(path, .create)
    try file.allocate(to: size)
    return file
  }

  /// Makes the whole next segment ready: allocated, with memory found for its pages, and synced, so that the writer
  /// neither allocates nor faults, and its first sync does not flush zeros (rule R1). Runs beside the writer.
  static func prepare(directory: String, size: Int, storage: any Storage) throws(StoreError) {
    let path = directory + "/next"
    if let status = try storage.status(path), status.size >= size { return }
    let file = try storage.open(path + ".preparing", .openOrCreate)
    // Another process may have finished between the opening and the lock: then this file is a part of the journal by now.
    guard try file.lock(byte: 0, .exclusive, wait: false),
      try storage.status(path + ".preparing")?.inode == file.status().inode
    else { return }
    do {
      try file.resize(to: 0)
      try file.allocate(to: size)
      try file.map(size, writable: true).populate(0..<size)
      try file.sync()
      try storage.rename(path + ".preparing", to: path)
    } catch {
      _ = try? storage.remove(path + ".preparing")
      throw error
    }
  }
}
