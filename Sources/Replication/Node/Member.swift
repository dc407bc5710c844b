public import SyncStore

/// An installation that holds a copy, as all copies know it. Stored as a replicated record of the store's own
/// under `ReservedKey.member`; `schemas/members.md` describes the bytes.
public struct Member: Hashable, Sendable {
  /// The rights of a member.
  public enum Right: UInt8, Hashable, Sendable, CaseIterable, CustomStringConvertible {
    /// Receive and send.
    case readWrite = 0
    /// Receive only.
    case readOnly = 1
    /// Neither: it is not admitted.
    case revoked = 2

    /// The name that `sync-cli` shows.
    public var description: String {
      switch self {
      case .readWrite: "read-write"
      case .readOnly: "read-only"
      case .revoked: "revoked"
      }
    }

    /// The right within a session; nil if revoked.
    package var inSession: MemberRight? {
      switch self {
      case .readWrite: .readWrite
      case .readOnly: .readOnly
      case .revoked: nil
      }
    }

    /// Why a copy with this right must not write user keys; nil if it may.
    package var denial: WriteDenial? {
      switch self {
      case .readWrite: nil
      case .readOnly: .readOnly
      case .revoked: .revoked
      }
    }

    /// The right that an invitation grants.
    package init(_ right: MemberRight) { self = right == .readOnly ? .readOnly : .readWrite }
  }

  /// Upper bound on the addresses kept of a member.
  package static let maximumAddresses = MemberRecord.maximumAddresses

  /// Its identity: the pin of its key.
  public let device: DeviceID
  /// Its name: 1 to `Limits.nameBytes` bytes without blanks or slashes.
  public var name: String
  /// Its right.
  public var right: Right
  /// Where it says that it can be reached, as `host:port`, at most 8. Nodes of this version state none, so it
  /// is empty unless another program has set it; peers are reached at the address of the invitation or of
  /// `Membership.add(_:)`.
  public var addresses: [String]
  /// When it became a member, in milliseconds since 1970.
  public var joined: UInt64

  /// A member with the given fields.
  package init(device: DeviceID, name: String, right: Right, addresses: [String], joined: UInt64) {
    (self.device, self.name, self.right) = (device, name, right)
    (self.addresses, self.joined) = (addresses, joined)
  }

  /// Stand-in for a member whose record cannot be decoded. Its right is `.revoked`, so that no copy admits
  /// the device, even if it is pinned as a peer; its name is derived from the key, so that an operator can
  /// revoke it or set its right again.
  package init(unreadable device: DeviceID) {
    self.init(
      device: device, name: "unreadable-\(Hex.string(of: Array(device.bytes.prefix(4))))", right: .revoked,
      addresses: [],
      joined: 0)
  }

  /// The member that a record describes; `init(unreadable:)` if it cannot be read. `givenName` is the name
  /// that it was given since it joined, if any.
  package init(device: DeviceID, record: [UInt8], givenName: String?) {
    do throws(DecodingFailure) {
      try self.init(device: device, bytes: record)
    } catch {
      self.init(unreadable: device)
    }
    if let givenName { name = givenName }
  }

  /// The value of its record.
  package var bytes: [UInt8] {
    MemberRecord(right: right.rawValue, joined: joined, name: name, addresses: addresses).bytes
  }

  /// Decodes the value of a member's record. Bytes after the known fields belong to a newer version and are
  /// skipped.
  package init(device: DeviceID, bytes: [UInt8]) throws(DecodingFailure) {
    let record = try MemberRecord(bytes: bytes)
    // An unknown right must not admit the device.
    let right = Right(rawValue: record.right) ?? .revoked
    self.init(
      device: device, name: record.name, right: right, addresses: record.addresses, joined: record.joined)
  }
}
