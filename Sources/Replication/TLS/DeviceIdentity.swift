private import COpenSSL
package import SyncStore

/// The Ed25519 key pair (RFC 8032) that identifies a device.
///
/// Its certificate only carries the public key; issuer and validity are not checked.
///
/// This is one of the few files that use `unsafe`: OpenSSL's objects are pointers, none of which outlives its
/// function.
package struct DeviceIdentity: Sendable {
  /// Bytes of a private key, and of a public one.
  package static let keyBytes = 32
  /// Digits of the device ID in a certificate, for people who inspect it. It is sent with every handshake.
  private static let nameBytes: Int32 = 4
  /// Maximum bytes of a PEM file that are read.
  package static let maximumPEMBytes = 4096

  // DER of PrivateKeyInfo (RFC 5958) and SubjectPublicKeyInfo (RFC 8410) up to the key: everything before it
  // is constant.
  private static let privatePrefix: [UInt8] = [
    0x30, 0x2E, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
  ]
  private static let publicPrefix: [UInt8] = [
    0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00,
  ]

  /// The device ID: the SHA-256 of `publicKeyInfo`.
  package let id: DeviceID
  /// The public key (DER, SubjectPublicKeyInfo).
  package let publicKeyInfo: [UInt8]
  /// The self-signed certificate (DER), a deterministic function of the key.
  package let certificate: [UInt8]
  /// The 32 bytes of the private key: a secret.
  let privateKey: [UInt8]

  /// Creates the identity of `privateKey` (32 bytes). `.cryptography` if OpenSSL does not support Ed25519.
  package init(privateKey: [UInt8]) throws(ReplicationError) {
    precondition(privateKey.count == Self.keyBytes, "an Ed25519 key has 32 bytes")
    guard let key = unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nil, privateKey, Self.keyBytes)
    else {
      throw OpenSSLFailure.error("device key", advice: "check the configuration of OpenSSL on this machine")
    }
    defer { unsafe EVP_PKEY_free(key) }
    guard let publicKey = unsafe Self.publicKey(of: key) else {
      throw OpenSSLFailure.error("device key", advice: "check the configuration of OpenSSL on this machine")
    }
    self.privateKey = privateKey
    publicKeyInfo = Self.publicPrefix + publicKey
    id = Self.id(ofPublicKey: publicKey)
    certificate = try unsafe Self.certify(key, id: id)
  }

  /// Generates the identity of a new device.
  package static func generate() throws(ReplicationError) -> DeviceIdentity {
    try DeviceIdentity(privateKey: SecureRandom.bytes(keyBytes))
  }

  /// Bytes of a signature.
  package static let signatureBytes = 64

  /// The public key (32 bytes).
  package var publicKey: [UInt8] { Array(publicKeyInfo.suffix(Self.keyBytes)) }

  /// The Ed25519 signature of `bytes` (RFC 8032): 64 bytes.
  package func signature(of bytes: [UInt8]) throws(ReplicationError) -> [UInt8] {
    let advice = "check the configuration of OpenSSL on this machine"
    guard let key = unsafe EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nil, privateKey, Self.keyBytes),
      let context = unsafe EVP_MD_CTX_new()
    else { throw OpenSSLFailure.error("signature", advice: advice) }
    defer {
      unsafe EVP_MD_CTX_free(context)
      unsafe EVP_PKEY_free(key)
    }
    var signature = [UInt8](repeating: 0, count: Self.signatureBytes)
    var count = Self.signatureBytes
    guard unsafe EVP_DigestSignInit(context, nil, nil, nil, key) == 1,
      unsafe EVP_DigestSign(context, &signature, &count, bytes, bytes.count) == 1,
      count == Self.signatureBytes
    else { throw OpenSSLFailure.error("signature", advice: advice) }
    return signature
  }

  /// Whether `signature` is that of `bytes` under a public key of 32 bytes.
  package static func verifies(
    _ signature: some Collection<UInt8>, of bytes: [UInt8], publicKey: [UInt8]
  ) -> Bool {
    guard signature.count == signatureBytes, publicKey.count == keyBytes,
      let key = unsafe EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nil, publicKey, keyBytes)
    else { return false }
    defer { unsafe EVP_PKEY_free(key) }
    guard let context = unsafe EVP_MD_CTX_new() else { return false }
    defer { unsafe EVP_MD_CTX_free(context) }
    let given = Array(signature)
    return unsafe EVP_DigestVerifyInit(context, nil, nil, nil, key) == 1
      && EVP_DigestVerify(context, given, given.count, bytes, bytes.count) == 1
  }

  /// The device ID for a public key (32 bytes).
  static func id(ofPublicKey key: [UInt8]) -> DeviceID {
    guard let id = DeviceID(bytes: SHA256.hash(publicPrefix + key)) else {
      fatalError("32 bytes make a name")
    }
    return id
  }

  /// The 32 bytes of an Ed25519 public key; nil for other kinds of keys.
  static func publicKey(of key: OpaquePointer) -> [UInt8]? {
    guard unsafe EVP_PKEY_get_id(key) == EVP_PKEY_ED25519 else { return nil }
    var bytes = [UInt8](repeating: 0, count: keyBytes)
    var count = keyBytes
    guard unsafe EVP_PKEY_get_raw_public_key(key, &bytes, &count) == 1, count == keyBytes else { return nil }
    return bytes
  }

  private static func certify(_ key: OpaquePointer, id: DeviceID) throws(ReplicationError) -> [UInt8] {
    let failed = "device certificate"
    let advice = "check the configuration of OpenSSL on this machine"
    guard let certificate = unsafe X509_new() else { throw OpenSSLFailure.error(failed, advice: advice) }
    defer { unsafe X509_free(certificate) }
    let name = unsafe X509_get_subject_name(certificate)
    // The whole range that X.509 can express (RFC 5280, 4.1.2.5): a device with a wrong clock must still
    // connect.
    guard unsafe X509_set_version(certificate, Int(X509_VERSION_3)) == 1,
      unsafe ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), 1) == 1,
      unsafe ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), "19700101000000Z") == 1,
      unsafe ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), "99991231235959Z") == 1,
      unsafe X509_NAME_add_entry_by_txt(
        name, "CN", MBSTRING_ASC, Array("\(id)".utf8.prefix(Int(nameBytes))), nameBytes, -1, 0) == 1,
      unsafe X509_set_issuer_name(certificate, name) == 1,
      unsafe X509_set_pubkey(certificate, key) == 1,
      unsafe X509_sign(certificate, key, nil) > 0
    else { throw OpenSSLFailure.error(failed, advice: advice) }
    let count = unsafe i2d_X509(certificate, nil)
    guard count > 0 else { throw OpenSSLFailure.error(failed, advice: advice) }
    return unsafe [UInt8](unsafeUninitializedCapacity: Int(count)) { output, written in
      var end = output.baseAddress
      written = unsafe Int(i2d_X509(certificate, &end))
    }
  }
}

