internal import Synchronization

/// Disk space that a store keeps allocated (ballast), so that it can always recover from a full disk by
/// itself (rule R1, F25).
///
/// Each part is a file that *becomes* what it was kept for by being renamed: no other program can take the
/// space between release and use. A missing part is allocated again before any segment for puts begins, so
/// that neither puts, deletes nor openings can use up what a compaction needs.
struct SpaceReserve: Sendable {
  /// Purpose of a reserve file, most important first: missing ones are restored in this order.
  enum Purpose: CaseIterable {
    /// A segment for the records that a compaction itself appends. Without it no compaction could begin.
    case records
    /// The copy that a compaction writes.
    case copy
    /// A segment for deletes.
    case segment
  }

  let directory: String
  let storage: any Storage
  /// The configured upper bound of a segment's size, in bytes.
  let largestSegment: Int
  /// Size of the largest existing segment, in bytes.
  let largestPresent: Int
  /// Set while the part for the copy is in use: it is not restored then, but space for it is left free.
  let copyHold: CopyReserveFlag

  /// The path of the reserve file for this purpose.
  func path(_ purpose: Purpose) -> String {
    switch purpose {
    case .records: directory + "/reserve.records"
    case .copy: directory + "/reserve.compacted"
    case .segment: directory + "/reserve"
    }
  }

  /// Bytes that the file should have if the next segment has `next` bytes.
  ///
  /// The copy of any one segment must fit in the reserve: otherwise a segment with many small live records
  /// could not be compacted on a full disk, however much of it is dead.
  func size(_ purpose: Purpose, next: Int = 0) -> Int {
    let unit = Journal.smallestSegment
    return switch purpose {
    // Space for the version vector of a copy that knows `Limits.actors` actors.
    case .records: 2 * unit
    case .copy: max(4 * unit, min(max(largestPresent, next), largestSegment))
    case .segment: max(unit, min(largestSegment / 64, 1 << 20) / unit * unit)
    }
  }

  /// Allocates what is missing of these parts. `next` is the size in bytes of a segment about to begin.
  ///
  /// - Throws: `.diskFull` if a part is still incomplete. It keeps what there was space for, and the next
  ///   call tries again.
  func restore(_ purposes: [Purpose] = Purpose.allCases, next: Int = 0) throws(StoreError) {
    for purpose in purposes {
      if purpose == .copy, copyHold.isHeld {
        try leaveRoomForCopy(besides: purposes, next: next)
      } else {
        try extend(purpose, to: size(purpose, next: next))
      }
    }
  }

