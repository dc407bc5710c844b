package import SyncStore

/// A one-time token with which a new device becomes a member: one word of text, printed by `invite`, passed
/// to `join`.
///
/// **It is a secret**: any holder can join until it is used or expires. `schemas/wire.md` has its bytes.
package struct Invitation: Hashable, Sendable {
  /// Addresses of the inviter: `host:port`, 1 to `WireLimits.invitationAddresses`; none if `relay` is set.
  package var addresses: [String]
  /// The inviter's pinned identity.
  package var inviter: DeviceID
  /// The shared secret: 16 random bytes.
  package var secret: [UInt8]
  /// Expiry in milliseconds since 1970, by the inviter's clock.
  package var expires: UInt64
  /// Access right of the new member.
  package var right: MemberRight
  /// The name of the store.
  package var storeName: String
  /// The relay in which members answer the request to join; nil if the inviter does, at its addresses.
  package var relay: RelayTicket?

  /// All fields.
  package init(
    addresses: [String], inviter: DeviceID, secret: [UInt8], expires: UInt64, right: MemberRight,
    storeName: String, relay: RelayTicket? = nil
  ) {
    (self.addresses, self.inviter, self.secret) = (addresses, inviter, secret)
    (self.expires, self.right, self.storeName) = (expires, right, storeName)
    self.relay = relay
  }

  /// Bytes of an id.
  package static let idBytes = 8
  /// Bytes of a secret.
  package static let secretBytes = 16
  private static let prefix = "syncstore1:"
  private static let version: UInt8 = 1
  /// The version of tokens with a relay.
  private static let relayVersion: UInt8 = 2
  private static let checksumBytes = 4

  /// Key for the inviter's look-up: 8 bytes that reveal nothing of the secret.
  package var id: [UInt8] { Self.id(of: secret) }

  static func id(of secret: [UInt8]) -> [UInt8] {
    Array(SHA256.hash(Array("syncstore invitation id".utf8) + secret).prefix(idBytes))
  }

  /// The token as text.
  package var text: String {
    var writer = ByteWriter(capacity: 128)
    writer.write(relay == nil ? Self.version : Self.relayVersion)
    writer.write(right.rawValue)
    writer.write(expires)
    writer.write(raw: inviter.bytes)
    writer.write(raw: secret)
    writer.write(text: storeName)
    writer.writeVariable(UInt64(addresses.count))
    for address in addresses { writer.write(text: address) }
    relay?.write(to: &writer)
    writer.write(raw: SHA256.hash(writer.bytes).prefix(Self.checksumBytes))
    return Self.prefix + Base64URL.text(of: writer.bytes)
  }

  /// Parses a token, ignoring surrounding blanks. `.invalidInvitation` if it is not exactly what `text`
  /// produces.
  package init(text: some StringProtocol) throws(ReplicationError) {
    let word = text.drop(while: \.isWhitespace)
    guard word.hasPrefix(Self.prefix) else {
      throw Self.invalid("it does not begin with \(Self.prefix)")
    }
    let end = word.lastIndex { !$0.isWhitespace }
    let encoded = word[...(end ?? word.startIndex)].dropFirst(Self.prefix.count)
    guard let bytes = Base64URL.bytes(of: encoded), bytes.count > Self.checksumBytes,
      Array(SHA256.hash(Array(bytes.dropLast(Self.checksumBytes))).prefix(Self.checksumBytes))
        == Array(bytes.suffix(Self.checksumBytes))
    else { throw Self.invalid("it was not copied whole") }
    do throws(DecodingFailure) {
      self = try Self.decoded(bytes.dropLast(Self.checksumBytes))
    } catch {
      throw Self.invalid(error.description)
    }
  }

  private static func decoded(_ bytes: ArraySlice<UInt8>) throws(DecodingFailure) -> Invitation {
    var reader = ByteReader(bytes)
    let version = try reader.read(UInt8.self)
    guard [Self.version, relayVersion].contains(version) else {
      throw DecodingFailure("version \(version) is not known here")
    }
    let right = try reader.readRight()
    let expires = try reader.read(UInt64.self)
    guard let inviter = DeviceID(bytes: try reader.read(raw: 32)) else { throw DecodingFailure("device") }
    let secret = Array(try reader.read(raw: secretBytes))
    let storeName = try reader.readName()
    var addresses: [String] = []
    let count = try reader.readCount(limit: WireLimits.invitationAddresses)
    guard count > 0 || version == relayVersion else { throw DecodingFailure("no address") }
    for _ in 0..<count {
      let address = try reader.readText(limit: WireLimits.addressBytes)
      guard !address.isEmpty, address.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
        throw DecodingFailure("address is empty or not printable")
      }
      addresses.append(address)
    }
    let relay = version == relayVersion ? try RelayTicket(&reader) : nil
    try reader.end()
    return Invitation(
      addresses: addresses, inviter: inviter, secret: secret, expires: expires, right: right,
      storeName: storeName, relay: relay)
  }

  private static func invalid(_ why: String) -> ReplicationError {
    ReplicationError(
      .invalidInvitation, "reading the invitation: \(why): copy the whole token, or invite again")
  }

  /// The inviter's record of it.
  package var pending: PendingInvitation {
    PendingInvitation(secret: secret, expires: expires, right: right, relay: relay?.name)
  }
}

