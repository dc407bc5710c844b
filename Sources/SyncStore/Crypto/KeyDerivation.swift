private import COpenSSL

/// HMAC (RFC 2104) with SHA-256, computed by OpenSSL.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
package enum HMACSHA256 {
  /// The 32-byte code of `message` under `key` (any length).
  package static func code(for message: [UInt8], key: [UInt8]) -> [UInt8] {
    unsafe [UInt8](unsafeUninitializedCapacity: SHA256.byteCount) { output, count in
      // The spare byte gives an empty key an address: OpenSSL takes the null pointer for "no key set".
      unsafe (key + [0]).withUnsafeBytes { key in
        unsafe message.withUnsafeBufferPointer { message in
          guard
            unsafe HMAC(
              EVP_sha256(), key.baseAddress, Int32(key.count - 1), message.baseAddress, message.count,
              output.baseAddress, nil) != nil
          else { fatalError("HMAC: no memory") }
        }
      }
      count = SHA256.byteCount
    }
  }

  /// Whether `code` is the code of `message` under `key`, compared in constant time.
  package static func isValid(_ code: [UInt8], for message: [UInt8], key: [UInt8]) -> Bool {
    constantTimeEquals(code, self.code(for: message, key: key))
  }
}

/// HKDF (RFC 5869) with SHA-256: derives keys from a secret.
package enum HKDFSHA256 {
  /// Maximum number of bytes that can be derived.
  package static let maximumBytes = 255 * SHA256.byteCount

  /// Derives `count` bytes, at most `maximumBytes`, from `secret` for the purpose named by `info`.
  package static func derive(_ count: Int, secret: [UInt8], salt: [UInt8], info: [UInt8]) -> [UInt8] {
    precondition(count > 0 && count <= maximumBytes, "HKDF gives 1 to \(maximumBytes) bytes")
    let extracted = HMACSHA256.code(
      for: secret, key: salt.isEmpty ? [UInt8](repeating: 0, count: SHA256.byteCount) : salt)
    var output: [UInt8] = []
    var block: [UInt8] = []
    var counter: UInt8 = 1
    while output.count < count {
      block = HMACSHA256.code(for: block + info + [counter], key: extracted)
      output += block
      counter &+= 1
    }
    return Array(output.prefix(count))
  }
}

/// Whether both are equal. The time depends on the lengths alone.
package func constantTimeEquals(_ left: [UInt8], _ right: [UInt8]) -> Bool {
  guard left.count == right.count else { return false }
  return unsafe left.withUnsafeBytes { left in
    unsafe right.withUnsafeBytes { right in
      guard let first = left.baseAddress, let second = right.baseAddress else { return true }
      return unsafe CRYPTO_memcmp(first, second, left.count) == 0
    }
  }
}
