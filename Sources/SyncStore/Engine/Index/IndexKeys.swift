/// The keys of an index. In an unencrypted store the secret is in the index header. In an encrypted store the
/// header has only random bytes: with a secret derived from the store's keys they give the seed of the hash,
/// a check that detects a wrong secret, and a key for the digest in the index checkpoint (HKDF, RFC 5869).
struct IndexKeys {
  /// The seed of the keys' hash.
  let seed: UInt64
  /// 16 bytes for the header that reveal nothing; nil without a secret.
  let check: [UInt8]?
  /// The 32-byte key that encrypts the digest; nil without a secret.
  let digest: Secret?

  /// Bytes of the check.
  static let checkBytes = 16

  /// `random` is the 16 bytes in the header, `secret` is that of the store's keys, if it has any.
  init(random: [UInt8], secret: [UInt8]?) {
    guard let secret else {
      (seed, check, digest) = (Self.seed(random), nil, nil)
      return
    }
    var derived = HKDFSHA256.derive(
      8 + Self.checkBytes + 32, secret: secret, salt: random, info: Array("syncstore index keys v1".utf8))
    seed = Self.seed(derived)
    check = Array(derived[8..<8 + Self.checkBytes])
    var key = Array(derived[(8 + Self.checkBytes)...])
    digest = Secret(taking: &key)
    Secret.zero(&derived)
  }

  private static func seed(_ bytes: [UInt8]) -> UInt64 {
    bytes.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }
}
