private import Glibc

/// Unpredictable bytes, directly from the kernel: there is no generator state in the process that a fork
/// could copy.
///
/// This is one of the few files that use `unsafe`: `getentropy` takes a pointer and a count.
package enum SecureRandom {
  /// `count` random bytes. Ends the process if the kernel provides none: continuing without them would be
  /// worse.
  package static func bytes(_ count: Int) -> [UInt8] {
    // The maximum per call of `getentropy`.
    let piece = 256
    return unsafe [UInt8](unsafeUninitializedCapacity: count) { output, filled in
      while filled < count {
        let next = min(piece, count - filled)
        guard let start = output.baseAddress, unsafe getentropy(start + filled, next) == 0 else {
          fatalError("random bytes: \(SystemCall.text(of: errno)): allow getrandom(2) in the sandbox")
        }
        filled += next
      }
    }
  }
}

extension Identifier128 {
  /// A unique random identifier.
  package static func random() -> Self {
    guard let name = Self(bytes: SecureRandom.bytes(16)) else { fatalError("16 bytes make a name") }
    return name
  }
}
