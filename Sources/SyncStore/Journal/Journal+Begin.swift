/// Beginning a segment: the file made ready ahead, its header, its name.
extension Journal {
  /// Begins the next segment, which ends the last one at `length`, with `transactions` in it and place for `room` bytes.
  /// Returns where they end.
  ///
  /// Its beginning is durable before it has its name, and that is when this returns: whatever happens, it is wholly there
  /// or wholly absent (F5). If this fails although `isNamed`, nothing may be appended behind `length` any more.
  ///
  /// If it `isPostponed`, neither is durable yet: whoever makes a record in it durable sees to that first, and nobody begins
  /// a later one before (`Store.syncSegmentHeader`). A loss of power leaves it wholly there, or blank, or absent.
  ///
  /// On a full disk it is smaller than others, down to what is needed; if there is not even room for that, it is made of the reserve, as
  /// far as the `claim` allows.
  @discardableResult
  mutating func begin(
    after length: Int, durable: Int, position: UInt64, room: Int = 0, transactions: [[JournalEntry]] = [],
    claim: SpaceClaim = .ordinary, isPostponed: Bool = false
  ) throws(StoreError) -> Int {
    let storage = environment.storage
    let last = segments.last
    let number = (last?.number ?? 0) + 1
    // Under a name that only the holder of the writers' mutex uses: `next` may be replaced at any time.
    let unnamed = preparedPath + ".new"
    do throws(StoreError) {
      let generation = try keys.generationToBegin()
      let needed = transactions.reduce(room) { $0 + RecordEncoder.bound($1, sealed: generation > 0) }
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
        size: UInt32(mapping.count), previousSalt: last?.header.chainSalt ?? 0,
        previousLength: UInt32(length),
        previousDurable: UInt32(durable), created: environment.now())
      (header.isReserve, header.isForCompaction) = (part != nil, part == .records)
      header.generation = generation
      let segment = try Segment(
        header: header, file: file, mapping: mapping, seal: try keys.cipher(for: header, path: unnamed),
        usesPwrite: environment.usesPwrite)
      var encoder = RecordEncoder(
        segment: segment, start: SegmentHeader.length, durable: 0, position: position)
      for entries in transactions { encoder.encode(entries) }
      segment.target.store(header.encoded(), at: 0)
      try segment.flush(0..<encoder.end)
      // No more than that: the rest are zeros, of which there may be many that are not on the disk yet.
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

  /// Is there a file with this segment's name? If that cannot be told, there may be.
  func isNamed(_ number: UInt32) -> Bool {
    let path = directory + "/" + SegmentName(number).text
    do throws(StoreError) { return try environment.storage.status(path) != nil } catch {
      return true
    }
  }

  /// How large the next segment is to be: they double up to the largest, and one transaction always fits.
  func sizeOfNext(room: Int) -> Int {
    let grown = segments.last.map { max($0.mapping.count * 2, Self.firstSegment) } ?? Self.firstSegment
    let needed = SegmentHeader.length + room
    let unit = Self.smallestSegment
    return (max(min(grown, largestForDisk), needed) + unit - 1) & ~(unit - 1)
  }

  /// A file of zeros with place for `room` bytes of records, as large as there is space for, and the part of the reserve that it was.
  private mutating func acquireFile(as path: String, room: Int, _ claim: SpaceClaim) throws(StoreError) -> (
    file: any StorageFile, mapping: Mapping?, part: SpaceReserve.Purpose?
  ) {
    let unit = Self.smallestSegment
    let least = (SegmentHeader.length + room + unit - 1) & ~(unit - 1)
    var size = sizeOfNext(room: room)
    while true {
      do throws(StoreError) {
        // Otherwise the last space would go to what cannot give any back. The first segment has to be there before a reserve is.
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

  /// The part of the reserve that what makes this `claim` may use; nil if there is none, or none that is large enough.
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

  /// A file of `size` zeros or more: the prepared one if it is large enough, mapped already if this process prepared it.
  private mutating func acquirePrepared(as path: String, size: Int) throws(StoreError) -> (
    file: any StorageFile, mapping: Mapping?
  ) {
    let storage = environment.storage
    let mine = prepared
    prepared = nil
    if let status = try storage.status(preparedPath), status.kind == .file, status.size >= size {
      try storage.rename(preparedPath, to: path)
      // Another process may have put its own there between those two calls.
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

  /// Sees to it that no file is begun a second time: after a loss of power, or in a copy of a directory in use, one that was a
  /// segment may have the name that it had when it was made ready. Whatever were to be lost of its new beginning, the old one would
  /// be read in its place, and end the segment before it where that had ended then.
  func removeUsed() throws(StoreError) {
    if try environment.storage.status(preparedPath)?.kind == .file {
      _ = try environment.storage.remove(preparedPath)
    }
    try reserve.removeIfUsed()
  }

  /// Bytes for which memory is found at once.
  static let populatedAtOnce = 128 << 10

  /// Bytes of zeros that are written at once: as many as a file system that can keeps together, so that its pages cost a fraction of what
  /// they do one by one. A sync writes all of what was kept together and changed, and with this few takes no longer for it.
  /// Each size of a segment is a multiple of it.
  private static let writtenAtOnce = 16 << 10

  /// Zeros that the disk is given at once: syncs of the records that come meanwhile wait for so many, not for a whole segment of them.
  static let writtenBackAtOnce = 2 << 20

  /// Finds memory for a segment that is to be filled, ahead of the tail and not all at once: for the parts that are wanted when
  /// their turn comes. `then` is told of each part.
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

  /// A segment made ready: whoever made it hands its mapping over, whose pages need not be found again.
  struct PreparedSegment: Sendable {
    let file: any StorageFile
    let mapping: Mapping
    fileprivate let inode: UInt64
  }

  /// Makes the whole next segment ready, so that the writer neither allocates nor faults (rule R1): allocated, filled with zeros
  /// and mapped, and synced if it `isDurable`, lest the first sync of a record in it wait for all of its zeros. Otherwise memory can be
  /// found, in the mapping that is returned, while the writer has begun to use it. Runs beside the writer. Nil if there is one already,
  /// or another process is at it.
  static func prepare(
    directory: String, size: Int, storage: any Storage, isDurable: Bool
  ) throws(StoreError) -> PreparedSegment? {
    let path = directory + "/next"
    if let status = try storage.status(path), status.size >= size { return nil }
    let file = try storage.open(path + ".preparing", .openOrCreate)
    // Another process may have finished between the opening and the lock: then this file is a part of the journal by now.
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
      // It may become a part of the journal at once, and goes on being locked by nobody.
      _ = try file.lock(byte: 0, .none, wait: false)
      return PreparedSegment(file: file, mapping: mapping, inode: inode)
    } catch {
      _ = try? storage.remove(path + ".preparing")
      throw error
    }
  }
}

extension Mapping {
  /// It will be written from its beginning to its end, and what nobody has found memory for is zeros that are not there yet: the kernel would
  /// make as many of them as it reads ahead, and the writer wait for all (17 ms for 8 MiB).
  fileprivate func expectZeros() { adviseRandom() }
}
