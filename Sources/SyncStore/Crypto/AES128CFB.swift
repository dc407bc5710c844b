private import COpenSSL

/// AES-128 in CFB mode with whole blocks (NIST SP 800-38A), computed by OpenSSL: what MMKV encrypts its files with. Only for
/// reading those: it does not tell whether bytes were changed.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
enum AES128CFB {
  private static let byteCount = 16

  /// A key of fewer than 16 bytes is filled up with zeros; without a vector it is the vector, too.
  static func decrypt(_ bytes: [UInt8], key: [UInt8], vector: [UInt8]?) -> [UInt8] {
    transform(bytes, key: key, vector: vector, encrypting: 0)
  }

  /// The counterpart, for tests.
  package static func encrypt(_ bytes: [UInt8], key: [UInt8], vector: [UInt8]?) -> [UInt8] {
    transform(bytes, key: key, vector: vector, encrypting: 1)
  }

  private static func transform(
    _ bytes: [UInt8], key: [UInt8], vector: [UInt8]?, encrypting: Int32
  ) -> [UInt8] {
    guard !bytes.isEmpty else { return [] }
    let filled = Array((key + [UInt8](repeating: 0, count: byteCount)).prefix(byteCount))
    let start =
      vector.map { Array(($0 + [UInt8](repeating: 0, count: byteCount)).prefix(byteCount)) } ?? filled
    guard let context = unsafe EVP_CIPHER_CTX_new() else { fatalError("AES-128: no memory") }
    defer { unsafe EVP_CIPHER_CTX_free(context) }
    return unsafe [UInt8](unsafeUninitializedCapacity: bytes.count) { output, count in
      guard unsafe EVP_CipherInit_ex(context, EVP_aes_128_cfb128(), nil, filled, start, encrypting) == 1
      else {
        fatalError("AES-128: OpenSSL does not offer it")
      }
      // The library counts in 32 bits.
      while count < bytes.count {
        let part = min(bytes.count - count, 1 << 30)
        var written: Int32 = 0
        let isDone = unsafe bytes.withUnsafeBufferPointer { input in
          unsafe EVP_CipherUpdate(
            context, output.baseAddress! + count, &written, input.baseAddress! + count, Int32(part)) == 1
        }
        guard isDone, Int(written) == part else { fatalError("AES-128: OpenSSL failed") }
        count += part
      }
    }
  }
}
