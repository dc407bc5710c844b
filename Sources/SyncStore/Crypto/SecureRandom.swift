private import Glibc

/// Unpredictable bytes, straight from the kernel: there is no state of this process that a fork could copy.
///
/// This is one of the few files that use `unsafe`: `getentropy` takes a pointer and a count.
package enum SecureRandom {
  /// `count` random bytes. Ends the process where the kernel has none to give: to go on without would be worse.
  package static func bytes(_ count: Int) -> [UInt8] {
    // The most that the kernel gives at once.
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
  /// A name that nobody has used.
  package static func random() -> Self {
    guard let name = Self(bytes: SecureRandom.bytes(16)) else { fatalError("16 bytes make a name") }
    return name
  }
}
