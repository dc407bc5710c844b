private import COpenSSL

/// Bytes that are to be seen by nobody: never in a description, zeroed when the last reference goes.
///
/// This is one of the few files that use `unsafe`: memory that is zeroed for certain is not an array's.
@safe package final class Secret: Sendable {
  /// How many bytes there are.
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

  /// Takes the bytes over: the array is zeroed, unless somebody else holds it too.
  package convenience init(taking bytes: inout [UInt8]) {
    self.init(copying: bytes.span)
    Self.zero(&bytes)
  }

  deinit {
    unsafe OPENSSL_cleanse(base, count)
    unsafe base.deallocate()
  }

  /// Works on the bytes in place.
  package func withBytes<Result, Failure: Error>(
    _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let start = unsafe base.assumingMemoryBound(to: UInt8.self)
    return try body(unsafe UnsafeBufferPointer(start: start, count: count).span)
  }

  /// The address of the bytes from `offset` on, for C, while this object is kept.
  func withPointer<Result>(_ offset: Int = 0, _ body: (UnsafePointer<UInt8>) -> Result) -> Result {
    precondition(offset >= 0 && offset < count, "outside of a secret")
    return unsafe body(UnsafePointer((base + offset).assumingMemoryBound(to: UInt8.self)))
  }

  /// A copy, for what takes arrays: zero it afterwards.
  func copy() -> [UInt8] { withBytes { [UInt8](copying: $0) } }

  /// Are the two the same? The time taken depends on the lengths alone.
  package func equals(_ other: Secret) -> Bool {
    guard count == other.count else { return false }
    return unsafe CRYPTO_memcmp(base, other.base, count) == 0
  }

  /// Zeros an array, for certain, if nobody else holds it.
  package static func zero(_ bytes: inout [UInt8]) {
    unsafe bytes.withUnsafeMutableBytes { buffer in
      guard let start = buffer.baseAddress else { return }
      unsafe OPENSSL_cleanse(start, buffer.count)
    }
  }
}

extension Secret: CustomStringConvertible, CustomReflectable {
  /// Says nothing.
  package var description: String { "(secret)" }
  /// Shows nothing.
  package var customMirror: Mirror { Mirror(self, children: [:]) }
}

/// What a person, or a file of theirs, knows and the disk does not. It is not shown by `print`, and its memory is
/// zeroed when the last copy goes.
///
/// What counts is what a person sees (`schemas/keys.md`): a byte order mark before it and ends of line after it are left
/// out, and a text is taken in Normalization Form C, so that "é" is the same however it was typed, and a file with CR LF
/// opens what one with LF made. Bytes that are no UTF-8 stay as they are. A store whose keys were wrapped under other bytes,
/// by an earlier version, is opened with those.
public struct Passphrase: Sendable, CustomStringConvertible, CustomReflectable {
  /// The bytes that count.
  let secret: Secret
  /// The bytes as they were given, where those are others: what an earlier version took.
  let unnormalized: Secret?

  /// The passphrase of these bytes, 1 to `Limits.passphraseBytes`. The caller's array stays as it is: zero it.
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

  /// The bytes that count of those that are given. If none would, all do.
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

  /// What `open` gives with the bytes that count, or with those that were given, where they are others.
  ///
  /// - Throws: what `open` throws; `.wrongKey` from both.
  func tryingBothForms<Result>(_ open: (Secret) throws(StoreError) -> Result) throws(StoreError) -> Result {
    do throws(StoreError) { return try open(secret) } catch {
      guard error.code == .wrongKey, let unnormalized else { throw error }
      return try open(unnormalized)
    }
  }

  func check() throws(StoreError) {
    guard (1...Limits.passphraseBytes).contains(secret.count) else {
      throw StoreError(
        .outOfBounds,
        "a passphrase has 1 to \(Limits.passphraseBytes) bytes, this one has \(secret.count): choose another")
    }
  }

  /// Says nothing.
  public var description: String { "(passphrase)" }
  /// Shows nothing.
  public var customMirror: Mirror { Mirror(self, children: [:]) }
}
