/// Layout of an encrypted object (`schemas/blobs.md`, "Encrypted objects").
enum EncryptedBlobLayout {
  /// "SYNCBLOB" as its first eight bytes.
  static let magic: UInt64 = 0x424F_4C42_434E_5953
  static let version: UInt16 = 1
  static let headerBytes = 96
  /// Bytes of the header that are authenticated, but not encrypted.
  static let clearBytes = 40
  static let saltBytes = 16
  /// Bytes of content in one piece: a range is read by decrypting the pieces that it touches.
  static let pieceBytes = 64 << 10
  /// Its binary logarithm, as stored in the header.
  static let pieceLog: UInt16 = 16
  /// Bytes of a full encrypted piece.
  static let encryptedPieceBytes = pieceBytes + BlobCipher.overhead
  /// The piece number under which the hash of the content is encrypted.
  static let hashNumber = UInt32.max

  /// Stored size of an object with `size` bytes of content.
  static func encryptedSize(_ size: UInt64) -> UInt64 {
    let pieces = (size + UInt64(pieceBytes) - 1) / UInt64(pieceBytes)
    return UInt64(headerBytes) + size + pieces * UInt64(BlobCipher.overhead)
  }

  /// Size of the content in an object, complete or not, of `storedSize` bytes; a rest too short for a piece
  /// does not count.
  static func contentSize(_ storedSize: UInt64) -> UInt64 {
    guard storedSize > UInt64(headerBytes) else { return 0 }
    let (whole, rest) = (storedSize - UInt64(headerBytes)).quotientAndRemainder(
      dividingBy: UInt64(encryptedPieceBytes))
    let overhead = UInt64(BlobCipher.overhead)
    return whole * UInt64(pieceBytes) + (rest > overhead ? rest - overhead : 0)
  }

  /// Offset of a piece.
  static func offset(ofPiece number: UInt64) -> UInt64 {
    UInt64(headerBytes) + number * UInt64(encryptedPieceBytes)
  }
}

/// The header of an encrypted object.
struct EncryptedBlobHeader: Equatable, Sendable {
  let generation: UInt32
  let salt: [UInt8]
  /// Size of the content; 0 while the object is unfinished.
  let size: UInt64
  /// The encrypted hash of the content; zeros while the object is unfinished.
  let encryptedHash: [UInt8]

  /// The header of an unfinished object.
  init(unfinished cipher: BlobCipher) {
    (generation, salt, size) = (cipher.generation, cipher.salt, 0)
    encryptedHash = [UInt8](
      repeating: 0, count: EncryptedBlobLayout.headerBytes - EncryptedBlobLayout.clearBytes)
  }

  /// The header of a complete object.
  init(_ reference: BlobReference, _ cipher: BlobCipher) {
    (generation, salt, size) = (cipher.generation, cipher.salt, reference.size)
    var encrypted: [UInt8] = []
    let clear = Self.clear(generation: generation, salt: salt, size: size)
    cipher.encrypt(
      reference.hash.bytes, 0..<SHA256.byteCount, number: EncryptedBlobLayout.hashNumber,
      authenticating: clear,
      appendingTo: &encrypted)
    encryptedHash = encrypted
  }

  /// Nil if it is no header.
  init?(_ bytes: RawSpan) {
    self.init([UInt8](copying: bytes.extracting(first: EncryptedBlobLayout.headerBytes)))
  }

  /// Nil if it is no header.
  init?(_ bytes: [UInt8]) {
    var reader = ByteReader(bytes)
    guard bytes.count >= EncryptedBlobLayout.headerBytes,
      let magic = try? reader.read(UInt64.self), magic == EncryptedBlobLayout.magic,
      let version = try? reader.read(UInt16.self), version == EncryptedBlobLayout.version,
      let log = try? reader.read(UInt16.self), log == EncryptedBlobLayout.pieceLog,
      let generation = try? reader.read(UInt32.self),
      let salt = try? reader.read(raw: EncryptedBlobLayout.saltBytes),
      let size = try? reader.read(UInt64.self),
      size <= Limits.blobBytes
    else { return nil }
    (self.generation, self.salt, self.size) = (generation, Array(salt), size)
    encryptedHash = Array(bytes[EncryptedBlobLayout.clearBytes..<EncryptedBlobLayout.headerBytes])
  }

