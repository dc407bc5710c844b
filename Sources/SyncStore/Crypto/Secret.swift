private import COpenSSL

/// Secret bytes: never in a description, zeroed when the last reference is released.
///
/// This is one of the few files that use `unsafe`: an array cannot guarantee that its memory is zeroed.
@safe package final class Secret: Sendable {
  /// Number of bytes.
  package let count: Int
  private nonisolated(unsafe) let base: UnsafeMutableRawPointer

  /// A copy of the bytes in the span.
  package init(copying bytes: Span<UInt8>) {
    count = bytes.count
    unsafe base = .allocate(byteCount: max(count, 1), alignment: 16)
    unsafe bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      unsafe base.copyMemory(from: start, byteCount: source.count)
    }
  }

  /// Takes the bytes over: the array is zeroed. If its storage is shared, another copy remains.
  package convenience init(taking bytes: inout [UInt8]) {
    self.init(copying: bytes.span)
    Self.zero(&bytes)
  }

  deinit {
    unsafe OPENSSL_cleanse(base, count)
    unsafe base.deallocate()
  }

  /// Calls `body` with the bytes in place.
  package func withBytes<Result, Failure: Error>(
    _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe base.assumingMemoryBound(to: UInt8.self)
    return try body(unsafe UnsafeBufferPointer(start: start, count: count).span)
  }

  /// Calls `body` with the address of the bytes from `offset` on, for C. Valid only during the call.
  func withPointer<Result>(_ offset: Int = 0, _ body: (UnsafePointer<UInt8>) -> Result) -> Result {
    precondition(offset >= 0 && offset < count, "outside of a secret")
    return unsafe body(UnsafePointer((base + offset).assumingMemoryBound(to: UInt8.self)))
  }

  /// A copy, for functions that take arrays: zero it afterwards.
  func copy() -> [UInt8] { withBytes { [UInt8](copying: $0) } }

  /// Whether both are equal. The time depends on the lengths alone.
  package func equals(_ other: Secret) -> Bool {
    guard count == other.count else { return false }
    return unsafe CRYPTO_memcmp(base, other.base, count) == 0
  }

  /// Zeroes an array, guaranteed unless its storage is shared.
  package static func zero(_ bytes: inout [UInt8]) {
    unsafe bytes.withUnsafeMutableBytes { buffer in
      guard let start = buffer.baseAddress else { return }
      unsafe OPENSSL_cleanse(start, buffer.count)
    }
  }
}

extension Secret: CustomStringConvertible, CustomReflectable {
  /// Reveals nothing.
  package var description: String { "(secret)" }
  /// Hides the contents.
  package var customMirror: Mirror { Mirror(self, children: [:]) }
}

/// The last key that was derived from a passphrase, which takes a fifth of a second.
private final class DerivedKey: Sendable {
  private struct Entry {
    let lock: KeyRingFile.PassphraseKDF
    /// The form of the passphrase.
    let source: Secret
    let key: Secret
  }

  private let last = LockedField<Entry?>(nil)

  /// The key for these parameters and this salt. Nil if the derivation fails.
  func key(_ lock: KeyRingFile.PassphraseKDF, _ source: Secret) -> Secret? {
    if let known = last.withLock({ $0 }), known.lock == lock, known.source === source { return known.key }
    guard let key = lock.key(source) else { return nil }
    last.withLock { $0 = Entry(lock: lock, source: source, key: key) }
    return key
  }
}

/// The passphrase of an encrypted store. Not shown by `print`; its memory is zeroed when the last copy is
/// released.
///
/// A key derived from it is kept, too, and zeroed with it.
///
/// The visible text counts (`schemas/keys.md`): a leading byte order mark and trailing line ends are dropped,
/// and text is brought into Normalization Form C, so that "é" is the same however it was typed, and a file
/// with CR LF opens a store made with LF. Bytes that are not UTF-8 stay unchanged. A store whose keys an
/// earlier version wrapped under the unnormalized bytes is opened with those.
public struct Passphrase: Sendable, CustomStringConvertible, CustomReflectable {
  /// The normalized bytes.
  let secret: Secret
  /// The bytes as given, if they differ: an earlier version used these.
  let unnormalized: Secret?
  private let derived = DerivedKey()

  /// The passphrase of these bytes, 1 to `Limits.passphraseBytes`. The caller's array is unchanged: zero it.
  public init(_ bytes: [UInt8]) {
    var own = bytes
    self.init(taking: &own)
  }

  /// The passphrase of this text's UTF-8 bytes.
  public init(_ text: String) {
    var bytes = Array(text.utf8)
    self.init(taking: &bytes)
  }

  private init(taking bytes: inout [UInt8]) {
    var counting = Self.normalized(bytes)
    unnormalized = counting == bytes ? nil : Secret(taking: &bytes)
    Secret.zero(&bytes)
    secret = Secret(taking: &counting)
  }

  /// The normalized bytes. If none would be left, the given bytes.
  private static func normalized(_ bytes: [UInt8]) -> [UInt8] {
    let mark: [UInt8] = [0xEF, 0xBB, 0xBF]
    var text = bytes.starts(with: mark) ? bytes[3...] : bytes[...]
    while let last = text.last, last == 0x0A || last == 0x0D { text.removeLast() }
    guard !text.isEmpty else { return bytes }
    var plain = Array(text)
    guard let normalized = NFC.normalized(plain) else { return plain }
    Secret.zero(&plain)
    return normalized
  }

  /// Calls `open` with the normalized bytes and, if that fails with `.wrongKey`, with the bytes as given if
  /// they differ.
  ///
  /// `open` also gets the function that derives keys. The key of the form that opened is kept as long as the
  /// passphrase: a program that opens a store again and again derives it once.
  ///
  /// - Throws: errors of `open`; `.wrongKey` if both fail with it.
  func tryingBothForms<Result>(
    _ open: (Secret, (KeyRingFile.PassphraseKDF, Secret) -> Secret?) throws(StoreError) -> Result
  ) throws(StoreError) -> Result {
    do throws(StoreError) { return try open(secret, derived.key) } catch {
      guard error.code == .wrongKey, let unnormalized else { throw error }
      return try open(unnormalized, derived.key)
    }
  }

  func check() throws(StoreError) {
    guard (1...Limits.passphraseBytes).contains(secret.count) else {
      throw StoreError(
        .outOfBounds,
        "a passphrase has 1 to \(Limits.passphraseBytes) bytes, this one has \(secret.count): choose another")
    }
  }

  /// Reveals nothing.
  public var description: String { "(passphrase)" }
  /// Hides the contents.
  public var customMirror: Mirror { Mirror(self, children: [:]) }
}
