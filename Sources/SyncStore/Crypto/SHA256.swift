private import COpenSSL

/// SHA-256 (FIPS 180-4), computed by OpenSSL.
///
/// This is one of the few files that use `unsafe`: the C library takes a pointer and a count.
package enum SHA256 {
  /// Bytes of a hash.
  package static let byteCount = 32

  // Fetched once: otherwise OpenSSL 3 looks the algorithm up, under a lock, for each hash.
  fileprivate nonisolated(unsafe) static let algorithm: OpaquePointer = {
    guard let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil) else {
      fatalError("SHA-256: OpenSSL does not offer it: check the configuration of OpenSSL on this machine")
    }
    return unsafe algorithm
  }()

  /// The 32-byte hash of `bytes`.
  package static func hash(_ bytes: RawSpan) -> [UInt8] {
    let algorithm = unsafe Self.algorithm
    return unsafe [UInt8](unsafeUninitializedCapacity: byteCount) { output, count in
      unsafe bytes.withUnsafeBytes { input in
        guard unsafe EVP_Digest(input.baseAddress, input.count, output.baseAddress, nil, algorithm, nil) == 1
        else { fatalError("SHA-256: no memory") }
      }
      count = byteCount
    }
  }

  /// The 32-byte hash of `bytes`.
  package static func hash(_ bytes: [UInt8]) -> [UInt8] { unsafe hash(bytes.span.bytes) }

  /// The 32-byte hash of `bytes`.
  package static func hash(_ bytes: ArraySlice<UInt8>) -> [UInt8] { unsafe hash(bytes.span.bytes) }
}

/// Hashes bytes that arrive piece by piece. Not thread-safe: one owner at a time.
@safe package final class SHA256Hasher {
  private let context: OpaquePointer
  private var finished = false

  /// An empty hash.
  package init() {
    let algorithm = unsafe SHA256.algorithm
    guard let context = unsafe EVP_MD_CTX_new(), unsafe EVP_DigestInit_ex(context, algorithm, nil) == 1 else {
      fatalError("SHA-256: no memory")
    }
    unsafe self.context = context
  }

  deinit { unsafe EVP_MD_CTX_free(context) }

  /// Hashes the next bytes, in place.
  package func update(_ bytes: RawSpan) {
    precondition(!finished, "a hash that was taken takes no more bytes")
    unsafe bytes.withUnsafeBytes { input in
      guard unsafe EVP_DigestUpdate(context, input.baseAddress, input.count) == 1 else {
        fatalError("SHA-256: OpenSSL failed")
      }
    }
  }

  /// Hashes the next bytes.
  package func update(_ bytes: [UInt8]) { unsafe update(bytes.span.bytes) }

  /// The 32-byte hash of all bytes. May be called once.
  package func finish() -> [UInt8] {
    precondition(!finished, "a hash is taken once")
    finished = true
    return unsafe [UInt8](unsafeUninitializedCapacity: SHA256.byteCount) { output, count in
      guard unsafe EVP_DigestFinal_ex(context, output.baseAddress, nil) == 1 else {
        fatalError("SHA-256: OpenSSL failed")
      }
      count = SHA256.byteCount
    }
  }
}
