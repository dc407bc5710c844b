public import SyncStore

/// An installation that holds a copy: what all copies know of it. Kept as a replicated record of the store's own under
/// `ReservedKey.member`; `schemas/members.md` has the bytes.
public struct Member: Hashable, Sendable {
  /// What a member may do.
  public enum Right: UInt8, Hashable, Sendable, CaseIterable, CustomStringConvertible {
    /// Receive and send.
    case readWrite = 0
    /// Receive only.
    case readOnly = 1
    /// Nothing any more: it is not let in.
    case revoked = 2

    /// The name that `sync-cli` shows.
    public var description: String {
      switch self {
      case .readWrite: "read-write"
      case .readOnly: "read-only"
      case .revoked: "revoked"
      }
    }

    /// What it may do in a session; nil if nothing.
    package var inSession: MemberRight? {
      switch self {
      case .readWrite: .readWrite
      case .readOnly: .readOnly
      case .revoked: nil
      }
    }

    /// The right that an invitation gives.
    package init(_ right: MemberRight) { self = right == .readOnly ? .readOnly : .readWrite }
  }

  /// Addresses that are kept of a member.
  package static let maximumAddresses = 8
  private static let version: UInt8 = 1

  /// Who it is: the pin of its key.
  public let device: DeviceID
  /// What people call it: 1 to `Limits.nameBytes` bytes without blanks or slashes.
  public var name: String
  /// What it may do.
  public var right: Right
  /// Where it says that it can be reached, as `host:port`, at most 8. The nodes of this version say nothing, so it is empty, unless
  /// another program has set it: a peer is reached where the invitation said, or where `Membership.add(_:)` says.
  public var addresses: [String]
  /// When it became a member, in milliseconds since 1970.
  public var joined: UInt64

  /// All fields.
  package init(device: DeviceID, name: String, right: Right, addresses: [String], joined: UInt64) {
    (self.device, self.name, self.right) = (device, name, right)
    (self.addresses, self.joined) = (addresses, joined)
  }

  /// The value of its record.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 64)
    writer.write(Self.version)
    writer.write(right.rawValue)
    writer.write(joined)
    writer.write(text: name)
    writer.writeVariable(UInt64(addresses.count))
    for address in addresses { writer.write(text: address) }
    return writer.bytes
  }

  /// The member that a record's value describes. Bytes after the known fields are those of a newer version and are
  /// passed over.
  package init(device: DeviceID, bytes: [UInt8]) throws(DecodingFailure) {
    var reader = ByteReader(bytes)
    let version = try reader.read(UInt8.self)
    guard version >= Self.version else { throw DecodingFailure("member record of version \(version)") }
    // A right that is not known here must not let anybody in.
    let right = Right(rawValue: try reader.read(UInt8.self)) ?? .revoked
    let joined = try reader.read(UInt64.self)
    let name = try reader.readText(limit: Limits.nameBytes)
    guard StoreIdentity.isName(name) else { throw DecodingFailure("member's name") }
    var addresses: [String] = []
    for _ in 0..<(try reader.readCount(limit: Self.maximumAddresses)) {
      addresses.append(try reader.readText(limit: WireLimits.addressBytes))
    }
    self.init(device: device, name: name, right: right, addresses: addresses, joined: joined)
  }
}