  var encoded: [UInt8] { Self.clear(generation: generation, salt: salt, size: size) + encryptedHash }

  private static func clear(generation: UInt32, salt: [UInt8], size: UInt64) -> [UInt8] {
    var writer = ByteWriter(capacity: EncryptedBlobLayout.headerBytes)
    writer.write(EncryptedBlobLayout.magic)
    writer.write(EncryptedBlobLayout.version)
    writer.write(EncryptedBlobLayout.pieceLog)
    writer.write(generation)
    writer.write(raw: salt)
    writer.write(size)
    return writer.bytes
  }

  /// The hash of the content; nil if the header was changed, or the object is unfinished.
  func hash(_ cipher: BlobCipher) -> BlobHash? {
    let opened = cipher.decrypt(
      encryptedHash, number: EncryptedBlobLayout.hashNumber,
      authenticating: Self.clear(generation: generation, salt: salt, size: size))
    return opened.flatMap { BlobHash(bytes: $0) }
  }
}

/// An encrypted object with a verified header, ready to be read.
struct EncryptedBlob: Sendable {
  /// The hash of the content, as authenticated by its writer.
  let hash: BlobHash
  /// Bytes of the content.
  let size: UInt64
  let cipher: BlobCipher

  /// Nil if `header` is not the header of a complete object under one of the keys.
  init?(_ header: EncryptedBlobHeader, _ keys: BlobKeys) {
    guard let cipher = keys.master(header.generation)?.cipher(salt: header.salt),
      let hash = header.hash(cipher)
    else { return nil }
    (self.hash, size, self.cipher) = (hash, header.size, cipher)
  }

  /// Size of the stored object.
  var encryptedSize: UInt64 { EncryptedBlobLayout.encryptedSize(size) }

  /// The first piece and the stored byte range of the pieces that hold `range` of the content, which must not
  /// be empty.
  func place(of range: Range<UInt64>) -> (first: UInt64, bytes: Range<UInt64>) {
    let piece = UInt64(EncryptedBlobLayout.pieceBytes)
    let (first, last) = (range.lowerBound / piece, (range.upperBound - 1) / piece)
    let end = min(EncryptedBlobLayout.offset(ofPiece: last + 1), encryptedSize)
    return (first, EncryptedBlobLayout.offset(ofPiece: first)..<end)
  }

  /// Decrypts `range` of the content from the pieces from `first` on; nil if they were changed.
  func decrypt(_ pieces: RawSpan, from first: UInt64, _ range: Range<UInt64>) -> [UInt8]? {
    let piece = UInt64(EncryptedBlobLayout.pieceBytes)
    var output: [UInt8] = []
    output.reserveCapacity(Int(range.count))
    var (number, offset) = (first, 0)
    while offset < pieces.byteCount {
      let end = min(offset + EncryptedBlobLayout.encryptedPieceBytes, pieces.byteCount)
      guard let number32 = UInt32(exactly: number),
        let plain = cipher.decrypt(pieces.extracting(offset..<end), number: number32)
      else { return nil }
      let start = number * piece
      let from = range.lowerBound > start ? Int(range.lowerBound - start) : 0
      let to = min(UInt64(plain.count), range.upperBound - start)
      guard from <= to else { return nil }
      if from == 0, to == plain.count, output.isEmpty, end == pieces.byteCount { return plain }
      output.append(contentsOf: plain[from..<Int(to)])
      (number, offset) = (number + 1, end)
    }
    return output.count == Int(range.count) ? output : nil
  }
}

extension EncryptedBlob {
  /// Decrypts `range` of the content from the pieces from `first` on; nil if they were changed.
  func decrypt(_ pieces: [UInt8], from first: UInt64, _ range: Range<UInt64>) -> [UInt8]? {
    unsafe decrypt(pieces.span.bytes, from: first, range)
  }
}
