private import COpenSSL

/// The authentication tag is wrong: the bytes were changed, or the key is another.
package struct AuthenticationFailure: Error, Equatable, CustomStringConvertible {
  /// For a log line.
  package var description: String { "the authentication tag is wrong: changed bytes or another key" }

  /// The only failure: its cause cannot be told.
  package init() {}
}

/// AES-256 in Galois/Counter Mode (NIST SP 800-38D), computed by OpenSSL.
///
/// **A nonce must never be used twice under a key.**
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
package enum AES256GCM {
  /// Bytes of a key.
  package static let keyBytes = 32
  /// Bytes of a nonce.
  package static let nonceBytes = 12
  /// Bytes of the tag after the ciphertext.
  package static let tagBytes = 16

  private nonisolated(unsafe) static let algorithm = unsafe fetch("AES-256-GCM")

  /// The block cipher alone.
  nonisolated(unsafe) static let block = unsafe fetch("AES-256-ECB")

  private static func fetch(_ name: String) -> OpaquePointer {
    guard let algorithm = unsafe EVP_CIPHER_fetch(nil, name, nil) else {
      fatalError("\(name): OpenSSL does not offer it: check the configuration of OpenSSL on this machine")
    }
    return unsafe algorithm
  }

  /// Appends the ciphertext of `plaintext`, of the same length, and the tag, which also authenticates
  /// `header`.
  package static func encrypt(
    _ plaintext: RawSpan, key: [UInt8], nonce: [UInt8], authenticating header: [UInt8],
    appendingTo output: inout [UInt8]
  ) {
    let context = unsafe start(key: key, nonce: nonce, header: header, encrypting: 1)
    defer { unsafe EVP_CIPHER_CTX_free(context) }
    let count = plaintext.byteCount
    output.append(addingCapacity: count + tagBytes) { span in
      unsafe span.withUnsafeMutableBufferPointer { buffer, initialized in
        guard let start = buffer.baseAddress else { fatalError("AES-256-GCM: no memory") }
        unsafe update(context, input: plaintext, output: start)
        var rest: Int32 = 0
        guard unsafe EVP_EncryptFinal_ex(context, start + count, &rest) == 1,
          unsafe EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, Int32(tagBytes), start + count) == 1
        else { fatalError("AES-256-GCM: OpenSSL failed") }
        initialized = count + tagBytes
      }
    }
  }

  /// Appends the ciphertext of `plaintext`, of the same length, and the tag, which also authenticates
  /// `header`.
  package static func encrypt(
    _ plaintext: [UInt8], key: [UInt8], nonce: [UInt8], authenticating header: [UInt8] = [],
    appendingTo output: inout [UInt8]
  ) {
    unsafe encrypt(plaintext.span.bytes, key: key, nonce: nonce, authenticating: header, appendingTo: &output)
  }

  /// The ciphertext of `plaintext` and the tag, which also authenticates `header`.
  package static func encrypt(
    _ plaintext: [UInt8], key: [UInt8], nonce: [UInt8], authenticating header: [UInt8] = []
  ) -> [UInt8] {
    var output: [UInt8] = []
    encrypt(plaintext, key: key, nonce: nonce, authenticating: header, appendingTo: &output)
    return output
  }

  /// The plaintext of `encrypted` (ciphertext, then tag). Nothing is returned unless the tag is right.
  package static func decrypt(
    _ encrypted: RawSpan, key: [UInt8], nonce: [UInt8], authenticating header: [UInt8]
  ) throws(AuthenticationFailure) -> [UInt8] {
    let count = encrypted.byteCount - tagBytes
    guard count >= 0 else { throw AuthenticationFailure() }
    let context = unsafe start(key: key, nonce: nonce, header: header, encrypting: 0)
    defer { unsafe EVP_CIPHER_CTX_free(context) }
    var isAuthentic = false
    let plaintext = unsafe [UInt8](unsafeUninitializedCapacity: max(count, 1)) { buffer, initialized in
      guard let start = buffer.baseAddress else { fatalError("AES-256-GCM: no memory") }
      unsafe update(context, input: encrypted.extracting(first: count), output: start)
      isAuthentic = unsafe encrypted.extracting(last: tagBytes).withUnsafeBytes { tag in
        var rest: Int32 = 0
        return unsafe sync_gcm_set_tag(
          context, tag.baseAddress?.assumingMemoryBound(to: UInt8.self), Int32(tagBytes)) == 1
          && EVP_DecryptFinal_ex(context, start + count, &rest) == 1
      }
      initialized = count
    }
    guard isAuthentic else { throw AuthenticationFailure() }
    return plaintext
  }

  /// The plaintext of `encrypted` (ciphertext, then tag). Nothing is returned unless the tag is right.
  package static func decrypt(
    _ encrypted: ArraySlice<UInt8>, key: [UInt8], nonce: [UInt8], authenticating header: [UInt8] = []
  ) throws(AuthenticationFailure) -> [UInt8] {
    try unsafe decrypt(encrypted.span.bytes, key: key, nonce: nonce, authenticating: header)
  }

  /// The plaintext of `encrypted` (ciphertext, then tag). Nothing is returned unless the tag is right.
  package static func decrypt(
    _ encrypted: [UInt8], key: [UInt8], nonce: [UInt8], authenticating header: [UInt8] = []
  ) throws(AuthenticationFailure) -> [UInt8] {
    try decrypt(encrypted[...], key: key, nonce: nonce, authenticating: header)
  }

  private static func start(key: [UInt8], nonce: [UInt8], header: [UInt8], encrypting: Int32) -> OpaquePointer
  {
    precondition(key.count == keyBytes && nonce.count == nonceBytes, "a key has 32 bytes and a nonce 12")
    var ignored: Int32 = 0
    let algorithm = unsafe Self.algorithm
    guard let context = unsafe EVP_CIPHER_CTX_new(),
      unsafe EVP_CipherInit_ex2(context, algorithm, key, nonce, encrypting, nil) == 1,
      unsafe header.isEmpty || EVP_CipherUpdate(context, nil, &ignored, header, Int32(header.count)) == 1
    else { fatalError("AES-256-GCM: no memory") }
    return unsafe context
  }

  private static func update(
    _ context: OpaquePointer, input: RawSpan, output: UnsafeMutablePointer<UInt8>
  ) {
    // OpenSSL counts in 32 bits. The limit of GCM is 64 GiB, far above any limit of the product.
    let piece = 1 << 30
    for offset in stride(from: 0, to: input.byteCount, by: piece) {
      let range = offset..<min(offset + piece, input.byteCount)
      unsafe input.extracting(range).withUnsafeBytes { bytes in
        var written: Int32 = 0
        guard
          unsafe EVP_CipherUpdate(
            context, output + offset, &written, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self),
            Int32(bytes.count)) == 1,
          Int(written) == bytes.count
        else { fatalError("AES-256-GCM: OpenSSL failed") }
      }
    }
  }
}
