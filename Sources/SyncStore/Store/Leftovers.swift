/// Removes files, outside the journal, that killed processes have left in a store's directory.
///
/// Only for a process that has the directory to itself: a file still being written would be removed too.
enum Leftovers {
  /// Directory where earlier versions of the command-line tool staged values, unencrypted, before storing
  /// them.
  static let staging = "staging"

  /// Removes staged values. In an encrypted store also unfinished files of the blob tier, which may date from
  /// before the encryption; in an unencrypted store the sweep (`BlobStore.sweepOrphans`) removes those.
  static func remove(_ path: String, storage: any Storage, isEncrypted: Bool) throws(StoreError) {
    try removeStaged(path, storage: storage)
    guard isEncrypted else { return }
    let files = BlobFiles(storage: storage, directory: path + "/" + StoreLayout.blobs)
    _ = try files.removeTemporaries()
  }

  /// Removes values staged by a killed command.
  static func removeStaged(_ path: String, storage: any Storage) throws(StoreError) {
    try storage.removeTree(path + "/" + staging)
  }
}
