package import SyncStore

/// The secrets of a copy, in files beside the store, for its owner alone (0600): `keys/device.pem`, which is who this
/// installation is, and `keys/group`, which all members share. Neither is ever part of the journal.
package struct StoreKeys: Sendable {
  private let directory: String
  private let storage: any Storage

  /// The keys of the store in the directory `path`. Nothing is read or made yet.
  package init(path: String, storage: any Storage) {
    directory = path + "/keys"
    self.storage = storage
  }

  /// The keys of an open store.
  package init(_ store: Store) { self.init(path: store.path, storage: store.environment.storage) }

  private var devicePath: String { directory + "/device.pem" }
  private var groupPath: String { directory + "/group" }

  /// The device's identity; made, durably, if there is none. The directory of the store must exist.
  package func makeIdentity() throws(ReplicationError) -> DeviceIdentity {
    if let identity = try readIdentity() { return identity }
    let identity = try DeviceIdentity.generate()
    try write(identity.pem, to: devicePath)
    return identity
  }

  /// The group keys; a first one is made, durably, if there are none.
  package func makeGroupKeys() throws(ReplicationError) -> GroupKeyRing {
    if let ring = try readGroupKeys() { return ring }
    let ring = GroupKeyRing(key: SecureRandom.bytes(GroupKeyRing.keyBytes))
    try replaceGroupKeys(with: ring)
    return ring
  }

  /// Puts a ring in place of the one there is, durably.
  package func replaceGroupKeys(with ring: GroupKeyRing) throws(ReplicationError) {
    try write(ring.text, to: groupPath)
  }

  /// The device's identity. `.cryptography` if there is none, or the file is not one.
  package func identity() throws(ReplicationError) -> DeviceIdentity {
    guard let identity = try readIdentity() else { throw missing(devicePath) }
    return identity
  }

  /// The group keys. `.cryptography` if there are none; `.protocolViolation` if the file is not one.
  package func groupKeys() throws(ReplicationError) -> GroupKeyRing {
    guard let ring = try readGroupKeys() else { throw missing(groupPath) }
    return ring
  }

  private func readIdentity() throws(ReplicationError) -> DeviceIdentity? {
    guard let text = try read(devicePath, limit: DeviceIdentity.maximumPEMBytes) else { return nil }
    return try DeviceIdentity(pem: text)
  }

  private func readGroupKeys() throws(ReplicationError) -> GroupKeyRing? {
    guard let text = try read(groupPath, limit: GroupKeyRing.maximumTextBytes) else { return nil }
    return try GroupKeyRing(text: text)
  }

  private func read(_ path: String, limit: Int) throws(ReplicationError) -> String? {
    let storage = storage
    return try ofStore { () throws(StoreError) in
      guard let status = try storage.status(path) else { return nil }
      guard status.permissions & 0o077 == 0 else {
        throw StoreError(.unsafeDirectory, "others can read this secret: run `chmod 600`", path: path)
      }
      return try storage.contents(of: path, limit: limit).map { String(decoding: $0, as: UTF8.self) }
    }
  }

  private func write(_ text: String, to path: String) throws(ReplicationError) {
    let (storage, directory) = (storage, directory)
    try ofStore { () throws(StoreError) in
      if try storage.createDirectory(directory) {
        try storage.syncDirectory(type(of: storage).directory(of: directory))
      }
      try storage.replace(path, with: Array(text.utf8))
    }
  }

  private func missing(_ path: String) -> ReplicationError {
    ReplicationError(
      .cryptography, "\(path) is missing: restore it from a backup, or begin anew with `init` or `join`")
  }
}

/// Runs `body`, and turns an error of the store into one of replication.
func ofStore<Answer>(_ body: () throws(StoreError) -> Answer) throws(ReplicationError) -> Answer {
  do throws(StoreError) {
    return try body()
  } catch {
    throw ReplicationError(error)
  }
}
