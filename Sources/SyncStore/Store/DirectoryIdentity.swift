/// Whether an open store is still in the directory where it was opened.
///
/// All file names are relative to the directory, which is held open (`Storage.anchored`): renaming it, or
/// putting another one in its place, changes nothing. Emptying it or exchanging its contents does: new files
/// would mix with another store's, or be lost. This is checked when files are created, not at each write.
extension StorePart {
  /// Whether `path` still leads to the directory that this instance has open.
  var isAtItsPath: Bool { get throws(StoreError) { try environment.storage.resolvesToAnchor(path) } }

  /// Checks that the directory still holds this store's control file, which is created once and never
  /// replaced.
  ///
  /// - Throws: `.poisoned` if it does not: no process writes any more.
  func checkDirectoryHoldsStore() throws(StoreError) {
    try checkIsHere(path + "/" + StoreLayout.control, file: controlFile)
  }

  /// Checks that the active segment still has its name, before another segment follows it.
  ///
  /// - Throws: `.poisoned` if it has not: no process writes any more.
  func checkHasName(_ segment: Segment) throws(StoreError) {
    try checkIsHere(journalDirectory + "/" + SegmentName(segment.number).text, file: segment.file)
  }

  /// Whether the directory still holds this store's control file. Does not poison: for preparatory work, so
  /// that the next writer reports the reason.
  var holdsStore: Bool {
    get throws(StoreError) { try isHere(path + "/" + StoreLayout.control, file: controlFile) }
  }

  private func isHere(_ path: String, file: any StorageFile) throws(StoreError) -> Bool {
    try environment.storage.status(path)?.inode == file.statusAtOpening.inode
  }

  private func checkIsHere(_ path: String, file: any StorageFile) throws(StoreError) {
    guard try !isHere(path, file: file) else { return }
    throw poisoned(
      by: StoreError(
        .inputOutput,
        "was removed while in use, or the directory was emptied or its contents replaced: restore it from a backup",
        path: path))
  }
}
