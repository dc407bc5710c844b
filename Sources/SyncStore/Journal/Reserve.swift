/// Space that is kept for what gives space back: when the disk is full, deletes and what a copy notes for itself go into a
/// segment made of one file of the reserve, and a compaction writes into the other (rule R1, F25).
///
/// The files *become* the segments, by their names: between the giving back of the space and its use nobody else can take
/// it. Once there is space again the reserve is put back.
struct Reserve: Sendable {
  /// What a file of it is for.
  enum Purpose: CaseIterable {
    /// A segment to append to.
    case segment
    /// What compaction writes.
    case copy
  }

  let directory: String
  let storage: any Storage
  /// The journal's largest segment, in bytes.
  let largestSegment: Int

  /// Where the file for this lies.
  func path(_ purpose: Purpose) -> String {
    switch purpose {
    case .segment: directory + "/reserve"
    case .copy: directory + "/reserve.compacted"
    }
  }

  /// Its bytes: in proportion to the segments, at most 1 MiB and 4 MiB.
  func size(_ purpose: Purpose) -> Int {
    let unit = Journal.smallestSegment
    return switch purpose {
    case .segment: max(unit, min(largestSegment / 64, 1 << 20) / unit * unit)
    case .copy: max(4 * unit, min(largestSegment / 16, 4 << 20) / unit * unit)
    }
  }

  /// Puts back what is missing. Where there is no space for it the disk is full still, and it is tried again later.
  func restore() throws(StoreError) {
    for purpose in Purpose.allCases {
      let (path, size) = (path(purpose), size(purpose))
      if let status = try storage.status(path), status.kind == .file, status.size >= size { continue }
      let file = try storage.open(path + ".new", .openOrCreate)
      // Another process may have finished between the opening and the lock: the file may be a part of the journal by now.
      guard try file.lock(byte: 0, .exclusive, wait: false),
        try storage.status(path + ".new")?.inode == file.status().inode
      else { continue }
      do throws(StoreError) {
        try file.resize(to: 0)
        try file.allocate(to: size)
        try storage.rename(path + ".new", to: path)
      } catch {
        _ = try? storage.remove(path + ".new")
        throw error
      }
    }
  }

  /// Takes the file for this, under another name; nil if it was taken already, or has fewer than `bytes`.
  func take(_ purpose: Purpose, as newPath: String, atLeast bytes: Int) throws(StoreError) -> (
    any StorageFile
  )? {
    guard let status = try storage.status(path(purpose)), status.kind == .file, status.size >= bytes else {
      return nil
    }
    try storage.rename(path(purpose), to: newPath)
    let file = try storage.open(newPath, .readWrite)
    // A compaction makes all durable that it writes before anybody reads it.
    guard purpose == .segment, !file.beginsBlank else { return file }
    // What it holds could be read again behind a loss of power. Its space is taken once more.
    _ = try storage.remove(newPath)
    let fresh = try storage.open(newPath, .create)
    try fresh.allocate(to: status.size)
    return fresh
  }

  /// Removes the file for a segment if it was one (`Journal.removeUsed`). `restore` makes another one, of the same space.
  func removeIfUsed() throws(StoreError) {
    let path = path(.segment)
    guard let status = try storage.status(path), status.kind == .file, status.size > 0 else { return }
    let mapping = try storage.open(path, .readOnly).map(status.size, writable: false)
    if mapping.lastNonZero(0..<status.size) != nil || mapping.fault != nil { _ = try storage.remove(path) }
  }
}

extension StorageFile {
  /// Are there zeros where a segment has its header? Of a file that was never one there are, and nothing of an earlier life can come
  /// back behind a loss of power.
  var beginsBlank: Bool {
    guard let page = try? read(SegmentHeader.length, at: 0) else { return false }
    return page.allSatisfy { $0 == 0 }
  }
}

extension JournalEntry {
  /// May it be written with the last space there is? It makes what is dead known, or is of this copy alone.
  var mayUseReserve: Bool {
    switch self {
    case .write(let record, _), .waiting(let record, _): record.isTombstone
    case .loser: false
    case .local, .checkpoint, .purge: true
    }
  }
}

extension Store {
  var reserve: Reserve {
    Reserve(
      directory: journalDirectory, storage: environment.storage, largestSegment: configuration.segmentBytes)
  }

  /// Puts back what was taken of the reserve, if there is space again.
  func restoreReserve() {
    switch environment.compacting {
    case .beside: Background.run { [weak self] in try? self?.reserve.restore() }
    case .inTurn, .onRequest: try? reserve.restore()
    }
  }
}
