/// Small secret files in `keys/`, encrypted where the store is encrypted (`schemas/keys.md`).
///
/// `changing` is taken before the lock of the control file, and excludes other threads as that excludes other
/// processes.
final class KeyFiles: StorePart {
  let core: OpenStore
  private let changing = LockedField((), rank: .keyFiles)

  init(_ core: OpenStore) { self.core = core }

  private static let encryptedHeader = Array("syncstore-sealed 1\n".utf8)
  private static let keyFilesDirectory = JournalKeys.directory + "/"
  /// Bytes that encryption adds, and the size limit of a secret file.
  private static let encryptionOverhead = encryptedHeader.count + AES256GCM.nonceBytes + AES256GCM.tagBytes
  private static let keyFileLimit = 1 << 20

  /// `Store.readKeyFile`.
  func read(_ name: String, limit: Int) throws(StoreError) -> [UInt8]? {
    let file = path + "/" + Self.keyFilesDirectory + name
    guard let status = try environment.storage.status(file) else { return nil }
    guard status.permissions & 0o077 == 0 else {
      throw StoreError(.unsafeDirectory, "others can read this secret: run `chmod 600`", path: file)
    }
    guard let bytes = try environment.storage.contents(of: file, limit: limit + Self.encryptionOverhead)
    else {
      return nil
    }
    guard bytes.starts(with: Self.encryptedHeader) else {
      guard journalKeys.ring.map(\.acceptsPlain) ?? true else {
        throw StoreError(
          .foreignFile, "is not encrypted, though the store is: it was put here; restore it from a backup",
          path: file)
      }
      return bytes
    }
    guard let ring = journalKeys.ring else {
      throw StoreError(
        .damaged, "is encrypted, and the key file is missing: restore \(journalKeys.path) from a backup",
        path: file)
    }
    let nonce = Array(bytes.dropFirst(Self.encryptedHeader.count).prefix(AES256GCM.nonceBytes))
    let encrypted = bytes.dropFirst(Self.encryptedHeader.count + AES256GCM.nonceBytes)
    var key = ring.derived(AES256GCM.keyBytes, for: "syncstore file v1")
    defer { Secret.zero(&key) }
    guard nonce.count == AES256GCM.nonceBytes,
      let plain = try? AES256GCM.decrypt(encrypted, key: key, nonce: nonce, authenticating: Array(name.utf8))
    else { throw StoreError(.damaged, "was changed: restore it from a backup", path: file) }
    return plain
  }

  /// Replaces a secret file durably.
  func write(_ name: String, _ bytes: [UInt8]) throws(StoreError) {
    let storage = environment.storage
    let directory = path + "/" + JournalKeys.directory
    // An existing directory may be left from a process killed before it was made durable.
    _ = try storage.createDirectory(directory)
    try storage.syncDirectory(path)
    // While a store is being decrypted, nothing may be encrypted under keys that are about to be removed.
    let ring = journalKeys.ring.flatMap { $0.current == 0 ? nil : $0 }
    try storage.replace(
      directory + "/" + name, with: ring.map { encrypted(name: name, bytes: bytes, ring: $0) } ?? bytes)
  }

  private func encrypted(name: String, bytes: [UInt8], ring: KeyRing) -> [UInt8] {
    var key = ring.derived(AES256GCM.keyBytes, for: "syncstore file v1")
    var nonces = ring.derived(32, for: "syncstore file nonce v1")
    defer {
      Secret.zero(&key)
      Secret.zero(&nonces)
    }
    // The nonce is derived from random bytes, name and content: if the randomness repeats, a nonce repeats
    // only for identical content.
    let message = environment.random(32) + Array(name.utf8) + [0] + bytes
    let nonce = Array(HMACSHA256.code(for: message, key: nonces).prefix(AES256GCM.nonceBytes))
    return Self.encryptedHeader + nonce
      + AES256GCM.encrypt(bytes, key: key, nonce: nonce, authenticating: Array(name.utf8))
  }

  /// `Store.changeKeyFiles`.
  func change(_ body: () throws(StoreError) -> Void) throws(StoreError) {
    try changing.withLock { _ throws(StoreError) in
      guard try controlFile.lock(byte: StoreLayout.keyFilesByte, .exclusive, wait: true) else {
        throw StoreError(.busy, "another process changes its keys: try again", path: path)
      }
      defer { _ = try? controlFile.lock(byte: StoreLayout.keyFilesByte, .none, wait: false) }
      try body()
    }
  }

  /// Rewrites the secret files that are not in the wanted form: encrypted, or in the clear with `isPlain`.
  ///
  /// `body` runs before the lock is released, so no other process can write a file in the old form in
  /// between.
  func rewrite(
    isPlain: Bool = false, then body: () throws(StoreError) -> Void = {}
  ) throws(StoreError) {
    let storage = environment.storage
    let directory = path + "/" + JournalKeys.directory
    guard let ring = journalKeys.ring, try storage.status(directory) != nil else { return try body() }
    try change { () throws(StoreError) in
      try rewrite(in: directory, isPlain: isPlain, ring)
      try body()
    }
  }

  private func rewrite(in directory: String, isPlain: Bool, _ ring: KeyRing) throws(StoreError) {
    let storage = environment.storage
    for name in try storage.list(directory) where directory + "/" + name != journalKeys.path {
      let file = directory + "/" + name
      if name.hasSuffix(".new") {
        _ = try storage.remove(file)
        continue
      }
      guard let bytes = try storage.contents(of: file, limit: Self.keyFileLimit),
        bytes.starts(with: Self.encryptedHeader) == isPlain
      else { continue }
      if isPlain {
        guard let plain = try read(name, limit: Self.keyFileLimit) else { continue }
        try storage.replace(file, with: plain)
      } else {
        try storage.replace(file, with: encrypted(name: name, bytes: bytes, ring: ring))
      }
    }
  }
}

extension Store {
  /// The content of `keys/` + `name`; nil if there is none.
  ///
  /// - Throws: `.damaged` if it was tampered with; `.unsafeDirectory` if other users can read it;
  ///   `.foreignFile` if it is longer than `limit` bytes.
  package func readKeyFile(_ name: String, limit: Int) throws(StoreError) -> [UInt8]? {
    try rekeyer.keyFiles.read(name, limit: limit)
  }

  /// Replaces a secret file durably.
  package func writeKeyFile(_ name: String, _ bytes: [UInt8]) throws(StoreError) {
    try rekeyer.keyFiles.write(name, bytes)
  }

  /// Excludes all other threads and processes from changing secret files during `body`, so that it can read,
  /// modify and write.
  package func changeKeyFiles(_ body: () throws(StoreError) -> Void) throws(StoreError) {
    try rekeyer.keyFiles.change(body)
  }

  /// Rewrites the secret files that are not in the wanted form: encrypted.
  package func rewriteKeyFiles() throws(StoreError) { try rekeyer.keyFiles.rewrite() }
}
