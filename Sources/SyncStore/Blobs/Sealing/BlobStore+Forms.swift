/// How an object lies here, or is to: under the hash of its content, as it is; or, in an encrypted store, sealed and under a
/// name that only who has the keys can make of that hash.
struct StoredBlobDescriptor: Sendable {
  /// The object, by its content.
  let reference: BlobReference
  /// What it is called on the disk.
  let name: BlobHash
  /// Bytes that it takes there.
  let size: UInt64
  /// What seals it; nil for nothing.
  let keys: BlobKeys?

  init(_ reference: BlobReference, _ keys: BlobKeys?) {
    (self.reference, self.keys) = (reference, keys)
    name = keys?.name(of: reference.hash) ?? reference.hash
    size = keys == nil ? reference.size : EncryptedBlobLayout.encryptedSize(reference.size)
  }

  var isEncrypted: Bool { keys != nil }

  /// The object, whose content is in memory.
  func stored(_ bytes: [UInt8], salt: [UInt8]) -> [UInt8] {
    guard let cipher = keys?.cipher(salt: salt) else { return bytes }
    return BlobEncryptor.object(bytes, reference: reference, cipher: cipher)
  }
}

extension BlobStore {
  /// The keys that seal what is written from now on; nil if nothing is.
  var writingKeys: BlobKeys? {
    guard let keys = keys.present(), keys.encrypts else { return nil }
    return keys
  }

  /// How the object is written now.
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

  /// What seals a new object; nil if it is to lie as it is.
  func newCipher() -> BlobCipher? { writingKeys?.cipher(salt: newSalt()) }

  /// May objects be called something else than their hash?
  var hasKeyedNames: Bool { keys.present() != nil }

  /// What the object may be called on the disk, as it is written now first. While a store is encrypted or decrypted it has both
  /// kinds, and one that an earlier version encrypted has objects that are not sealed.
  func names(of hash: BlobHash) -> [(name: BlobHash, isSealed: Bool)] {
    guard let keys = keys.present() else { return [(hash, false)] }
    let sealed = (keys.name(of: hash), true)
    return keys.encrypts ? [sealed, (hash, false)] : [(hash, false), sealed]
  }

  /// Bytes of the content of an object that takes `size` on the disk.
  static func contentSize(_ size: UInt64, isEncrypted: Bool) -> UInt64 {
    isEncrypted ? EncryptedBlobLayout.contentSize(size) : size
  }

  /// The sealed object with this header.
  ///
  /// - Returns: nil if the header was changed.
  /// - Throws: `.wrongKey` if its key is not in the key file.
  func encryptedBlob(header: [UInt8], path: String) throws(StoreError) -> EncryptedBlob? {
    guard let header = EncryptedBlobHeader(header), let keys = keys.present() else { return nil }
    if keys.master(header.generation) != nil { return EncryptedBlob(header, keys) }
    // Another process may have renewed the keys.
    try self.keys.refresh()
    guard let keys = self.keys.present(), keys.master(header.generation) != nil else {
      throw StoreError(
        .wrongKey,
        "a value is encrypted under generation \(header.generation), which the key file does not have: "
          + "restore the key file from a backup", path: path)
    }
    return EncryptedBlob(header, keys)
  }

  /// Is the file the object that its form says, with every byte?
  func isContent(_ file: any StorageFile, _ form: StoredBlobDescriptor) throws(StoreError) -> Bool {
    guard form.isEncrypted else { return try Self.hash(of: file).0 == form.name }
    guard
      let sealed = try encryptedBlob(
        header: try file.read(EncryptedBlobLayout.headerBytes, at: 0), path: file.path),
      sealed.hash == form.reference.hash, sealed.size == form.reference.size
    else { return false }
    return try Self.hash(of: file, sealed) == sealed.hash
  }

  /// The hash of the content of a sealed file; nil if a piece of it was changed.
  static func hash(of file: any StorageFile, _ sealed: EncryptedBlob) throws(StoreError) -> BlobHash? {
    let hasher = SHA256Hasher()
    var offset: UInt64 = 0
    while offset < sealed.size {
      let range = offset..<min(sealed.size, offset + UInt64(pieceBytes))
      let place = sealed.place(of: range)
      let bytes = try file.read(place.bytes.count, at: Int(place.bytes.lowerBound))
      guard let plain = sealed.decrypt(bytes, from: place.first, range) else { return nil }
      hasher.update(plain)
      offset = range.upperBound
    }
    return hash(hasher.finish())
  }

  /// Works while no renewal of keys waits until all know the new ones.
  func withKeysHeld<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
    guard keyRotationGate.enter() else {
      throw StoreError(.busy, "this thread renews the keys: try again behind it", path: files.directory)
    }
    defer { keyRotationGate.leave() }
    return try body()
  }
}
