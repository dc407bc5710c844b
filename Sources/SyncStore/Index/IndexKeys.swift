/// What an index is keyed by. That of a plain store has its secret in its header. That of an encrypted one has there only
/// random bytes: with a secret of the store's keys they give the seed of the hash, a check that tells a wrong secret, and
/// a key for the digest in the ledger (HKDF, RFC 5869).
struct IndexKeys {
  /// The seed of the keys' hash.
  let seed: UInt64
  /// 16 bytes for the header, of which nothing follows; nil without a secret.
  let check: [UInt8]?
  /// 32 bytes that conceal the digest; nil without a secret.
  let digest: Secret?

  /// Bytes of the check.
  static let checkBytes = 16

  /// `random` are the 16 bytes in the header, `secret` is that of the store's keys, if it has any.
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
