package import SyncStore

/// The secrets of a copy, in files in the store's directory, readable only by their owner (0600):
/// `keys/device.pem`, the identity of this installation, and `keys/group`, which all members share. Neither
/// is ever part of the journal. In an encrypted store they are encrypted.
package struct StoreKeys: Sendable {
  private let directory: String
  private let storage: any Storage
  /// Nil while the store does not exist yet: files written then are not encrypted.
  private let store: Store?

  /// The keys of the store in the directory `path`. Reads and makes nothing yet.
  package init(path: String, storage: any Storage) {
    directory = path + "/keys"
    self.storage = storage
    store = nil
  }

  /// The keys of an open store.
  package init(_ store: Store) {
    directory = store.path + "/keys"
    storage = store.environment.storage
    self.store = store
  }

  private static let device = "device.pem"
  private static let group = "group"

  /// The device's identity; made durably if there is none. The directory of the store must exist.
  package func makeIdentity() throws(ReplicationError) -> DeviceIdentity {
    try withFilesLocked { () throws(ReplicationError) in
      if let identity = try readIdentity() {
        try syncDirectory()
        return identity
      }
      let identity = try DeviceIdentity.generate()
      try write(identity.pem, to: Self.device)
      return identity
    }
  }

  /// The group keys; the first one is made durably if there are none.
  package func makeGroupKeys() throws(ReplicationError) -> GroupKeyRing {
    try withFilesLocked { () throws(ReplicationError) in
      if let ring = try readGroupKeys() {
        try syncDirectory()
        return ring
      }
      let ring = GroupKeyRing(key: SecureRandom.bytes(GroupKeyRing.keyBytes))
      try replaceGroupKeys(with: ring)
      return ring
    }
  }

  /// Replaces the group key ring, durably.
  package func replaceGroupKeys(with ring: GroupKeyRing) throws(ReplicationError) {
    try write(ring.text, to: Self.group)
  }

  /// Adds group keys to the existing ones, durably.
  package func merge(_ given: GroupKeyRing) throws(ReplicationError) {
    try changeGroupKeys { ring throws(ReplicationError) in try ring.merge(given) }
  }

  /// Changes the group keys of an open store, durably, excluding concurrent changes.
  package func changeGroupKeys(
    _ change: (inout GroupKeyRing) throws(ReplicationError) -> Void
  ) throws(ReplicationError) {
    try withFilesLocked { () throws(ReplicationError) in
      var ring = try groupKeys()
      let before = ring
      try change(&ring)
      if ring != before { try replaceGroupKeys(with: ring) }
    }
  }

  /// Runs `body` while no other thread or process changes the key files.
  private func withFilesLocked<Answer>(_ body: () throws(ReplicationError) -> Answer) throws(ReplicationError)
    -> Answer
  {
    var result: Result<Answer, ReplicationError>?
    func run() { result = Result { () throws(ReplicationError) in try body() } }
    let (storage, store, path) = (storage, store, type(of: storage).directory(of: directory))
    try mappingStoreErrors { () throws(StoreError) in
      if let store {
        try store.changeKeyFiles { run() }
      } else {
        try Store.withCreationLock(at: path, storage: storage) { run() }
      }
    }
    guard let result else { preconditionFailure("it has run") }
    return try result.get()
  }

  /// The device's identity. `.cryptography` if there is none, or its file is invalid.
  package func identity() throws(ReplicationError) -> DeviceIdentity {
    guard let identity = try identityIfAny() else { throw missing(Self.device) }
    return identity
  }

  /// The device's identity; nil if there is none. `.cryptography` if its file is invalid.
  package func identityIfAny() throws(ReplicationError) -> DeviceIdentity? { try readIdentity() }

  /// The group keys. `.cryptography` if there are none, or their file is invalid.
  package func groupKeys() throws(ReplicationError) -> GroupKeyRing {
    guard let ring = try readGroupKeys() else { throw missing(Self.group) }
    return ring
  }

  private func readIdentity() throws(ReplicationError) -> DeviceIdentity? {
    guard let text = try read(Self.device, limit: DeviceIdentity.maximumPEMBytes) else { return nil }
    return try DeviceIdentity(pem: text)
  }

  private func readGroupKeys() throws(ReplicationError) -> GroupKeyRing? {
    guard let text = try read(Self.group, limit: GroupKeyRing.maximumTextBytes) else { return nil }
    do throws(ReplicationError) { return try GroupKeyRing(text: text) } catch {
      throw ReplicationError(
        .cryptography,
        "\(directory)/\(Self.group) is damaged: \(error.message): restore it from a backup, or join again")
    }
  }

  private func read(_ name: String, limit: Int) throws(ReplicationError) -> String? {
    let (storage, store, path) = (storage, store, directory + "/" + name)
    return try mappingStoreErrors { () throws(StoreError) in
      if let store {
        return try store.readKeyFile(name, limit: limit).map { String(decoding: $0, as: UTF8.self) }
      }
      guard let status = try storage.status(path) else { return nil }
      guard status.permissions & 0o077 == 0 else {
        throw StoreError(.unsafeDirectory, "others can read this secret: run `chmod 600`", path: path)
      }
      return try storage.contents(of: path, limit: limit).map { String(decoding: $0, as: UTF8.self) }
    }
  }

  private func write(_ text: String, to name: String) throws(ReplicationError) {
    let (storage, store, directory) = (storage, store, directory)
    try mappingStoreErrors { () throws(StoreError) in
      if let store { return try store.writeKeyFile(name, Array(text.utf8)) }
      _ = try storage.createDirectory(directory)
      try storage.syncDirectory(type(of: storage).directory(of: directory))
      try storage.replace(directory + "/" + name, with: Array(text.utf8))
    }
  }

  /// Syncs the directory: another process may have created the files without completing its sync, and others
  /// are about to be told of the keys.
  private func syncDirectory() throws(ReplicationError) {
    let (storage, directory) = (storage, directory)
    try mappingStoreErrors { () throws(StoreError) in try storage.syncDirectoryAndParent(directory) }
  }

  private func missing(_ name: String) -> ReplicationError {
    ReplicationError(
      .cryptography,
      "\(directory)/\(name) is missing: restore it from a backup, or begin anew with `Node.prepare` or `Node.join`"
    )
  }
}

/// Runs `body`, and converts a store error to a replication error.
func mappingStoreErrors<Answer>(_ body: () throws(StoreError) -> Answer) throws(ReplicationError) -> Answer {
  do throws(StoreError) {
    return try body()
  } catch {
    throw ReplicationError(error)
  }
}
