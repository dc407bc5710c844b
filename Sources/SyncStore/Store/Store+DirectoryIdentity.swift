/// Whether an open store still lies where it was opened.
///
/// All its files are named relative to its directory, which is held open (`Storage.anchored`): renaming the directory, or putting
/// another one in its place, changes nothing. Emptying it, or exchanging what is in it, does: new files would lie among those of
/// another store, or nowhere. That is looked for where files are made, not at each write.
extension Store {
  /// Does `path` still lead to the directory that this instance has open?
  var isAtItsPath: Bool { get throws(StoreError) { try environment.storage.resolvesToAnchor(path) } }

  /// Sees to it that the directory still holds this store's control file, which is made once and never replaced.
  ///
  /// - Throws: `.poisoned` if it does not: nobody writes any more.
  func checkDirectoryHoldsStore() throws(StoreError) {
    try checkIsHere(path + "/" + StoreLayout.control, file: controlFile)
  }

  /// Sees to it that the segment at the tail still has its name, before another one follows it.
  ///
  /// - Throws: `.poisoned` if it has not: nobody writes any more.
  func checkHasName(_ segment: Segment) throws(StoreError) {
    try checkIsHere(journalDirectory + "/" + SegmentName(segment.number).text, file: segment.file)
  }

  /// Does the directory still hold this store's control file? Poisons nothing: for work ahead of a writer, who is to be told why it fails.
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
