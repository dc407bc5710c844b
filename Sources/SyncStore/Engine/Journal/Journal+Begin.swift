/// Beginning a segment: preparing its file, writing its header, naming it.
extension Journal {
  /// Begins the next segment, which closes the last one at `length`, with `transactions` in it and space for
  /// `room` more bytes. Returns where the transactions end.
  ///
  /// Its beginning is durable before it gets its name, and the name is durable on return: after a crash the
  /// segment is complete or absent (F5). If this fails although `isNamed`, nothing may be appended past
  /// `length` any more.
  ///
  /// With `isPostponed` neither is durable yet: the first sync of a record in the segment must sync both
  /// before, and no later segment may begin until then (`Store.syncSegmentHeader`). A power loss leaves the
  /// segment complete, blank or absent.
  ///
  /// On a full disk the segment is smaller, down to the size needed; without space for that, it is made of
  /// the reserve, as far as `claim` allows.
  @discardableResult
  mutating func begin(
    after length: Int, durable: Int, position: UInt64, room: Int = 0, transactions: [[JournalEntry]] = [],
    claim: SpaceClaim = .ordinary, isPostponed: Bool = false
  ) throws(StoreError) -> Int {
    let storage = environment.storage
    let last = segments.last
    let number = (last?.number ?? 0) + 1
    // A name that only the holder of the writers' mutex uses: `next` may be replaced at any time.
    let unnamed = preparedPath + ".new"
    do throws(StoreError) {
      let generation = try keys.generationToBegin()
      let needed = transactions.reduce(room) { $0 + RecordEncoder.bound($1, encrypted: generation > 0) }
      let (file, ready, part) = try acquireFile(as: unnamed, room: needed, claim)
      let mapping: Mapping
      if let ready {
        mapping = ready
      } else {
        mapping = try file.map(try file.status().size, writable: true)
        mapping.expectZeros()
      }
      var header = SegmentHeader(
        store: store, number: number, salt: environment.randomWord(), basePosition: position,
        size: UInt32(mapping.count),
        predecessor: SegmentHeader.Predecessor(
          salt: last?.header.chainSalt ?? 0, length: UInt32(length), durable: UInt32(durable)),
        created: environment.now())
      (header.isReserve, header.isForCompaction) = (part != nil, part == .records)
      header.generation = generation
      let segment = try Segment(
        header: header, file: file, mapping: mapping, cipher: try keys.cipher(for: header, path: unnamed),
        usesPwrite: environment.usesPwrite)
      var encoder = RecordEncoder(
        segment: segment, start: SegmentHeader.length, durable: 0, position: position)
      for entries in transactions { encoder.encode(entries) }
      segment.target.store(header.encoded(), at: 0)
      try segment.flush(0..<encoder.end)
      // Sync the used part only: the zeros after it may be many, and not on the disk yet.
      if !isPostponed { try file.sync(0..<encoder.end, of: mapping) }
      if let error = segment.faultError { throw error }
      try storage.rename(unnamed, to: directory + "/" + SegmentName(number).text)
      if !isPostponed { try storage.syncDirectory(directory) }
      last?.mapping.adviseNormal()
      segments.append(segment)
      table.insert(segment)
      return encoder.end
    } catch {
      _ = try? storage.remove(unnamed)
      throw error
    }
  }

  /// True if a file with this segment's name exists, or if that cannot be determined.
  func isNamed(_ number: UInt32) -> Bool {
    let path = directory + "/" + SegmentName(number).text
    do throws(StoreError) { return try environment.storage.status(path) != nil } catch {
      return true
    }
  }

  /// Size of the next segment in bytes: sizes double up to the largest, and one transaction always fits.
  func sizeOfNext(room: Int) -> Int {
    let grown = segments.last.map { max($0.mapping.count * 2, Self.firstSegment) } ?? Self.firstSegment
    let needed = SegmentHeader.length + room
    let unit = Self.smallestSegment
    return (max(min(grown, largestForDisk), needed) + unit - 1) & ~(unit - 1)
  }

  /// A zeroed file with space for `room` bytes of records, as large as the disk allows, and the part of the
  /// reserve that it was taken from, if any.
  private mutating func acquireFile(as path: String, room: Int, _ claim: SpaceClaim) throws(StoreError) -> (
    file: any StorageFile, mapping: Mapping?, part: SpaceReserve.Purpose?
  ) {
    let unit = Self.smallestSegment
    let least = (SegmentHeader.length + room + unit - 1) & ~(unit - 1)
    var size = sizeOfNext(room: room)
    while true {
      do throws(StoreError) {
        // Restore the reserve first: otherwise the last space would go to appends that cannot free any. The
        // first segment precedes the reserve.
        if !segments.isEmpty {
          try reserve.restore(
            claim == .ordinary ? SpaceReserve.Purpose.allCases : [.records, .copy], next: size)
        }
        let (file, mapping) = try acquirePrepared(as: path, size: size)
        return (file, mapping, nil)
      } catch {
        guard error.code == .diskFull else { throw error }
        if size > least {
          size = max(least, size / 2 & ~(unit - 1))
          continue
        }
        guard let (file, part) = try acquireReserve(as: path, room: room, claim) else { throw error }
        return (file, nil, part)
      }
    }
  }

