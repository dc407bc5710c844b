/// Encrypts content that arrives piece by piece. A value.
///
/// Its output are the bytes of the object after the header, in order.
struct BlobEncryptor {
  let cipher: BlobCipher
  /// Content of the incomplete piece.
  private var tail: [UInt8]
  private var number: UInt64

  /// Begins at piece `number`, whose first bytes are `tail`.
  init(_ cipher: BlobCipher, piece number: UInt64 = 0, tail: [UInt8] = []) {
    (self.cipher, self.number, self.tail) = (cipher, number, tail)
  }

  /// Encrypts the pieces completed by these bytes.
  mutating func encrypt(_ bytes: [UInt8]) -> [UInt8] {
    let size = EncryptedBlobLayout.pieceBytes
    var output: [UInt8] = []
    output.reserveCapacity((tail.count + bytes.count) / size * EncryptedBlobLayout.encryptedPieceBytes)
    var start = 0
    if !tail.isEmpty {
      start = min(size - tail.count, bytes.count)
      tail.append(contentsOf: bytes[..<start])
      if tail.count == size { flush(&output) }
    }
    while bytes.count - start >= size {
      cipher.encrypt(bytes, start..<start + size, number: UInt32(number), appendingTo: &output)
      (start, number) = (start + size, number + 1)
    }
    tail.append(contentsOf: bytes[start...])
    return output
  }

  /// Encrypts the last, incomplete piece, if any.
  mutating func finish() -> [UInt8] {
    var output: [UInt8] = []
    if !tail.isEmpty { flush(&output) }
    return output
  }

  private mutating func flush(_ output: inout [UInt8]) {
    cipher.encrypt(tail, 0..<tail.count, number: UInt32(number), appendingTo: &output)
    number += 1
    Secret.zero(&tail)
    tail.removeAll(keepingCapacity: true)
  }

  /// The complete object for content in memory.
  static func object(_ bytes: [UInt8], reference: BlobReference, cipher: BlobCipher) -> [UInt8] {
    var object = EncryptedBlobHeader(reference, cipher).encoded
    object.reserveCapacity(Int(EncryptedBlobLayout.encryptedSize(UInt64(bytes.count))))
    let size = EncryptedBlobLayout.pieceBytes
    for (number, start) in stride(from: 0, to: bytes.count, by: size).enumerated() {
      cipher.encrypt(
        bytes, start..<min(start + size, bytes.count), number: UInt32(number), appendingTo: &object)
    }
    return object
  }
}

/// Writes the file of an object, encrypted if the store is. One owner at a time.
final class BlobSink {
  let file: any StorageFile
  /// Relative to the directory of the tier.
  let name: String
  private let store: BlobStore
  private var encryptor: BlobEncryptor?
  private var written: Int
  /// Bytes of content.
  private(set) var count: UInt64 = 0

  /// Begins a file under `partial/`, encrypted if the store is.
  ///
  /// Call it with the keys held (`withKeysHeld`): a key rotation relies on every unencrypted file begun
  /// before it being in `BlobStore.Memory.plainTemporaries`.
  init(_ store: BlobStore) throws(StoreError) {
    let cipher = store.newCipher()
    (file, name) = try store.files.begin()
    self.store = store
    encryptor = cipher.map { BlobEncryptor($0) }
    written = cipher == nil ? 0 : EncryptedBlobLayout.headerBytes
    if cipher == nil {
      let name = name
      store.memory.withLock { _ = $0.plainTemporaries.insert(name) }
    }
  }

  deinit {
    guard generation == 0 else { return }
    let name = name
    store.memory.withLock { _ = $0.plainTemporaries.remove(name) }
  }

  /// The generation of the key that encrypts it; 0 if it is not encrypted.
  var generation: UInt32 { encryptor?.cipher.generation ?? 0 }

  func append(_ bytes: [UInt8]) throws(StoreError) {
    try write(encryptor?.encrypt(bytes) ?? bytes)
    count += UInt64(bytes.count)
  }

  /// Writes the last piece and the header. Nothing is synced.
  func finish(_ reference: BlobReference) throws(StoreError) {
    guard encryptor != nil else { return }
    if let last = encryptor?.finish() { try write(last) }
    if let cipher = encryptor?.cipher {
      try file.write(EncryptedBlobHeader(reference, cipher).encoded, at: 0)
    }
  }

  private func write(_ bytes: [UInt8]) throws(StoreError) {
    guard !bytes.isEmpty else { return }
    try file.write(bytes, at: written)
    written += bytes.count
  }
}
