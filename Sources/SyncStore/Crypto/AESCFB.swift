private import COpenSSL

/// AES-128 and AES-256 in CFB mode with whole blocks (NIST SP 800-38A), computed by OpenSSL: the encryption
/// of MMKV files.
///
/// Only for reading those: it is not authenticated.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
enum AESCFB {
  private static let vectorBytes = 16

  /// - Parameters:
  ///   - key: Padded with zeros or truncated to `keyBytes`.
  ///   - vector: Nil for the first 16 bytes of the key, as in MMKV before it had vectors.
  ///   - keyBytes: 16 for AES-128, 32 for AES-256.
  static func decrypt(_ bytes: [UInt8], key: [UInt8], vector: [UInt8]?, keyBytes: Int = 16) -> [UInt8] {
    transform(bytes, key: key, vector: vector, keyBytes, encrypting: 0)
  }

  /// Encrypts, for tests.
  package static func encrypt(
    _ bytes: [UInt8], key: [UInt8], vector: [UInt8]?, keyBytes: Int = 16
  ) -> [UInt8] {
    transform(bytes, key: key, vector: vector, keyBytes, encrypting: 1)
  }

  private static func transform(
    _ bytes: [UInt8], key: [UInt8], vector: [UInt8]?, _ keyBytes: Int, encrypting: Int32
  ) -> [UInt8] {
    guard !bytes.isEmpty else { return [] }
    func filled(_ bytes: [UInt8], to count: Int) -> [UInt8] {
      Array((bytes + [UInt8](repeating: 0, count: count)).prefix(count))
    }
    let (own, start) = (filled(key, to: keyBytes), filled(vector ?? key, to: vectorBytes))
    let cipher = unsafe keyBytes == 32 ? EVP_aes_256_cfb128() : EVP_aes_128_cfb128()
    guard let context = unsafe EVP_CIPHER_CTX_new() else { fatalError("AES in CFB mode: no memory") }
    defer { unsafe EVP_CIPHER_CTX_free(context) }
    return unsafe [UInt8](unsafeUninitializedCapacity: bytes.count) { output, count in
      guard unsafe EVP_CipherInit_ex(context, cipher, nil, own, start, encrypting) == 1 else {
        fatalError("AES in CFB mode: OpenSSL does not offer it")
      }
      // The library counts in 32 bits.
      while count < bytes.count {
        let part = min(bytes.count - count, 1 << 30)
        var written: Int32 = 0
        let isDone = unsafe bytes.withUnsafeBufferPointer { input in
          unsafe EVP_CipherUpdate(
            context, output.baseAddress! + count, &written, input.baseAddress! + count, Int32(part)) == 1
        }
        guard isDone, Int(written) == part else { fatalError("AES in CFB mode: OpenSSL failed") }
        count += part
      }
    }
  }
}