extension DeviceIdentity {
  private static let firstLine = "-----BEGIN PRIVATE KEY-----"
  private static let lastLine = "-----END PRIVATE KEY-----"

  /// The private key as PEM (PKCS #8, RFC 7468), in the form of `openssl genpkey -algorithm ed25519`: a
  /// secret.
  package var pem: String {
    let encoded = Base64.string(of: Self.privatePrefix + privateKey)
    return "\(Self.firstLine)\n\(encoded)\n\(Self.lastLine)\n"
  }

  /// Parses what `pem` produces. `.cryptography` for anything but one unencrypted Ed25519 key.
  package init(pem: String) throws(ReplicationError) {
    let failure = ReplicationError(
      .cryptography,
      "device key: the file is not the PEM of an unencrypted Ed25519 key: restore it from a backup, or join again"
    )
    guard pem.utf8.count <= Self.maximumPEMBytes else { throw failure }
    let lines = pem.split(whereSeparator: \.isNewline)
    guard lines.count == 3, lines[0] == Self.firstLine, lines[2] == Self.lastLine,
      let der = Base64.bytes(of: lines[1]), der.starts(with: Self.privatePrefix),
      der.count == Self.privatePrefix.count + Self.keyBytes
    else { throw failure }
    try self.init(privateKey: Array(der.suffix(Self.keyBytes)))
  }
}

extension DeviceIdentity: CustomStringConvertible, CustomReflectable {
  /// The device ID, never the key: an identity may end up in a log.
  package var description: String { "device \(id)" }

  /// Empty, because `dump` would show the key.
  package var customMirror: Mirror { Mirror(self, children: []) }
}
