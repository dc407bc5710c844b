internal import Synchronization

/// Disk space that a store keeps allocated, so that a full disk can always be recovered from within the store (rule R1, F25).
///
/// Each part is a file that *becomes* what it was kept for by being renamed: between the release of the space and its use no
/// other program can take it. A missing part is allocated again before any segment for puts is begun, so that neither puts nor
/// deletes nor openings can use up what a compaction needs.
struct SpaceReserve: Sendable {
  /// What a file of the reserve is for, most important first: in this order missing ones are restored.
  enum Purpose: CaseIterable {
    /// A segment for the records that a compaction itself appends. Without them no compaction could begin.
    case records
    /// The copy that a compaction writes.
    case copy
    /// A segment for deletes.
    case segment
  }

  let directory: String
  let storage: any Storage
  /// The limit of a segment's size, as it is configured, in bytes.
  let largestSegment: Int
  /// Bytes of the largest segment that there is.
  let largestPresent: Int
  /// Whether the part for the copy is in use: it is not restored then, but space for it is left free.
  let copyHold: CopyReserveFlag

  /// Where the file for this lies.
  func path(_ purpose: Purpose) -> String {
    switch purpose {
    case .records: directory + "/reserve.records"
    case .copy: directory + "/reserve.compacted"
    case .segment: directory + "/reserve"
    }
  }

  /// Bytes that the file should have if the next segment has `next` bytes.
  ///
  /// The copy of any one segment fits in the reserve: otherwise a segment of which many small records are left could not be
  /// compacted on a full disk, however much of it is dead.
  func size(_ purpose: Purpose, next: Int = 0) -> Int {
    let unit = Journal.smallestSegment
    return switch purpose {
    // Room for the version vector of a copy that knows `Limits.actors` actors.
    case .records: 2 * unit
    case .copy: max(4 * unit, min(max(largestPresent, next), largestSegment))
    case .segment: max(unit, min(largestSegment / 64, 1 << 20) / unit * unit)
    }
  }

  /// Allocates what is missing of these parts. `next` is the size in bytes of a segment about to be begun.
  ///
  /// - Throws: `.diskFull` if a part is not whole then. It has what there was room for, and the next call tries again.
  func restore(_ purposes: [Purpose] = Purpose.allCases, next: Int = 0) throws(StoreError) {
    for purpose in purposes {
      if purpose == .copy, copyHold.isHeld {
        try leaveRoomForCopy(besides: purposes, next: next)
      } else {
        try extend(purpose, to: size(purpose, next: next))
      }
    }
  }

  /// While a compaction uses the part for its copy, nothing is allocated that would leave too little space to
  /// allocate that part again: without it the next compaction could not copy, and a full disk would stay
  /// full.
  ///
  /// - Throws: `.diskFull` if what is missing of the other parts and the next segment would leave too little.
  private func leaveRoomForCopy(besides purposes: [Purpose], next: Int) throws(StoreError) {
    var needed = size(.copy, next: next) + next
    for purpose in purposes where purpose != .copy {
      needed += try max(0, size(purpose, next: next) - present(purpose))
    }
    guard try storage.freeBytes(directory) < UInt64(needed) else { return }
    throw StoreError(
      .diskFull,
      "cannot find space for \(CountText.of(needed, noun: "byte")) while a compaction uses the reserve: try again, "
        + "or make room", path: directory)
  }

  private func extend(_ purpose: Purpose, to size: Int) throws(StoreError) {
    // While another thread or process allocates the part, allocating anything else could take the space that it needs.
    for _ in 0..<Self.attempts {
      if try extendUnlessBusy(purpose, to: size) { return }
      SystemCall.sleep(microseconds: 1000)
    }
  }

  /// Another one that has not come to its end by then, in milliseconds, is left to it.
  private static let attempts = 200

  /// False if another thread or process has the file locked.
  private func extendUnlessBusy(_ purpose: Purpose, to size: Int) throws(StoreError) -> Bool {
    let path = path(purpose)
    let present = try storage.status(path)
    if let present, present.kind == .file, present.size >= size { return true }
    let isNew = present?.kind != .file
    let name = isNew ? path + ".new" : path
    guard let file = try openToExtend(name, isNew: isNew) else { return false }
    // It may be taken as soon as it has its name, and goes on being locked by nobody.
    defer { _ = try? file.lock(byte: 0, .none, wait: false) }
    do throws(StoreError) {
      if isNew { try file.resize(to: 0) }
      let failure = allocate(size, of: file)
      if isNew {
        if let failure, try file.status().size == 0 { throw failure }
        try storage.rename(name, to: path)
      }
      if let failure { throw failure }
      return true
    } catch {
      if isNew { _ = try? storage.remove(name) }
      throw error
    }
  }

  /// The file, locked; nil if somebody else is at it, or has taken it between the opening and the lock: then it may be a part of the
  /// journal by now.
  private func openToExtend(_ name: String, isNew: Bool) throws(StoreError) -> (any StorageFile)? {
    let opened = isNew ? try storage.open(name, .openOrCreate) : try storage.openIfPresent(name, .readWrite)
    guard let opened, try opened.lock(byte: 0, .exclusive, wait: false),
      try storage.status(name)?.inode == opened.status().inode
    else { return nil }
    return opened
  }

