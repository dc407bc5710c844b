internal import SyncStore

/// Fields that several messages share.
extension ByteWriter {
  /// Appends 0, or 1 and the cursor.
  mutating func write(_ cursor: Cursor?) {
    guard let cursor else { return write(UInt8(0)) }
    write(UInt8(1))
    writeVariable(cursor.position)
    write(raw: cursor.mark.bytes)
    write(UInt8(cursor.closed ? 1 : 0))
  }
}

extension ByteReader {
  /// 0, or 1 and a cursor.
  mutating func readCursor() throws(DecodingFailure) -> Cursor? {
    guard try readFlag() else { return nil }
    return Cursor(position: try readVariable(), mark: try readMark(), closed: try readFlag())
  }

  /// One byte, 0 or 1.
  mutating func readFlag() throws(DecodingFailure) -> Bool {
    let byte = try read(UInt8.self)
    guard byte <= 1 else { throw DecodingFailure("flag \(byte)") }
    return byte == 1
  }

  /// The 16 bytes of a mark.
  mutating func readMark() throws(DecodingFailure) -> RoundMark {
    guard let mark = RoundMark(bytes: try read(raw: 16)) else { throw DecodingFailure("mark") }
    return mark
  }

  /// The 16 bytes of a store ID.
  mutating func readStoreID() throws(DecodingFailure) -> StoreID {
    guard let store = StoreID(bytes: try read(raw: 16)) else { throw DecodingFailure("store") }
    return store
  }

  /// The 16 bytes of a digest.
  mutating func readDigest() throws(DecodingFailure) -> StateDigest {
    guard let digest = StateDigest(bytes: try read(raw: 16)) else { throw DecodingFailure("digest") }
    return digest
  }

  /// The 32 bytes of a hash.
  mutating func readBlobHash() throws(DecodingFailure) -> BlobHash {
    guard let hash = BlobHash(bytes: try read(raw: 32)) else { throw DecodingFailure("hash") }
    return hash
  }

  /// The 8 bytes of a stamp; the maximum is no stamp (F51).
  mutating func readStamp() throws(DecodingFailure) -> Stamp {
    let stamp = Stamp(rawValue: try read(UInt64.self))
    guard stamp < .maximum else { throw DecodingFailure("stamp at its maximum") }
    return stamp
  }

  /// UTF-8 text of 1 to `Limits.nameBytes` bytes without control characters: fit to be shown on a terminal.
  mutating func readName() throws(DecodingFailure) -> String {
    let name = try readText(limit: Limits.nameBytes)
    guard !name.isEmpty, name == name.printable else {
      throw DecodingFailure("name is empty or not printable")
    }
    return name
  }

  /// One byte: the access right of a member.
  mutating func readRight() throws(DecodingFailure) -> MemberRight {
    let number = try read(UInt8.self)
    guard let right = MemberRight(rawValue: number) else { throw DecodingFailure("right \(number)") }
    return right
  }

  /// One byte: the health of a replica.
  mutating func readHealth() throws(DecodingFailure) -> ReplicaHealth {
    let number = try read(UInt8.self)
    guard let health = ReplicaHealth(rawValue: number) else {
      throw DecodingFailure("replica health \(number)")
    }
    return health
  }

  /// All bytes that are left.
  mutating func readRest() throws(DecodingFailure) -> [UInt8] { Array(try read(raw: remaining)) }
}

extension String {
  /// The text without control characters and bidirectional formatting characters, which a terminal would
  /// interpret.
  package var printable: String {
    String(
      String.UnicodeScalarView(
        unicodeScalars.filter {
          switch $0.properties.generalCategory {
          case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate: false
          default: true
          }
        }))
  }
}