  /// The part of the reserve that `claim` may use; nil if there is none that is large enough.
  private func acquireReserve(as path: String, room: Int, _ claim: SpaceClaim) throws(StoreError) -> (
    any StorageFile, SpaceReserve.Purpose
  )? {
    let parts: [SpaceReserve.Purpose] =
      switch claim {
      case .ordinary: []
      case .reclaiming: [.segment]
      case .compaction: [.segment, .records]
      }
    for part in parts {
      if let file = try reserve.acquire(part, as: path, atLeast: SegmentHeader.length + room) {
        return (file, part)
      }
    }
    return nil
  }

  /// A zeroed file of at least `size` bytes: the prepared one if it is large enough, already mapped if this
  /// process prepared it.
  private mutating func acquirePrepared(as path: String, size: Int) throws(StoreError) -> (
    file: any StorageFile, mapping: Mapping?
  ) {
    let storage = environment.storage
    let mine = prepared
    prepared = nil
    if let status = try storage.status(preparedPath), status.kind == .file, status.size >= size {
      try storage.rename(preparedPath, to: path)
      // Another process may have replaced the prepared file between those two calls.
      if let taken = try storage.status(path), taken.kind == .file, taken.size >= size {
        if let mine, mine.inode == taken.inode, mine.mapping.count == taken.size {
          return (mine.file, mine.mapping)
        }
        let file = try storage.open(path, .readWrite)
        if file.beginsBlank { return (file, nil) }
      }
    }
    _ = try storage.remove(path)
    let file = try storage.open(path, .create)
    try file.allocate(to: size)
    return (file, nil)
  }

  /// Prevents a file from being begun as a segment twice. After a power loss, or in a copy of a directory in
  /// use, a file that was a segment may have the name that it had when it was prepared. If its new beginning
  /// were lost, its old one would be read instead, and would end the preceding segment at the old offset.
  func removeUsed() throws(StoreError) {
    if try environment.storage.status(preparedPath)?.kind == .file {
      _ = try environment.storage.remove(preparedPath)
    }
    try reserve.removeIfUsed()
  }

  /// Bytes of a mapping that are populated in one step.
  static let populatedAtOnce = 128 << 10

  /// Bytes of zeros written per call: as many as a file system with large folios keeps together, so that the
  /// pages cost a fraction of what they cost one by one. A sync writes the whole of each such unit that
  /// changed, and at this size takes no longer for it. Every segment size is a multiple of it.
  private static let writtenAtOnce = 16 << 10

  /// Bytes of zeros after which writeback is started: a concurrent sync of records waits for this many, not
  /// for a whole segment.
  static let writtenBackAtOnce = 2 << 20

  /// Populates the pages of a segment ahead of the tail, step by step: only the parts for which `isWanted` is
  /// true when their turn comes. Calls `then` for each part populated.
  static func populate(
    _ mapping: Mapping, _ atOnce: Int = populatedAtOnce, where isWanted: (_ start: Int) -> Bool,
    then: (Range<Int>) -> Void = { _ in }
  ) {
    for start in stride(from: 0, to: mapping.count, by: atOnce) where isWanted(start) {
      let part = start..<min(start + atOnce, mapping.count)
      mapping.populate(part)
      then(part)
    }
  }

  /// A prepared segment. Its mapping is handed over, so that its pages need not be faulted in again.
  struct PreparedSegment: Sendable {
    let file: any StorageFile
    let mapping: Mapping
    fileprivate let inode: UInt64
  }

  /// Prepares the whole next segment, so that the writer neither allocates nor faults (rule R1): allocated,
  /// filled with zeros and mapped. If `isDurable`, it is synced, too; otherwise the first sync of a record in
  /// it would wait for all of its zeros. Without `isDurable`, the returned mapping can be populated while the
  /// writer already uses it.
  ///
  /// Runs concurrently with the writer. Returns nil if there is a prepared segment already or another process
  /// is preparing one.
  static func prepare(
    directory: String, size: Int, storage: any Storage, isDurable: Bool
  ) throws(StoreError) -> PreparedSegment? {
    let path = directory + "/next"
    if let status = try storage.status(path), status.size >= size { return nil }
    let file = try storage.open(path + ".preparing", .openOrCreate)
    // Another process may have finished between the open and the lock: then this file is a part of the
    // journal by now.
    guard try file.lock(byte: 0, .exclusive, wait: false) else { return nil }
    let inode = try file.status().inode
    guard try storage.status(path + ".preparing")?.inode == inode else { return nil }
    do {
      try file.resize(to: 0)
      try file.allocate(to: size)
      let zeros = [UInt8](repeating: 0, count: writtenAtOnce)
      for start in stride(from: 0, to: size, by: writtenAtOnce) {
        try file.write(zeros, at: start)
        let end = start + writtenAtOnce
        if isDurable, end.isMultiple(of: writtenBackAtOnce) {
          try file.writeBack(end - writtenBackAtOnce..<end)
        }
      }
      let mapping = try file.map(size, writable: true)
      mapping.expectZeros()
      if isDurable { try file.sync() }
      try storage.rename(path + ".preparing", to: path)
      // It may become a part of the journal at any moment and must not stay locked.
      _ = try file.lock(byte: 0, .none, wait: false)
      return PreparedSegment(file: file, mapping: mapping, inode: inode)
    } catch {
      _ = try? storage.remove(path + ".preparing")
      throw error
    }
  }
}

extension Mapping {
  /// Disables read-ahead. The mapping is written from beginning to end, and pages not populated yet are zeros
  /// without blocks: the kernel would create as many as it reads ahead, and the writer would wait for all (17
  /// ms for 8 MiB).
  fileprivate func expectZeros() { adviseRandom() }
}