/// The inviter's record of an invitation, kept only in its own store.
package struct PendingInvitation: Hashable, Sendable {
  /// The 16 secret bytes.
  package var secret: [UInt8]
  /// Expiry in milliseconds since 1970.
  package var expires: UInt64
  /// Access right of the new member.
  package var right: MemberRight
  /// The device that redeemed it. Only that device may redeem it again, in case the answer was lost.
  package var redeemer: DeviceID?
  /// The name on this copy of the relay in which it is answered; nil if that is the inviter's work.
  package var relay: String?

  /// All fields.
  package init(
    secret: [UInt8], expires: UInt64, right: MemberRight, redeemer: DeviceID? = nil, relay: String? = nil
  ) {
    (self.secret, self.expires, self.right) = (secret, expires, right)
    (self.redeemer, self.relay) = (redeemer, relay)
  }

  private static let noDevice = [UInt8](repeating: 0, count: 32)

  /// The id that a joiner sends.
  package var id: [UInt8] { Invitation.id(of: secret) }

  /// The stored bytes: secret, expiry, right, redeemer if any; with a relay, 32 zero bytes stand for none,
  /// and its name follows.
  package var bytes: [UInt8] {
    var writer = ByteWriter(capacity: 64)
    writer.write(raw: secret)
    writer.write(expires)
    writer.write(right.rawValue)
    writer.write(raw: redeemer?.bytes ?? (relay == nil ? [] : Self.noDevice))
    writer.write(raw: Array((relay ?? "").utf8))
    return writer.bytes
  }

  /// Parses stored bytes; nil if `bytes` could not have produced them.
  package init?(bytes: [UInt8]) {
    var reader = ByteReader(bytes)
    do throws(DecodingFailure) {
      secret = Array(try reader.read(raw: Invitation.secretBytes))
      expires = try reader.read(UInt64.self)
      right = try reader.readRight()
      let rest = Array(try reader.readRest())
      let device = Array(rest.prefix(Self.noDevice.count))
      guard rest.isEmpty || device.count == Self.noDevice.count else { return nil }
      let name = rest.dropFirst(device.count)
      relay = name.isEmpty ? nil : String(validating: name, as: UTF8.self)
      guard name.isEmpty || relay.map({ StoreIdentity.isName($0) }) == true else { return nil }
      redeemer = relay != nil && device == Self.noDevice ? nil : DeviceID(bytes: device)
    } catch {
      return nil
    }
  }
}

/// Base 64 with the alphabet that is safe in URLs and file names, without padding (RFC 4648 §5).
enum Base64URL {
  private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

  static func text(of bytes: [UInt8]) -> String {
    var text: [UInt8] = []
    var (bits, count): (UInt32, UInt32) = (0, 0)
    for byte in bytes {
      (bits, count) = (bits << 8 | UInt32(byte), count + 8)
      while count >= 6 {
        count -= 6
        text.append(alphabet[Int(bits >> count & 63)])
      }
    }
    if count > 0 { text.append(alphabet[Int(bits << (6 - count) & 63)]) }
    return String(decoding: text, as: UTF8.self)
  }

  /// Decodes text; nil for other characters, for a length that nothing encodes to, and for unused bits that
  /// are not zero.
  static func bytes(of text: some StringProtocol) -> [UInt8]? {
    var bytes: [UInt8] = []
    var (bits, count): (UInt32, UInt32) = (0, 0)
    for character in text.utf8 {
      guard let value = alphabet.firstIndex(of: character) else { return nil }
      (bits, count) = (bits << 6 | UInt32(value), count + 6)
      if count >= 8 {
        count -= 8
        bytes.append(UInt8(truncatingIfNeeded: bits >> count))
      }
    }
    guard count < 6, bits & (1 << count - 1) == 0 else { return nil }
    return bytes
  }
}
