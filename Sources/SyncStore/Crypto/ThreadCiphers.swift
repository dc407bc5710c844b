private import CLinux
private import CNettle
private import CXXHash

/// What the calling thread keeps so that sealing and opening a record costs neither memory nor a key schedule: ciphers
/// with their keys set, and the plain forms of the records it sealed or opened last.
///
/// AES-256-GCM is Nettle's here: the same function as `AES256GCM`, which takes less than half the time for a few hundred
/// bytes (decision 35).
///
/// Invariants: an object is used by its thread alone; an id names one key for ever, and is never 0; the plain form kept
/// under an id, a place and a tag is what is sealed there as long as that tag stands there.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
@safe final class ThreadCiphers {
  /// Ciphers that a thread keeps, of about 5 KiB each.
  private static let cipherCount = 128
  /// Plain forms that a thread keeps.
  private static let plaintextCount = 8
  /// Bytes of a plain form that is worth keeping.
  private static let keptBytes = 16 << 10

  @safe private struct Slot {
    var id: UInt64 = 0
    var cipher: UnsafeMutablePointer<Cipher>?
  }

  /// What follows from the keys of one epoch of a segment.
  private struct Cipher {
    var gcm = gcm_aes256_ctx()
    /// What tweaks are made with.
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

  /// Those of the calling thread; they go when it ends.
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

  // MARK: Plain forms

  /// The plain form of what is sealed with `tag` at `place`, if this thread has it yet.
  @inline(__always)
  func cachedPlaintext(id: UInt64, place: Int, tag: Tag) -> Mapping? {
    for index in 0..<Self.plaintextCount
    where unsafe opened[index].place == place && opened[index].id == id && opened[index].tag == tag {
      return unsafe opened[index].plain
    }
    return nil
  }

  /// Memory for a plain form of `count` bytes, not zeroed; nobody else uses it as long as it is held.
  func plaintextBuffer(_ count: Int) -> Mapping {
    next = (next + 1) % Self.plaintextCount
    unsafe opened[next].id = 0
    if let plain = unsafe Self.reusable(&opened[next].plain), plain.count >= count { return plain }
    return .heap(count <= Self.keptBytes ? max(512, (count + 511) & ~511) : count)
  }

  /// What was kept, unless somebody still reads it.
  private static func reusable(_ plain: inout Mapping?) -> Mapping? {
    defer { plain = nil }
    return isKnownUniquelyReferenced(&plain) ? plain : nil
  }

  /// Keeps what was put into `room` a moment ago.
  @inline(__always)
  func cachePlaintext(_ plain: Mapping, id: UInt64, place: Int, tag: Tag) {
    guard plain.count <= Self.keptBytes else { return }
    unsafe opened[next] = CachedPlaintext(id: id, place: place, tag: tag, plain: plain)
  }

  // MARK: AES-256-GCM

  /// Puts the plaintext of `sealed` (ciphertext, then tag) in `source` into `plain` from `start` on, where `header` lies
  /// that goes with it; it is read before anything is written. False, and what is there is worth nothing, if the tag is wrong. `key` is asked for if this thread has no cipher
  /// for `id` yet; it gives the key material of an epoch.
  func decrypt(
    _ id: UInt64, place: UInt32, tweak: UInt64, header: Range<Int>, encrypted: Range<Int>, of source: Mapping,
    into plain: Mapping, at start: Int, _ key: () -> Secret?
  ) -> Bool {
    let count = encrypted.count - AES256GCM.tagBytes
    guard count >= 0, let cipher = unsafe cipher(id, key) else { return false }
    return unsafe plain.withMutableBytes(header) { header in
      unsafe source.withMutableBytes(encrypted) { sealed in
        unsafe plain.withMutableBytes(start..<(start + count)) { plain in
          let input = unsafe sealed.bindMemory(to: UInt8.self)
          let output = unsafe plain.bindMemory(to: UInt8.self)
          unsafe Self.begin(cipher, place: place, tweak: tweak, header: header)
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

  /// Puts the ciphertext of the bytes `plaintext` of `plain`, and a tag for it and for `header`, into `target` from
  /// `start` on. `header` lies in `target`. Returns the tag.
  func encrypt(
    _ id: UInt64, place: UInt32, tweak: UInt64, header: Range<Int>, plaintext: Range<Int>, of plain: Mapping,
    into target: Mapping, at start: Int, _ key: Secret
  ) -> Tag {
    let cipher = unsafe cipher(id, key)
    let count = plaintext.count
    return unsafe target.withMutableBytes(header) { header in
      unsafe plain.withMutableBytes(plaintext) { plain in
        unsafe target.withMutableBytes(start..<(start + count + AES256GCM.tagBytes)) { target in
          let input = unsafe plain.bindMemory(to: UInt8.self)
          let output = unsafe target.bindMemory(to: UInt8.self)
          unsafe Self.begin(cipher, place: place, tweak: tweak, header: header)
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

  /// 64 bits that depend on all of `bytes`, as nobody without the key can tell: a keyed hash (XXH3-128 with a secret),
  /// then AES of it. `key` holds 32 bytes for AES at 32, and the secret of the hash from 64 on.
  func tweak(_ id: UInt64, of bytes: Range<Int>, in plain: Mapping, _ key: Secret) -> UInt64 {
    plain.withBytes(bytes) { tweak(id, of: $0, key) }
  }

  /// The same of bytes that lie elsewhere.
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

  // The nonce: the place, then the tweak.
  @inline(__always)
  private static func begin(
    _ cipher: UnsafeMutablePointer<Cipher>, place: UInt32, tweak: UInt64,
    header: UnsafeMutableRawBufferPointer
  ) {
    var nonce = (
      place.littleEndian, UInt32(truncatingIfNeeded: tweak).littleEndian,
      UInt32(truncatingIfNeeded: tweak >> 32).littleEndian
    )
    unsafe withUnsafeBytes(of: &nonce) { nonce in
      unsafe nettle_gcm_aes256_set_iv(
        &cipher.pointee.gcm, AES256GCM.nonceBytes, nonce.bindMemory(to: UInt8.self).baseAddress)
    }
    unsafe nettle_gcm_aes256_update(
      &cipher.pointee.gcm, header.count, header.bindMemory(to: UInt8.self).baseAddress)
  }

  /// The cipher with this id. Setting keys costs as much as sealing a small record: that is what is kept.
  @inline(__always)
  private func cipher(_ id: UInt64, _ key: () -> Secret?) -> UnsafeMutablePointer<Cipher>? {
    let index = Int(truncatingIfNeeded: (id &* 0x9E37_79B9_7F4A_7C15) >> 57)
    if unsafe slots[index].id == id { return unsafe slots[index].cipher }
    guard let key = key() else { return nil }
    return unsafe makeCipher(id: id, index: index, key: key)
  }

  /// The same, of a key that is at hand.
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
