private import COpenSSL
internal import SyncStore

/// An X25519 key pair (RFC 7748), for group keys that a relay carries to one member.
///
/// One of the few files that use `unsafe`: OpenSSL's objects are pointers, none of which outlives its
/// function.
struct WrappingKey: Sendable {
  static let keyBytes = 32
  private static let advice = "check the configuration of OpenSSL on this machine"

  /// The public key (32 bytes).
  let publicKey: [UInt8]
  private let privateKey: [UInt8]

  /// The pair of a private key (32 bytes). `.cryptography` if OpenSSL does not support X25519.
  init(privateKey: [UInt8]) throws(ReplicationError) {
    precondition(privateKey.count == Self.keyBytes, "an X25519 key has 32 bytes")
    guard let key = unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nil, privateKey, Self.keyBytes)
    else { throw OpenSSLFailure.error("key for wrapping", advice: Self.advice) }
    defer { unsafe EVP_PKEY_free(key) }
    var bytes = [UInt8](repeating: 0, count: Self.keyBytes)
    var count = Self.keyBytes
    guard unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &count) == 1, count == Self.keyBytes else {
      throw OpenSSLFailure.error("key for wrapping", advice: Self.advice)
    }
    (publicKey, self.privateKey) = (bytes, privateKey)
  }

  /// The secret that both sides compute from their private and the other's public key.
  ///
  /// - Throws: `.cryptography` if `other` is no key, or one of those that give no secret (RFC 7748, 6.1).
  func shared(with other: [UInt8]) throws(ReplicationError) -> [UInt8] {
    guard other.count == Self.keyBytes,
      let own = unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nil, privateKey, Self.keyBytes)
    else { throw OpenSSLFailure.error("shared key", advice: Self.advice) }
    defer { unsafe EVP_PKEY_free(own) }
    guard let peer = unsafe EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nil, other, Self.keyBytes) else {
      throw OpenSSLFailure.error("shared key", advice: Self.advice)
    }
    defer { unsafe EVP_PKEY_free(peer) }
    guard let context = unsafe EVP_PKEY_CTX_new(own, nil) else {
      throw OpenSSLFailure.error("shared key", advice: Self.advice)
    }
    defer { unsafe EVP_PKEY_CTX_free(context) }
    var secret = [UInt8](repeating: 0, count: Self.keyBytes)
    var count = Self.keyBytes
    guard unsafe EVP_PKEY_derive_init(context) == 1, unsafe EVP_PKEY_derive_set_peer(context, peer) == 1,
      unsafe EVP_PKEY_derive(context, &secret, &count) == 1, count == Self.keyBytes,
      secret.contains(where: { $0 != 0 })
    else { throw OpenSSLFailure.error("shared key", advice: "the other side's key is none: ignore it") }
    return secret
  }
}

extension DeviceIdentity {
  private static let wrappingPurpose = Array("syncstore relay wrapping key v1".utf8)

  /// The pair with which others encrypt group keys for this device: derived from the device's key, so that it
  /// needs no file and is as old as that.
  func wrappingKey() throws(ReplicationError) -> WrappingKey {
    try WrappingKey(
      privateKey: HKDFSHA256.derive(
        WrappingKey.keyBytes, secret: privateKey, salt: [], info: Self.wrappingPurpose))
  }
}
