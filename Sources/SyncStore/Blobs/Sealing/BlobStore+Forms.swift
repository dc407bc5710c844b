/// How an object is stored: unencrypted under the hash of its content, or, in an encrypted store, encrypted
/// under a keyed hash of that hash.
struct StoredBlobDescriptor: Sendable {
  /// The object, by its content.
  let reference: BlobReference
  /// Its stored name.
  let name: BlobHash
  /// Its stored size.
  let size: UInt64
  /// The keys that encrypt it; nil if it is not encrypted.
  let keys: BlobKeys?

  init(_ reference: BlobReference, _ keys: BlobKeys?) {
    (self.reference, self.keys) = (reference, keys)
    name = keys?.name(of: reference.hash) ?? reference.hash
    size = keys == nil ? reference.size : EncryptedBlobLayout.encryptedSize(reference.size)
  }

  var isEncrypted: Bool { keys != nil }

  /// The stored bytes of an object whose content is in memory.
  func stored(_ bytes: [UInt8], salt: [UInt8]) -> [UInt8] {
    guard let cipher = keys?.cipher(salt: salt) else { return bytes }
    return BlobEncryptor.object(bytes, reference: reference, cipher: cipher)
  }
}

extension BlobStore {
  /// The keys that encrypt new objects; nil if they are not encrypted.
  var writingKeys: BlobKeys? {
    guard let keys = keys.present(), keys.encrypts else { return nil }
    return keys
  }

  /// How the object is stored if it is written now.
  func descriptor(_ reference: BlobReference) -> StoredBlobDescriptor {
    StoredBlobDescriptor(reference, writingKeys)
  }

  /// A salt for one object.
  func newSalt() -> [UInt8] {
    var writer = ByteWriter(capacity: EncryptedBlobLayout.saltBytes)
    writer.write(random())
    writer.write(random())
    return writer.bytes
  }

  /// The cipher of a new object; nil if it is not to be encrypted.
  func newCipher() -> BlobCipher? { writingKeys?.cipher(salt: newSalt()) }

  /// Whether objects may have stored names other than their hashes.
  var hasKeyedNames: Bool { keys.present() != nil }

  /// The possible stored names of an object, that of new objects first.
  ///
  /// While a store is being encrypted or decrypted it has both kinds, and one encrypted by an earlier version
  /// has unencrypted objects.
  func names(of hash: BlobHash) -> [(name: BlobHash, isEncrypted: Bool)] {
    guard let keys = keys.present() else { return [(hash, false)] }
    let encrypted = (keys.name(of: hash), true)
    return keys.encrypts ? [encrypted, (hash, false)] : [(hash, false), encrypted]
  }

  /// Size of the content of an object of `size` stored bytes.
  static func contentSize(_ size: UInt64, isEncrypted: Bool) -> UInt64 {
    isEncrypted ? EncryptedBlobLayout.contentSize(size) : size
  }

  /// The encrypted object with this header.
  func encryptedBlob(header: [UInt8], path: String) throws(StoreError) -> EncryptedBlob? {
    guard let header = EncryptedBlobHeader(header), let keys = keys.present() else { return nil }
    if keys.master(header.generation) != nil { return EncryptedBlob(header, keys) }
    // Another process may have rotated the keys.
    try self.keys.refresh()
    guard let keys = self.keys.present(), keys.master(header.generation) != nil else {
      throw StoreError(
        .wrongKey,
        "a value is encrypted under generation \(header.generation), which the key file does not have: "
          + "restore the key file from a backup", path: path)
    }
    return EncryptedBlob(header, keys)
  }

  /// Whether the file holds exactly the object that its descriptor names; reads every byte.
  func isContent(_ file: any StorageFile, _ form: StoredBlobDescriptor) throws(StoreError) -> Bool {
    guard form.isEncrypted else { return try Self.hash(of: file).0 == form.name }
    guard
      let object = try encryptedBlob(
        header: try file.read(EncryptedBlobLayout.headerBytes, at: 0), path: file.path),
      object.hash == form.reference.hash, object.size == form.reference.size
    else { return false }
    return try Self.hash(of: file, object) == object.hash
  }

  /// The hash of the content of an encrypted file; nil if a piece was changed.
  static func hash(of file: any StorageFile, _ object: EncryptedBlob) throws(StoreError) -> BlobHash? {
    let hasher = SHA256Hasher()
    var offset: UInt64 = 0
    while offset < object.size {
      let range = offset..<min(object.size, offset + UInt64(pieceBytes))
      let place = object.place(of: range)
      let bytes = try file.read(place.bytes.count, at: Int(place.bytes.lowerBound))
      guard let plain = object.decrypt(bytes, from: place.first, range) else { return nil }
      hasher.update(plain)
      offset = range.upperBound
    }
    return BlobHash(sha256: hasher.finish())
  }

  /// Runs `body` with key rotation held off.
  ///
  /// - Throws: `.busy` if this thread is rotating the keys.
  func withKeysHeld<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
    guard keyRotationGate.enter() else {
      throw StoreError(.busy, "this thread is renewing the keys: try again afterwards", path: files.directory)
    }
    defer { keyRotationGate.leave() }
    return try body()
  }
}
