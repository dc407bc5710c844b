/// Whether the node that noted its address is alive: a lock of an open file (OFD) on one byte of the control file. The kernel takes it away when
/// the process ends, however that comes about, and it is seen from every PID namespace.
extension Store {
  /// Claims to be the one whose address is noted, for as long as the file stays open; nil if another node has claimed that.
  ///
  /// A file of its own, not the store's: locks belong to open files, so that one process can ask for the lock that it holds itself.
  package func claimListening() throws(StoreError) -> (any StorageFile)? {
    let file = try environment.storage.open(path + "/" + StoreLayout.control, .readWrite)
    return try file.lock(byte: StoreLayout.listenerByte, .exclusive, wait: false) ? file : nil
  }

  /// Is a node alive that has claimed to be the one whose address is noted?
  package func isListenedTo() throws(StoreError) -> Bool {
    let file = try environment.storage.open(path + "/" + StoreLayout.control, .readOnly)
    // A shared one: two who ask at once do not take each other for a node. It goes with the file.
    return try !file.lock(byte: StoreLayout.listenerByte, .shared, wait: false)
  }
}
