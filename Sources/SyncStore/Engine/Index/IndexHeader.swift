/// The part of the index's header that identifies its store and shows whether it can be trusted.
struct IndexHeader: Equatable {
  var store: StoreID
  /// The boot of the machine in which it was last written.
  var boot: UInt64
  var inode: UInt64
  var fileSystem: UInt64
  var birth: UInt64
  /// 16 random bytes that key the hash; with a check, the hash key is derived from them and a secret stored
  /// elsewhere.
  var secret: [UInt8]
  /// Verifies that secret; nil if there is none.
  var check: [UInt8]?

  init(store: StoreID, boot: UInt64, secret: [UInt8], check: [UInt8]?, _ status: FileStatus) {
    (self.store, self.boot, self.secret, self.check) = (store, boot, secret, check)
    (inode, fileSystem, birth) = (status.inode, status.fileSystem, status.birth)
  }

  /// Decodes the bytes of the header.
  ///
  /// - Throws: `.damaged` if they are; `.newerFormat` for a newer version.
  init(_ bytes: [UInt8], path: String) throws(StoreError) {
    typealias Field = IndexLayout.Header
    func integer(_ offset: Int, _ count: Int) -> UInt64 {
      bytes[offset..<offset + count].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    guard bytes.count == Field.fixedLength, Array(bytes[..<8]) == IndexLayout.magic,
      integer(Field.checksum, 8) == XXH3.hash64(Array(bytes[..<Field.checksum]), seed: 0)
    else { throw Self.damage(path) }
    let version = integer(Field.version, 2)
    guard version == IndexLayout.version,
      integer(Field.readerFeatures, 4) & ~IndexLayout.encryptedFeature == 0,
      integer(Field.writerFeatures, 4) == 0
    else {
      throw StoreError(
        .newerFormat, "is an index of version \(version) with features this program does not know: update it",
        path: path)
    }
    guard let store = StoreID(bytes: bytes[Field.store..<Field.boot]) else { throw Self.damage(path) }
    self.store = store
    boot = integer(Field.boot, 8)
    inode = integer(Field.inode, 8)
    fileSystem = integer(Field.fileSystem, 8)
    birth = integer(Field.birth, 8)
    secret = Array(bytes[Field.secret..<Field.secret + 16])
    let isEncrypted = integer(Field.readerFeatures, 4) & IndexLayout.encryptedFeature != 0
    check = isEncrypted ? Array(bytes[Field.check..<Field.check + IndexKeys.checkBytes]) : nil
  }

  private static func damage(_ path: String) -> StoreError {
    StoreError(.damaged, "its header is damaged: it is to be built anew", path: path)
  }

  /// Its bytes, with the checksum.
  var bytes: [UInt8] {
    var writer = ByteWriter()
    writer.write(raw: IndexLayout.magic)
    writer.write(IndexLayout.version)
    writer.write(UInt16(0))
    writer.write(UInt32(check == nil ? 0 : IndexLayout.encryptedFeature))
    for _ in 0..<2 { writer.write(UInt32(0)) }
    writer.write(raw: store.bytes)
    for word in [boot, inode, fileSystem, birth] { writer.write(word) }
    writer.write(raw: secret)
    if let check { writer.write(raw: check) }
    writer.write(raw: [UInt8](repeating: 0, count: IndexLayout.Header.checksum - writer.bytes.count))
    writer.write(XXH3.hash64(writer.bytes, seed: 0))
    return writer.bytes
  }

  /// True if it was written to this very file, not copied into it.
  func isOf(_ status: FileStatus) -> Bool { inode == status.inode && birth == status.birth }
}
