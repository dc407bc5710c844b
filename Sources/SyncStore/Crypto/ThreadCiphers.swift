private import CLinux
private import COpenSSL
private import CXXHash

/// What the calling thread keeps so that sealing and opening a record costs neither memory nor a key schedule: contexts
/// of OpenSSL with their keys set, and the plain forms of the records it sealed or opened last.
///
/// Invariants: an object is used by its thread alone; an id names one key for ever, and is never 0; the plain form kept
/// under an id, a place and a tag is what is sealed there as long as that tag stands there.
///
/// This is one of the few files that use `unsafe`: the C library takes pointers and counts.
@safe final class ThreadCiphers {
  /// Contexts that a thread keeps, of about 1 KiB each.
  private static let contextCount = 128
  /// Plain forms that a thread keeps.
  private static let openedCount = 8
  /// Bytes of a plain form that is worth keeping.
  private static let keptBytes = 16 << 10

  @safe private struct Slot {
    var id: UInt64 = 0
    var context: OpaquePointer?
  }

  private struct Opened {
    var id: UInt64 = 0
    var place = 0
    var tag: Tag = (0, 0)
    var plain: Mapping?
  }

  /// The 16 bytes of a tag.
  typealias Tag = (UInt64, UInt64)

  private let slots: UnsafeMutablePointer<Slot>
  private let opened: UnsafeMutablePointer<Opened>
  private var next = 0

  private init() {
    unsafe slots = .allocate(capacity: Self.contextCount)
    unsafe slots.initialize(repeating: Slot(), count: Self.contextCount)
    unsafe opened = .allocate(capacity: Self.openedCount)
    unsafe opened.initialize(repeating: Opened(), count: Self.openedCount)
  }

