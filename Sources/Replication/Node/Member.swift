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

    /// Why a copy with this right must not write keys of the user's; nil if it may.
    package var denial: WriteDenial? {
      switch self {
      case .readWrite: nil
      case .readOnly: .readOnly
      case .revoked: .revoked
      }
    }

    /// The right that an invitation gives.
    package init(_ right: MemberRight) { self = right == .readOnly ? .readOnly : .readWrite }
  }

  /// Addresses that are kept of a member.
  package static let maximumAddresses = MemberRecord.maximumAddresses

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

  /// Placeholder for a member whose record cannot be decoded. Its right is `.revoked`, so that no copy admits the device, even if it
  /// is pinned as a peer; its name is derived from the key, so that an operator can revoke it or set its right again.
  package init(unreadable device: DeviceID) {
    self.init(
      device: device, name: "unreadable-\(Hex.string(of: Array(device.bytes.prefix(4))))", right: .revoked,
      addresses: [],
      joined: 0)
  }

  /// The member that a record describes; `init(unreadable:)` if it cannot be read.
  package init(device: DeviceID, record: [UInt8]) {
    do throws(DecodingFailure) {
      try self.init(device: device, bytes: record)
    } catch {
      self.init(unreadable: device)
    }
  }

  /// The value of its record.
  package var bytes: [UInt8] {
    MemberRecord(right: right.rawValue, joined: joined, name: name, addresses: addresses).bytes
  }

  /// The member that a record's value describes. Bytes after the known fields are those of a newer version and are
  /// passed over.
  package init(device: DeviceID, bytes: [UInt8]) throws(DecodingFailure) {
    let record = try MemberRecord(bytes: bytes)
    // A right that is not known here must not let anybody in.
    let right = Right(rawValue: record.right) ?? .revoked
    self.init(
      device: device, name: record.name, right: right, addresses: record.addresses, joined: record.joined)
  }
}