  /// Checks that enough space stays free to allocate the copy part again while a compaction uses it:
  /// otherwise the next compaction could not copy, and a full disk would stay full.
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
    // While another thread or process allocates the part, any other allocation could take the space that it
    // needs.
    for _ in 0..<Self.attempts {
      if try extendUnlessBusy(purpose, to: size) { return }
      SystemCall.sleep(microseconds: 1000)
    }
  }

  /// Attempts of 1 ms each; after that the other thread or process is left to finish.
  private static let attempts = 200

  /// Returns false if another thread or process has the file locked.
  private func extendUnlessBusy(_ purpose: Purpose, to size: Int) throws(StoreError) -> Bool {
    let path = path(purpose)
    let present = try storage.status(path)
    if let present, present.kind == .file, present.size >= size { return true }
    let isNew = present?.kind != .file
    let name = isNew ? path + ".new" : path
    guard let file = try openToExtend(name, isNew: isNew) else { return false }
    // It may be taken as soon as it has its name, and must not stay locked.
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

  /// The file, locked; nil if another thread or process is using it, or took it between the open and the
  /// lock: then it may be a part of the journal by now.
  private func openToExtend(_ name: String, isNew: Bool) throws(StoreError) -> (any StorageFile)? {
    let opened = isNew ? try storage.open(name, .openOrCreate) : try storage.openIfPresent(name, .readWrite)
    guard let opened, try opened.lock(byte: 0, .exclusive, wait: false),
      try storage.status(name)?.inode == opened.status().inode
    else { return nil }
    return opened
  }

  /// Lengthens the file to `size` bytes, or as far as there is space. Returns the error that stopped it.
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

  /// Size in bytes of the reserve file for this purpose; 0 if it is missing.
  func present(_ purpose: Purpose) throws(StoreError) -> Int {
    guard let status = try storage.status(path(purpose)), status.kind == .file else { return 0 }
    return status.size
  }

  /// Takes the file for this purpose under another name; nil if it was taken already or has fewer than
  /// `bytes`.
  func acquire(_ purpose: Purpose, as newPath: String, atLeast bytes: Int) throws(StoreError) -> (
    any StorageFile
  )? {
    let path = path(purpose)
    guard try present(purpose) >= bytes, let file = try storage.openIfPresent(path, .readWrite) else {
      return nil
    }
    // A thread that is just lengthening it must not continue once it is a part of the journal.
    guard try file.lock(byte: 0, .exclusive, wait: true) else { return nil }
    defer { _ = try? file.lock(byte: 0, .none, wait: false) }
    guard try storage.status(path)?.inode == file.status().inode else { return nil }
    try storage.rename(path, to: newPath)
    // A compaction syncs all that it writes before it can be read.
    guard purpose != .copy, !file.beginsBlank else { return file }
    // Its old content could reappear after a power loss: allocate its space anew.
    let size = try file.status().size
    _ = try storage.remove(newPath)
    let fresh = try storage.open(newPath, .create)
    try fresh.allocate(to: size)
    return fresh
  }

  /// Puts an unchanged file back that `acquire` returned for this purpose.
  func putBack(_ purpose: Purpose, from path: String) {
    _ = try? storage.renameUnlessPresent(path, to: self.path(purpose))
  }

  /// Removes reserve files that were once segments (`Journal.removeUsed`). `restore` allocates others in
  /// their space.
  func removeIfUsed() throws(StoreError) {
    for purpose in [.records, .segment] as [Purpose] {
      let (path, size) = (path(purpose), try present(purpose))
      guard size > 0 else { continue }
      let mapping = try storage.open(path, .readOnly).map(size, writable: false)
      if mapping.lastNonZero(0..<size) != nil || mapping.fault != nil { _ = try storage.remove(path) }
    }
  }
}

/// Set while a compaction of this process uses the reserve's part for its copy.
///
/// The compaction restores the part only after removing the segments that it replaces: earlier, disk use
/// would exceed its bound (rule R5). Shared by all threads that may restore it, a background thread among
/// them.
final class CopyReserveFlag: Sendable {
  private let state = Atomic(false)

  var isHeld: Bool { state.load(ordering: .acquiring) }
  func set(_ isHeld: Bool) { state.store(isHeld, ordering: .releasing) }
}

/// Purpose of an append, ordered by how much of the last space it may use.
enum SpaceClaim: Comparable {
  /// Puts and all else: only the space outside the reserve.
  case ordinary
  /// Deletes, and a copy's records for itself.
  case reclaiming
  /// Records that a compaction or an opening cannot do without.
  case compaction
}

extension StorageFile {
  /// True if the header page is all zeros. Then the file was never a segment, and no old content can reappear
  /// after a power loss.
  var beginsBlank: Bool {
    guard let page = try? read(SegmentHeader.length, at: 0) else { return false }
    return page.allSatisfy { $0 == 0 }
  }
}

extension JournalEntry {
  /// True if it may be written with the last space: it marks data as dead, or concerns this copy alone.
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

  /// Size in bytes of the largest segment that may begin now: at most a sixteenth of the disk space available
  /// to this journal, because the reserve must hold the copy of one segment.
  var largestForDisk: Int {
    guard let free = try? environment.storage.freeBytes(directory) else { return largestSegment }
    let capacity = (free / 16).addingReportingOverflow(UInt64(fileBytes / 16)).partialValue
    let unit = Self.smallestSegment
    return min(largestSegment, max(Self.firstSegment, Int(min(capacity, 1 << 40)) / unit * unit))
  }
}
