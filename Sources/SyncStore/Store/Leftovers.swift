/// Removes what killed processes have left in a store's directory, other than in its journal.
///
/// Only for a process that has the directory alone: a file that somebody still writes would go with the rest.
enum Leftovers {
  /// Where earlier versions of the command-line tool kept a value, unencrypted, while they took it in.
  static let staging = "staging"

  /// Removes staged values, and in an encrypted store unfinished files of the blob tier, which may be of a time before it was
  /// encrypted. In a plain store the sweep of the blob tier (`BlobStore.sweepOrphans`) removes those.
  static func remove(_ path: String, storage: any Storage, isEncrypted: Bool) throws(StoreError) {
    try removeStaged(path, storage: storage)
    guard isEncrypted else { return }
    let files = BlobFiles(storage: storage, directory: path + "/" + StoreLayout.blobs)
    _ = try files.removeTemporaries()
  }

  /// Removes values that a killed command had staged.
  static func removeStaged(_ path: String, storage: any Storage) throws(StoreError) {
    try storage.removeTree(path + "/" + staging)
  }
}