  /// Lengthens the file to `size` bytes, or as far as there is room. Returns why it could not be all of it.
  private func allocate(_ size: Int, of file: any StorageFile) -> StoreError? {
    var failure: StoreError?
    var step = size - ((try? file.status().size) ?? 0)
    while step >= Journal.smallestSegment {
      do throws(StoreError) {
        let present = try file.status().size
        guard present < size else { return nil }
        try file.allocate(to: min(present + step, size))
      } catch {
        failure = error
        guard error.code == .diskFull else { return error }
        step /= 2
      }
    }
    do throws(StoreError) {
      if try file.status().size < size { try file.allocate(to: size) }
      return nil
    } catch { return failure ?? error }
  }

  /// Bytes that the file for this has; 0 if it is missing.
  func present(_ purpose: Purpose) throws(StoreError) -> Int {
    guard let status = try storage.status(path(purpose)), status.kind == .file else { return 0 }
    return status.size
  }

  /// Takes the file for this, under another name; nil if it was taken already, or has fewer than `bytes`.
  func acquire(_ purpose: Purpose, as newPath: String, atLeast bytes: Int) throws(StoreError) -> (
    any StorageFile
  )? {
    let path = path(purpose)
    guard try present(purpose) >= bytes, let file = try storage.openIfPresent(path, .readWrite) else {
      return nil
    }
    // A thread that is just lengthening it must not go on once it is a part of the journal.
    guard try file.lock(byte: 0, .exclusive, wait: true) else { return nil }
    defer { _ = try? file.lock(byte: 0, .none, wait: false) }
    guard try storage.status(path)?.inode == file.status().inode else { return nil }
    try storage.rename(path, to: newPath)
    // A compaction makes all durable that it writes before anybody reads it.
    guard purpose != .copy, !file.beginsBlank else { return file }
    // What it holds could be read again behind a loss of power. Its space is taken once more.
    let size = try file.status().size
    _ = try storage.remove(newPath)
    let fresh = try storage.open(newPath, .create)
    try fresh.allocate(to: size)
    return fresh
  }

  /// Puts a file back that `take` gave for this and that was not changed.
  func putBack(_ purpose: Purpose, from path: String) {
    _ = try? storage.renameUnlessPresent(path, to: self.path(purpose))
  }

  /// Removes the files for segments that were one (`Journal.removeUsed`). `restore` makes others, of the same space.
  func removeIfUsed() throws(StoreError) {
    for purpose in [.records, .segment] as [Purpose] {
      let (path, size) = (path(purpose), try present(purpose))
      guard size > 0 else { continue }
      let mapping = try storage.open(path, .readOnly).map(size, writable: false)
      if mapping.lastNonZero(0..<size) != nil || mapping.fault != nil { _ = try storage.remove(path) }
    }
  }
}

/// Says whether a compaction of this process uses the reserve's part for its copy. It restores the part once it has removed what it
/// replaces: earlier, disk use would pass its bound (rule R5). Shared by all who may restore it, a background thread among them.
final class CopyReserveFlag: Sendable {
  private let state = Atomic(false)

  var isHeld: Bool { state.load(ordering: .acquiring) }
  func set(_ isHeld: Bool) { state.store(isHeld, ordering: .releasing) }
}

/// What an append is for: how much of the last space it may use. Ordered by that.
enum SpaceClaim: Comparable {
  /// Puts and all else: only what is left besides the reserve.
  case ordinary
  /// Deletes, and what a copy notes for itself.
  case reclaiming
  /// The records that a compaction, or an opening, cannot do without.
  case compaction
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
    case .write(let record, _), .parked(let record, _): record.isTombstone
    case .loser: false
    case .local, .checkpoint, .purge: true
    }
  }
}

extension Journal {
  var reserve: SpaceReserve {
    SpaceReserve(
      directory: directory, storage: environment.storage, largestSegment: largestSegment,
      largestPresent: segments.reduce(0) { max($0, $1.mapping.count) }, copyHold: copyHold)
  }

  /// The largest segment that may be begun now, in bytes: at most a sixteenth of what the disk has for this journal, because the
  /// reserve has to have room for the copy of one.
  var largestForDisk: Int {
    guard let free = try? environment.storage.freeBytes(directory) else { return largestSegment }
    let capacity = (free / 16).addingReportingOverflow(UInt64(fileBytes / 16)).partialValue
    let unit = Self.smallestSegment
    return min(largestSegment, max(Self.firstSegment, Int(min(capacity, 1 << 40)) / unit * unit))
  }
}

extension Store {
  var reserve: SpaceReserve { engine.withLock { $0.journal.reserve } }

  /// Puts back what was taken of the reserve, if there is space again.
  func restoreReserve(_ engine: borrowing Engine) {
    let reserve = engine.journal.reserve
    switch environment.compactionMode {
    case .background: Background.run { try? reserve.restore() }
    case .byNextWriter, .onRequest: try? reserve.restore()
    }
  }
}
