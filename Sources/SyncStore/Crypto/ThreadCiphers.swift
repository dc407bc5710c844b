private import CLinux
private import CNettle
private import CXXHash

/// Per-thread ciphers with expanded keys, and the plaintexts of recently encrypted or decrypted records:
/// encrypting or decrypting a record then needs no allocation and no key schedule.
///
/// AES-256-GCM is Nettle's here: the same function as `AES256GCM`, which takes less than half the time for a
/// few hundred bytes (decision 35).
///
/// Invariants: an object is used by its thread alone; an id names one key for ever, and is never 0; the
/// plaintext cached under an id, a place and a tag is that of the record there as long as it has that tag.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
@safe final class ThreadCiphers {
  /// Ciphers cached per thread, of about 5 KiB each.
  private static let cipherCount = 128
  /// Plaintexts cached per thread.
  private static let plaintextCount = 8
  /// Maximum size of a cached plaintext.
  private static let keptBytes = 16 << 10

  @safe private struct Slot {
    var id: UInt64 = 0
    var cipher: UnsafeMutablePointer<Cipher>?
  }

  /// Expanded keys of one epoch of a segment.
  private struct Cipher {
    var gcm = gcm_aes256_ctx()
    /// For tweaks.
    var block = aes256_ctx()
  }

  private struct CachedPlaintext {
    var id: UInt64 = 0
    var place = 0
    var tag: Tag = (0, 0)
    var plain: Mapping?
  }

  /// The 16 bytes of a tag.
  typealias Tag = (UInt64, UInt64)

  /// The 12 bytes that must be unique among all encryptions under one key: a location, then a tweak.
  struct Nonce: Sendable {
    /// Offset of the record in its segment.
    var place: UInt32
    /// Keyed hash of the plaintext: differs between two plaintexts at one location.
    var tweak: UInt64
  }

  /// The parts of a message within the two mappings of an encryption or decryption.
  struct MessageRanges: Sendable {
    /// In the output: bytes that are authenticated, not encrypted. They are there before the call.
    var header: Range<Int>
    /// In the input: the plaintext to encrypt, or the ciphertext to decrypt with the tag that follows it.
    var body: Range<Int>
  }

  private let slots: UnsafeMutablePointer<Slot>
  private let opened: UnsafeMutablePointer<CachedPlaintext>
  private var next = 0

  private init() {
    unsafe slots = .allocate(capacity: Self.cipherCount)
    unsafe slots.initialize(repeating: Slot(), count: Self.cipherCount)
    unsafe opened = .allocate(capacity: Self.plaintextCount)
    unsafe opened.initialize(repeating: CachedPlaintext(), count: Self.plaintextCount)
  }

  deinit {
    for index in 0..<Self.cipherCount {
      guard let cipher = unsafe slots[index].cipher else { continue }
      unsafe Self.clear(cipher)
      unsafe cipher.deallocate()
    }
    unsafe slots.deinitialize(count: Self.cipherCount)
    unsafe slots.deallocate()
    unsafe opened.deinitialize(count: Self.plaintextCount)
    unsafe opened.deallocate()
  }

  /// The instance of the calling thread; released when the thread ends.
  static var current: ThreadCiphers {
    if let cell = unsafe sync_thread_cell() {
      return unsafe Unmanaged<ThreadCiphers>.fromOpaque(cell).takeUnretainedValue()
    }
    let made = ThreadCiphers()
    unsafe sync_set_thread_cell(Unmanaged.passRetained(made).toOpaque()) { cell in
      if let cell = unsafe cell { unsafe Unmanaged<ThreadCiphers>.fromOpaque(cell).release() }
    }
    return made
  }

  // MARK: Plaintext cache

  /// The plaintext of the record encrypted with `tag` at `place`, if this thread has cached it.
  @inline(__always)
  func cachedPlaintext(id: UInt64, place: Int, tag: Tag) -> Mapping? {
    for index in 0..<Self.plaintextCount
    where unsafe opened[index].place == place && opened[index].id == id && opened[index].tag == tag {
      return unsafe opened[index].plain
    }
    return nil
  }

