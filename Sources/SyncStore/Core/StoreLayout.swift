/// File names in a store's directory, and lock bytes of its control file.
enum StoreLayout {
  static let journal = "journal"
  static let blobs = "blobs"
  static let control = "control"
  /// Locked, shared or exclusively, by every process that has the store open.
  static let presenceByte = 0
  /// Locked while a process enters.
  static let entranceByte = 1
  /// Locked by the process that compacts.
  static let compactionByte = 2
  /// Locked by the process that changes a secret file.
  static let keyFilesByte = 3
  /// Locked, through an open file of its own, by the node whose address is recorded.
  static let listenerByte = 4
  /// Locked, through an open file of its own, by the one process that works on a relay of this copy.
  static let relayByte = 5
}
