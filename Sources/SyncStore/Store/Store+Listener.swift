/// Liveness of the node whose address is recorded: an open-file-description (OFD) lock on one byte of the
/// control file. The kernel releases it however the process ends, and it is visible from every PID namespace.
extension Store {
  /// Claims to be the node whose address is recorded, until the returned file is closed; nil if another node
  /// holds the claim.
  ///
  /// Opens its own file instead of using the store's: locks belong to open files, so a process can test the
  /// lock that it holds itself.
  package func claimListening() throws(StoreError) -> (any StorageFile)? {
    let file = try environment.storage.open(path + "/" + StoreLayout.control, .readWrite)
    return try file.lock(byte: StoreLayout.listenerByte, .exclusive, wait: false) ? file : nil
  }

  /// Whether a live node has claimed the recorded address.
  package func isListenedTo() throws(StoreError) -> Bool {
    let file = try environment.storage.open(path + "/" + StoreLayout.control, .readOnly)
    // A shared lock, so that two concurrent queries do not take each other for a node. Released with the
    // file.
    return try !file.lock(byte: StoreLayout.listenerByte, .shared, wait: false)
  }
}