  /// A buffer for a plaintext of `count` bytes, not zeroed. It is not reused as long as it is held.
  func plaintextBuffer(_ count: Int) -> Mapping {
    next = (next + 1) % Self.plaintextCount
    unsafe opened[next].id = 0
    if let plain = unsafe Self.reusable(&opened[next].plain), plain.count >= count { return plain }
    return .heap(count <= Self.keptBytes ? max(512, (count + 511) & ~511) : count)
  }

  /// The cached buffer, unless a reader still holds it.
  private static func reusable(_ plain: inout Mapping?) -> Mapping? {
    defer { plain = nil }
    return isKnownUniquelyReferenced(&plain) ? plain : nil
  }

  /// Caches the plaintext just written to a buffer from `plaintextBuffer`.
  @inline(__always)
  func cachePlaintext(_ plain: Mapping, id: UInt64, place: Int, tag: Tag) {
    guard plain.count <= Self.keptBytes else { return }
    unsafe opened[next] = CachedPlaintext(id: id, place: place, tag: tag, plain: plain)
  }

  // MARK: AES-256-GCM

  /// Decrypts the body (ciphertext, then tag) in `source` into `plain` from `start` on; `plain` already has
  /// the authenticated header.
  ///
  /// False, with undefined content in `plain`, if the tag is wrong. `key` gives the key material of an epoch;
  /// it is called if this thread has no cipher for `id` yet.
  func decrypt(
    _ id: UInt64, nonce: Nonce, ranges: MessageRanges, of source: Mapping, into plain: Mapping,
    at start: Int, _ key: () -> Secret?
  ) -> Bool {
    let count = ranges.body.count - AES256GCM.tagBytes
    guard count >= 0, let cipher = unsafe cipher(id, key) else { return false }
    return unsafe plain.withMutableBytes(ranges.header) { header in
      unsafe source.withMutableBytes(ranges.body) { encrypted in
        unsafe plain.withMutableBytes(start..<(start + count)) { plain in
          let input = unsafe encrypted.bindMemory(to: UInt8.self)
          let output = unsafe plain.bindMemory(to: UInt8.self)
          unsafe Self.begin(cipher, nonce, header: header)
          unsafe nettle_gcm_aes256_decrypt(&cipher.pointee.gcm, count, output.baseAddress, input.baseAddress)
          var tag: Tag = (0, 0)
          return unsafe withUnsafeMutableBytes(of: &tag) { tag in
            let tag = unsafe tag.bindMemory(to: UInt8.self)
            unsafe nettle_gcm_aes256_digest(&cipher.pointee.gcm, tag.count, tag.baseAddress)
            return unsafe nettle_memeql_sec(tag.baseAddress, input.baseAddress! + count, tag.count) == 1
          }
        }
      }
    }
  }

  /// Encrypts the body in `plain` into `target` from `start` on, and authenticates the header, which `target`
  /// already has. Returns the tag.
  func encrypt(
    _ id: UInt64, nonce: Nonce, ranges: MessageRanges, of plain: Mapping, into target: Mapping,
    at start: Int, _ key: Secret
  ) -> Tag {
    let cipher = unsafe cipher(id, key)
    let count = ranges.body.count
    return unsafe target.withMutableBytes(ranges.header) { header in
      unsafe plain.withMutableBytes(ranges.body) { plain in
        unsafe target.withMutableBytes(start..<(start + count + AES256GCM.tagBytes)) { target in
          let input = unsafe plain.bindMemory(to: UInt8.self)
          let output = unsafe target.bindMemory(to: UInt8.self)
          unsafe Self.begin(cipher, nonce, header: header)
          unsafe nettle_gcm_aes256_encrypt(&cipher.pointee.gcm, count, output.baseAddress, input.baseAddress)
          unsafe nettle_gcm_aes256_digest(
            &cipher.pointee.gcm, AES256GCM.tagBytes, output.baseAddress! + count)
          return unsafe (
            target.loadUnaligned(fromByteOffset: count, as: UInt64.self),
            target.loadUnaligned(fromByteOffset: count + 8, as: UInt64.self)
          )
        }
      }
    }
  }

