private import COpenSSL

/// AES-256 (FIPS 197) of a single block, computed by OpenSSL. Deterministic: equal blocks have equal
/// ciphertexts, but nothing else is revealed.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
enum AES256Block {
  /// The 16 bytes of a block, the first eight as a little-endian number, then the others.
  typealias Block = (UInt64, UInt64)

  /// Encrypts a block under a key of 32 bytes.
  static func encrypt(_ block: Block, _ key: Secret) -> Block { transform(block, key, encrypting: 1) }

  /// Decrypts a block under a key of 32 bytes.
  static func decrypt(_ block: Block, _ key: Secret) -> Block { transform(block, key, encrypting: 0) }

  private static func transform(_ block: Block, _ key: Secret, encrypting: Int32) -> Block {
    precondition(key.count == AES256GCM.keyBytes, "a key has 32 bytes")
    guard let context = unsafe EVP_CIPHER_CTX_new() else { fatalError("AES-256: no memory") }
    defer { unsafe EVP_CIPHER_CTX_free(context) }
    var input = (block.0.littleEndian, block.1.littleEndian)
    var output: Block = (0, 0)
    var written: Int32 = 0
    let isDone = unsafe withUnsafeBytes(of: &input) { input in
      unsafe withUnsafeMutableBytes(of: &output) { output in
        unsafe key.withPointer { key in
          unsafe EVP_CipherInit_ex2(context, AES256GCM.block, key, nil, encrypting, nil) == 1
            && EVP_CIPHER_CTX_set_padding(context, 0) == 1
            && EVP_CipherUpdate(
              context, output.baseAddress?.assumingMemoryBound(to: UInt8.self), &written,
              input.baseAddress?.assumingMemoryBound(to: UInt8.self), 16) == 1
        }
      }
    }
    guard isDone, written == 16 else { fatalError("AES-256: OpenSSL failed") }
    return (UInt64(littleEndian: output.0), UInt64(littleEndian: output.1))
  }
}