  deinit {
    for index in 0..<Self.contextCount { unsafe EVP_CIPHER_CTX_free(slots[index].context) }
    unsafe slots.deinitialize(count: Self.contextCount)
    unsafe slots.deallocate()
    unsafe opened.deinitialize(count: Self.openedCount)
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
  func plain(_ id: UInt64, _ place: Int, _ tag: Tag) -> Mapping? {
    for index in 0..<Self.openedCount
    where unsafe opened[index].place == place && opened[index].id == id && opened[index].tag == tag {
      return unsafe opened[index].plain
    }
    return nil
  }

  /// Memory for a plain form of `count` bytes, not zeroed; nobody else uses it as long as it is held.
  func room(_ count: Int) -> Mapping {
    next = (next + 1) % Self.openedCount
    unsafe opened[next].id = 0
    if let plain = unsafe Self.taken(&opened[next].plain), plain.count >= count { return plain }
    return .heap(count <= Self.keptBytes ? max(512, (count + 511) & ~511) : count)
  }

  /// What was kept, unless somebody still reads it.
  private static func taken(_ plain: inout Mapping?) -> Mapping? {
    defer { plain = nil }
    return isKnownUniquelyReferenced(&plain) ? plain : nil
  }

  /// Keeps what was put into `room` a moment ago.
  @inline(__always)
  func keep(_ plain: Mapping, _ id: UInt64, _ place: Int, _ tag: Tag) {
    guard plain.count <= Self.keptBytes else { return }
    unsafe opened[next] = Opened(id: id, place: place, tag: tag, plain: plain)
  }

  // MARK: AES-256-GCM

  /// Puts the plaintext of `sealed` (ciphertext, then tag) in `source` into `plain` from `start` on, where `header` lies
  /// that goes with it; it is read before anything is written. False, and what is there is worth nothing, if the tag is wrong. `key` is asked for if this thread has no context
  /// for `id` yet; it gives 32 bytes at least.
  func open(
    _ id: UInt64, place: UInt32, tweak: UInt64, header: Range<Int>, sealed: Range<Int>, of source: Mapping,
    into plain: Mapping, at start: Int, _ key: () -> Secret?
  ) -> Bool {
    let count = sealed.count - AES256GCM.tagBytes
    guard count >= 0, let context = unsafe context(id, AES256GCM.cipher, key) else { return false }
    return unsafe plain.withMutableBytes(header) { header in
      unsafe source.withMutableBytes(sealed) { sealed in
        unsafe plain.withMutableBytes(start..<(start + count)) { plain in
          var rest: Int32 = 0
          let input = unsafe sealed.bindMemory(to: UInt8.self)
          let output = unsafe plain.bindMemory(to: UInt8.self)
          unsafe Self.begin(context, place, tweak, header, encrypting: 0)
          return unsafe EVP_CipherUpdate(context, output.baseAddress, &rest, input.baseAddress, Int32(count))
            == 1
            && sync_gcm_set_tag(context, input.baseAddress! + count, Int32(AES256GCM.tagBytes)) == 1
            && EVP_DecryptFinal_ex(context, output.baseAddress! + count, &rest) == 1
        }
      }
    }
  }

  /// Puts the ciphertext of the bytes `plaintext` of `plain`, and a tag for it and for `header`, into `target` from
  /// `start` on. `header` lies in `target`. Returns the tag.
  func seal(
    _ id: UInt64, place: UInt32, tweak: UInt64, header: Range<Int>, plaintext: Range<Int>, of plain: Mapping,
    into target: Mapping, at start: Int, _ key: Secret
  ) -> Tag {
    guard let context = unsafe context(id, AES256GCM.cipher, { key }) else {
      fatalError("AES-256-GCM: no memory")
    }
    let count = plaintext.count
    return unsafe target.withMutableBytes(header) { header in
      unsafe plain.withMutableBytes(plaintext) { plain in
        unsafe target.withMutableBytes(start..<(start + count + AES256GCM.tagBytes)) { target in
          var rest: Int32 = 0
          let input = unsafe plain.bindMemory(to: UInt8.self)
          let output = unsafe target.bindMemory(to: UInt8.self)
          unsafe Self.begin(context, place, tweak, header, encrypting: 1)
          guard
            unsafe EVP_CipherUpdate(context, output.baseAddress, &rest, input.baseAddress, Int32(count)) == 1,
            unsafe EVP_EncryptFinal_ex(context, output.baseAddress! + count, &rest) == 1,
            unsafe EVP_CIPHER_CTX_ctrl(
              context, EVP_CTRL_GCM_GET_TAG, Int32(AES256GCM.tagBytes), output.baseAddress! + count) == 1
          else { fatalError("AES-256-GCM: OpenSSL failed") }
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
    guard let context = unsafe context(id | 1, AES256GCM.block, { key }) else {
      fatalError("AES-256: no memory")
    }
    let hash = unsafe bytes.withUnsafeBytes { bytes in
      unsafe key.withPointer(64) { secret in
        unsafe XXH3_128bits_withSecret(bytes.baseAddress, bytes.count, secret, key.count - 64)
      }
    }
    var block = (hash.low64.littleEndian, hash.high64.littleEndian)
    var output: (UInt64, UInt64) = (0, 0)
    var written: Int32 = 0
    let isDone = unsafe withUnsafeBytes(of: &block) { block in
      unsafe withUnsafeMutableBytes(of: &output) { output in
        unsafe EVP_EncryptUpdate(
          context, output.baseAddress?.assumingMemoryBound(to: UInt8.self), &written,
          block.baseAddress?.assumingMemoryBound(to: UInt8.self), 16)
      }
    }
    guard isDone == 1, written == 16 else { fatalError("AES-256: OpenSSL failed") }
    return UInt64(littleEndian: output.0)
  }

  // The nonce: the place, then the tweak.
  @inline(__always)
  private static func begin(
    _ context: OpaquePointer, _ place: UInt32, _ tweak: UInt64, _ header: UnsafeMutableRawBufferPointer,
    encrypting: Int32
  ) {
    var nonce = (
      place.littleEndian, UInt32(truncatingIfNeeded: tweak).littleEndian,
      UInt32(truncatingIfNeeded: tweak >> 32).littleEndian
    )
    var ignored: Int32 = 0
    let isReady = unsafe withUnsafeBytes(of: &nonce) { nonce in
      unsafe EVP_CipherInit_ex2(
        context, nil, nil, nonce.baseAddress?.assumingMemoryBound(to: UInt8.self), encrypting, nil) == 1
    }
    let start = unsafe header.baseAddress?.assumingMemoryBound(to: UInt8.self)
    guard isReady, unsafe EVP_CipherUpdate(context, nil, &ignored, start, Int32(header.count)) == 1 else {
      fatalError("AES-256-GCM: OpenSSL failed")
    }
  }

  /// The context with this id. Setting a key costs as much as sealing a small record: that is what is kept.
  @inline(__always)
  private func context(_ id: UInt64, _ cipher: OpaquePointer, _ key: () -> Secret?) -> OpaquePointer? {
    let index = Int(truncatingIfNeeded: (id &* 0x9E37_79B9_7F4A_7C15) >> 57)
    if unsafe slots[index].id == id { return unsafe slots[index].context }
    return unsafe makeContext(id, index, cipher, key)
  }

  @inline(never)
  private func makeContext(
    _ id: UInt64, _ index: Int, _ cipher: OpaquePointer, _ key: () -> Secret?
  ) -> OpaquePointer? {
    guard let key = key(), let context = unsafe slots[index].context ?? EVP_CIPHER_CTX_new() else {
      return nil
    }
    unsafe slots[index] = Slot(id: 0, context: context)
    let isBlock = id & 1 == 1
    let isReady = unsafe key.withPointer(isBlock ? AES256GCM.keyBytes : 0) { key in
      unsafe EVP_CIPHER_CTX_reset(context) == 1 && EVP_CipherInit_ex2(context, cipher, key, nil, 1, nil) == 1
        && EVP_CIPHER_CTX_set_padding(context, isBlock ? 0 : 1) == 1
    }
    guard isReady else { fatalError("AES-256: OpenSSL failed") }
    unsafe slots[index].id = id
    return unsafe context
  }
}