  /// A 64-bit keyed hash of `bytes`, unpredictable without the key: XXH3-128 with a secret, then AES of it.
  ///
  /// `key` holds 32 bytes for AES at 32, and the secret of the hash from 64 on.
  func tweak(_ id: UInt64, of bytes: Range<Int>, in plain: Mapping, _ key: Secret) -> UInt64 {
    plain.withBytes(bytes) { tweak(id, of: $0, key) }
  }

  /// The tweak of bytes outside of a mapping.
  func tweak(_ id: UInt64, of bytes: RawSpan, _ key: Secret) -> UInt64 {
    let cipher = unsafe cipher(id, key)
    let hash = unsafe bytes.withUnsafeBytes { bytes in
      unsafe key.withPointer(64) { secret in
        unsafe XXH3_128bits_withSecret(bytes.baseAddress, bytes.count, secret, key.count - 64)
      }
    }
    var block = (hash.low64.littleEndian, hash.high64.littleEndian)
    unsafe withUnsafeMutableBytes(of: &block) { block in
      let block = unsafe block.bindMemory(to: UInt8.self)
      unsafe nettle_aes256_encrypt(&cipher.pointee.block, block.count, block.baseAddress, block.baseAddress)
    }
    return UInt64(littleEndian: block.0)
  }

  /// Sets the nonce, and authenticates the header.
  @inline(__always)
  private static func begin(
    _ cipher: UnsafeMutablePointer<Cipher>, _ nonce: Nonce, header: UnsafeMutableRawBufferPointer
  ) {
    var words = (
      nonce.place.littleEndian, UInt32(truncatingIfNeeded: nonce.tweak).littleEndian,
      UInt32(truncatingIfNeeded: nonce.tweak >> 32).littleEndian
    )
    unsafe withUnsafeBytes(of: &words) { nonce in
      unsafe nettle_gcm_aes256_set_iv(
        &cipher.pointee.gcm, AES256GCM.nonceBytes, nonce.bindMemory(to: UInt8.self).baseAddress)
    }
    unsafe nettle_gcm_aes256_update(
      &cipher.pointee.gcm, header.count, header.bindMemory(to: UInt8.self).baseAddress)
  }

  /// The cipher with this id. Cached because setting keys costs as much as encrypting a small record.
  @inline(__always)
  private func cipher(_ id: UInt64, _ key: () -> Secret?) -> UnsafeMutablePointer<Cipher>? {
    let index = Int(truncatingIfNeeded: (id &* 0x9E37_79B9_7F4A_7C15) >> 57)
    if unsafe slots[index].id == id { return unsafe slots[index].cipher }
    guard let key = key() else { return nil }
    return unsafe makeCipher(id: id, index: index, key: key)
  }

  /// The cipher with this id, with its key available.
  @inline(__always)
  private func cipher(_ id: UInt64, _ key: Secret) -> UnsafeMutablePointer<Cipher> {
    guard let cipher = unsafe cipher(id, { key }) else { preconditionFailure("there is a key") }
    return unsafe cipher
  }

  @inline(never)
  private func makeCipher(id: UInt64, index: Int, key: Secret) -> UnsafeMutablePointer<Cipher> {
    let cipher: UnsafeMutablePointer<Cipher>
    if let old = unsafe slots[index].cipher {
      unsafe Self.clear(old)
      unsafe cipher = old
    } else {
      unsafe cipher = .allocate(capacity: 1)
      unsafe cipher.initialize(to: Cipher())
    }
    unsafe key.withPointer { unsafe nettle_gcm_aes256_set_key(&cipher.pointee.gcm, $0) }
    unsafe key.withPointer(AES256GCM.keyBytes) {
      unsafe nettle_aes256_set_encrypt_key(&cipher.pointee.block, $0)
    }
    unsafe slots[index] = Slot(id: id, cipher: cipher)
    return unsafe cipher
  }

  private static func clear(_ cipher: UnsafeMutablePointer<Cipher>) {
    unsafe sync_zero(cipher, UInt64(MemoryLayout<Cipher>.size))
  }
}
