/// A member's record, stored under `ReservedKey.member`: the single encoder and decoder of its bytes
/// (`schemas/members.md`). `Replication` defines the meaning of the rights.
package struct MemberRecord: Hashable, Sendable {
  /// The most addresses kept of a member.
  package static let maximumAddresses = 8
  /// The most bytes of one of them.
  package static let addressBytes = 255
  private static let version: UInt8 = 1

  /// The member's right, in its encoded form.
  package var right: UInt8
  /// When it became a member, in milliseconds since 1970.
  package var joined: UInt64
  /// Display name.
  package var name: String
  /// Addresses at which it says that it can be reached.
  package var addresses: [String]

  /// All fields.
  package init(right: UInt8, joined: UInt64, name: String, addresses: [String]) {
    (self.right, self.joined, self.name, self.addresses) = (right, joined, name, addresses)
  }

  /// The value of the record.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 64)
    writer.write(Self.version)
    writer.write(right)
    writer.write(joined)
    writer.write(text: name)
    writer.writeVariable(UInt64(addresses.count))
    for address in addresses { writer.write(text: address) }
    return writer.bytes
  }

  /// Decodes the value of a record. Bytes after the known fields are those of a newer version and are
  /// skipped.
  ///
  /// - Throws: `DecodingFailure` if it is no member's record, has an invalid name, or more addresses than a
  ///   member has.
  package init(bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    let version = try reader.read(UInt8.self)
    guard version >= Self.version else { throw DecodingFailure("member record of version \(version)") }
    right = try reader.read(UInt8.self)
    joined = try reader.read(UInt64.self)
    name = try reader.readText(limit: Limits.nameBytes)
    guard StoreIdentity.isName(name) else { throw DecodingFailure("member's name") }
    addresses = []
    for _ in 0..<(try reader.readCount(limit: Self.maximumAddresses)) {
      addresses.append(try reader.readText(limit: Self.addressBytes))
    }
  }
}

/// The name that a member was given after it joined, stored under `ReservedKey.memberName`
/// (`schemas/members.md`).
package enum MemberNameRecord {
  private static let version: UInt8 = 1

  /// The value of the record.
  package static func bytes(of name: String) -> [UInt8] {
    var writer = ByteWriter(capacity: 64)
    writer.write(version)
    writer.write(text: name)
    return writer.bytes
  }

  /// The name in the value of a record; nil if it cannot be read. Bytes after it are those of a newer version
  /// and are skipped.
  package static func name(in bytes: [UInt8]) -> String? {
    var reader = ByteReader(bytes)
    guard let version = try? reader.read(UInt8.self), version >= Self.version,
      let name = try? reader.readText(limit: Limits.nameBytes), StoreIdentity.isName(name)
    else { return nil }
    return name
  }
}
