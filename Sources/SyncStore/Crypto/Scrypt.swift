private import COpenSSL

/// scrypt (RFC 7914), computed by OpenSSL: derives a key from a passphrase at a given cost per guess.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
package enum Scrypt {
  /// The cost of a guess: about 128 · N · r bytes of memory, and time in proportion to N · r · p.
  package struct Parameters: Hashable, Sendable {
    /// The binary logarithm of N.
    package var logN: Int
    /// The block size.
    package var r: Int
    /// The parallelisation.
    package var p: Int

    /// All three. They are checked only by `areBounded` and `derive`.
    package init(logN: Int, r: Int, p: Int) { (self.logN, self.r, self.p) = (logN, r, p) }

    /// 32 MiB and about a fifth of a second: the recommendation of OWASP's "Password Storage Cheat Sheet"
    /// (2024) for this size.
    package static let standard = Parameters(logN: 15, r: 8, p: 3)

    /// Whether the cost is acceptable (F86): at most 256 MiB and some seconds.
    package var areBounded: Bool {
      guard (1...20).contains(logN), (1...32).contains(r), (1...16).contains(p) else { return false }
      let blocks = (1 << logN) * r
      return blocks <= 1 << 21 && blocks * p <= 1 << 23
    }
  }

  /// Derives a key of `count` bytes. Nil if the parameters are out of bounds, or memory is short.
  package static func derive(
    _ count: Int, from passphrase: Secret, salt: [UInt8], _ parameters: Parameters
  ) -> Secret? {
    guard parameters.areBounded, count > 0, passphrase.count > 0 else { return nil }
    // Excludes the working copies of OpenSSL, which are added to it.
    let memory = UInt64(512 << 20)
    var key = [UInt8](repeating: 0, count: count)
    let isDone = unsafe passphrase.withPointer { start in
      unsafe start.withMemoryRebound(to: CChar.self, capacity: passphrase.count) { start in
        unsafe EVP_PBE_scrypt(
          start, passphrase.count, salt, salt.count, UInt64(1) << UInt64(parameters.logN),
          UInt64(parameters.r), UInt64(parameters.p), memory, &key, count)
      }
    }
    guard isDone == 1 else { return nil }
    return Secret(taking: &key)
  }
}
