/// Sizes and conditions of a store that are known without a pass over its keys, for metrics.
///
/// `StoreStatus` has the figures that need such a pass.
public struct StoreFigures: Hashable, Sendable {
  /// Entries of the index: keys with a value, deleted keys whose tombstone is kept, and the store's own keys.
  public internal(set) var indexedKeys = 0
  /// Files of the journal, and their bytes.
  public internal(set) var segments = 0, journalBytes: UInt64 = 0
  /// Bytes of records in closed segments that a compaction would keep, and that it would reclaim.
  public internal(set) var closedLiveBytes: UInt64 = 0, closedDeadBytes: UInt64 = 0
  /// The last position of the journal: it grows by one with each record of any writer.
  public internal(set) var position: UInt64 = 0
  /// Beaten concurrent values that are kept.
  public internal(set) var conflicts = 0
  /// Keys with records stamped too far ahead to be applied yet.
  public internal(set) var parked = 0
  /// Damaged places of the journal that are known, except those whose records were received again.
  public internal(set) var damagedPlaces = 0
  /// Bytes of compacted segments kept for readers of this process, and the number of those readers.
  public internal(set) var heldBytes: UInt64 = 0, readers = 0
  /// Bytes that the file system has free for this user.
  public internal(set) var freeBytes: UInt64 = 0
  /// Bytes of the space reserve that are allocated, and that should be: a recovery from a full disk needs
  /// all.
  public internal(set) var reserveBytes: UInt64 = 0, wantedReserveBytes: UInt64 = 0
  /// Whether the index is in the store's files. Otherwise this process has built one in memory, because
  /// the files were damaged or could not be written.
  public internal(set) var isIndexOnDisk = true
  /// Whether a sync has failed: nothing more is acknowledged until the store is reopened.
  public internal(set) var isPoisoned = false

  init() {}
}

extension Store {
  /// Sizes and conditions, in a time that does not depend on the number of keys: a pass over the segments,
  /// and a call for the free space.
  ///
  /// - Throws: `.closed`, `.forked`; `.inputOutput` if the file system does not answer.
  public func figures() throws(StoreError) -> StoreFigures {
    let reserve = core.reserve
    let freeBytes = try environment.storage.freeBytes(path)
    var figures = try reading { engine throws(StoreError) in
      var figures = engine.figures()
      figures.indexedKeys = try engine.index.hashIndex.count
      return figures
    }
    figures.freeBytes = freeBytes
    for purpose in SpaceReserve.Purpose.allCases {
      figures.reserveBytes += UInt64(try reserve.present(purpose))
      figures.wantedReserveBytes += UInt64(reserve.size(purpose))
    }
    figures.isPoisoned = control.poisoned
    return figures
  }
}

extension Engine {
  /// The figures of this view, without those of the disk and of the index.
  mutating func figures() -> StoreFigures {
    var figures = StoreFigures()
    figures.segments = journal.segments.count
    figures.journalBytes = UInt64(journal.fileBytes)
    let closed = deadAndLive
    (figures.closedDeadBytes, figures.closedLiveBytes) = (UInt64(closed.dead), UInt64(closed.live))
    figures.position = position
    figures.conflicts = losers.locations.count
    figures.parked = parked.count
    figures.damagedPlaces = unresolvedDamage.count
    releaseReplaced()
    figures.heldBytes = UInt64(heldBytes)
    figures.readers = pinned.all.count
    figures.isIndexOnDisk = index.isInFiles
    return figures
  }
}

/// Files of a store of one kind.
package struct FileUsage: Hashable, Sendable {
  /// The content of the files.
  package enum Kind: String, CaseIterable, Sendable {
    /// Segments of the journal.
    case segment
    /// The space reserve, and segments prepared for later.
    case reserve
    /// Large values, each in a file, and several in one.
    case object, pack
    /// Large values that are arriving, and damaged ones that were set aside.
    case partial, quarantine
    /// The catalogue of the blob tier.
    case catalogue
    /// Index, index checkpoint, control page, identity and keys.
    case other
  }

  /// The content of the files.
  package var kind: Kind
  /// Number of files.
  package var files = 0
  /// Bytes of the files, as their sizes say.
  package var bytes: UInt64 = 0
}

extension Store {
  /// The files of the store by kind. Visits every file: slow with many large values.
  package func fileUsage() throws(StoreError) -> [FileUsage] {
    var usage = FileUsage.Kind.allCases.map { FileUsage(kind: $0) }
    for file in try Self.files(at: path, environment.storage) {
      let kind = fileKind(of: file.path)
      guard let place = usage.firstIndex(where: { $0.kind == kind }) else { continue }
      usage[place].files += 1
      usage[place].bytes += UInt64(file.size)
    }
    return usage
  }

  private func fileKind(of file: String) -> FileUsage.Kind {
    let blobs = path + "/" + StoreLayout.blobs + "/"
    let parts: [(directory: String, kind: FileUsage.Kind)] = [
      (blobs + "objects/", .object), (blobs + "packs/", .pack), (blobs + "partial/", .partial),
      (blobs + "quarantine/", .quarantine), (blobs, .catalogue),
    ]
    if let part = parts.first(where: { file.utf8.starts(with: $0.directory.utf8) }) { return part.kind }
    let journal = journalDirectory + "/"
    guard file.utf8.starts(with: journal.utf8) else { return .other }
    return SegmentName(String(file.dropFirst(journal.count))) == nil ? .reserve : .segment
  }
}
