/// The keys of the blob tier of an encrypted store, from the key ring at one time (`schemas/blobs.md`,
/// "Encrypted objects").
///
/// A stored name is an HMAC of the content's hash under a key that never changes for a store: an attacker
/// with only the disk cannot tell whether a known content is among the objects.
final class BlobKeys: Sendable {
  /// The generation that encrypts new objects; 0 while the store is being decrypted.
  let current: UInt32
  /// Whether objects may still be unencrypted: from the start of encrypting an unencrypted store until that
  /// is complete.
  let acceptsPlain: Bool
  private let namingKey: Secret
  private let masters: [UInt32: BlobMasterKey]

  /// The keys of `ring`.
  init(_ ring: KeyRing) {
    (current, acceptsPlain) = (ring.current, ring.acceptsPlain)
    var name = ring.derived(KeyRing.keyBytes, for: "syncstore blob name v1")
    namingKey = Secret(taking: &name)
    masters = Dictionary(
      uniqueKeysWithValues: ring.masters.map {
        ($0.key, BlobMasterKey($0.value, generation: $0.key, store: ring.store))
      })
  }

  /// Whether new objects are encrypted.
  var encrypts: Bool { current != 0 }

  /// The stored name of an object.
  func name(of hash: BlobHash) -> BlobHash { BlobHash(sha256: keyedHash(hash.bytes)) }

  /// A 32-byte keyed hash of `bytes`, which reveals nothing without the key.
  func keyedHash(_ bytes: [UInt8]) -> [UInt8] {
    var key = namingKey.copy()
    defer { Secret.zero(&key) }
    return HMACSHA256.code(for: bytes, key: key)
  }

  /// The key of a generation; nil if it is not in the ring.
  func master(_ generation: UInt32) -> BlobMasterKey? { masters[generation] }

  /// The cipher of a new object with this random salt; nil if new objects are not encrypted.
  func cipher(salt: [UInt8]) -> BlobCipher? { masters[current]?.cipher(salt: salt) }
}

/// Provides the current keys, and rereads them after another process has changed them.
package struct BlobKeySource: Sendable {
  let present: @Sendable () -> BlobKeys?
  let refresh: @Sendable () throws(StoreError) -> Void

  /// No keys: a tier of unencrypted objects.
  package static let none = BlobKeySource(present: { nil }, refresh: {})

  init(
    present: @escaping @Sendable () -> BlobKeys?, refresh: @escaping @Sendable () throws(StoreError) -> Void
  ) {
    (self.present, self.refresh) = (present, refresh)
  }

  init(_ keys: JournalKeys) {
    self.init(present: { keys.blobKeys }, refresh: { () throws(StoreError) in try keys.refresh() })
  }
}

/// Key material derived from one master key for the blob tier.
final class BlobMasterKey: Sendable {
  let generation: UInt32
  /// 32 bytes for the keys of objects, 32 for AES-256 and 192 for XXH3; the last two make tweaks.
  private let material: Secret
  private let id = SegmentCipher.newName()

  init(_ master: Secret, generation: UInt32, store: StoreID) {
    self.generation = generation
    var secret = master.copy()
    var bytes = HKDFSHA256.derive(
      EncryptedRecordLayout.keyMaterial, secret: secret, salt: [],
      info: Array("syncstore blobs v1".utf8) + store.bytes)
    defer { Secret.zero(&secret) }
    material = Secret(taking: &bytes)
  }

  /// The cipher of the object with this salt.
  func cipher(salt: [UInt8]) -> BlobCipher {
    var key = material.withBytes { [UInt8](copying: $0.extracting(first: KeyRing.keyBytes)) }
    defer { Secret.zero(&key) }
    var object = HMACSHA256.code(for: Array("syncstore blob object v1".utf8) + salt, key: key)
    return BlobCipher(self, salt: salt, Secret(taking: &object))
  }

  /// A 64-bit keyed hash of `bytes`, unpredictable without the key.
  func tweak(_ bytes: RawSpan) -> UInt64 { ThreadCiphers.current.tweak(id, of: bytes, material) }
}

/// Encrypts and decrypts the pieces of one object: AES-256-GCM under a key of its own.
///
/// The nonce is the number of the piece and a keyed hash of its plaintext: if the salt ever repeats, as it
/// may on a cloned machine, a nonce repeats only for identical bytes.
final class BlobCipher: Sendable {
  let salt: [UInt8]
  private let master: BlobMasterKey
  private let key: Secret

  /// Bytes that encryption adds to a piece: tweak and tag.
  static let overhead = 8 + AES256GCM.tagBytes

  init(_ master: BlobMasterKey, salt: [UInt8], _ key: Secret) {
    (self.master, self.salt, self.key) = (master, salt, key)
  }

  var generation: UInt32 { master.generation }

  /// Appends tweak, ciphertext and tag.
  func encrypt(
    _ bytes: RawSpan, number: UInt32, authenticating header: [UInt8] = [], appendingTo output: inout [UInt8]
  ) {
    let tweak = master.tweak(bytes)
    var key = key.copy()
    defer { Secret.zero(&key) }
    for shift in 0..<8 { output.append(UInt8(truncatingIfNeeded: tweak >> UInt64(8 * shift))) }
    AES256GCM.encrypt(
      bytes, key: key, nonce: Self.nonce(number, tweak), authenticating: header, appendingTo: &output)
  }

  /// The plaintext of a piece made by `encrypt`; nil if it was changed, or belongs to another number or
  /// header.
  func decrypt(_ encrypted: RawSpan, number: UInt32, authenticating header: [UInt8] = []) -> [UInt8]? {
    guard encrypted.byteCount >= Self.overhead else { return nil }
    var tweak: UInt64 = 0
    for index in 0..<8 { tweak |= UInt64(encrypted.byte(index)) << UInt64(8 * index) }
    var key = key.copy()
    defer { Secret.zero(&key) }
    return try? AES256GCM.decrypt(
      encrypted.extracting(droppingFirst: 8), key: key, nonce: Self.nonce(number, tweak),
      authenticating: header)
  }

  private static func nonce(_ number: UInt32, _ tweak: UInt64) -> [UInt8] {
    var writer = ByteWriter(capacity: AES256GCM.nonceBytes)
    writer.write(number)
    writer.write(tweak)
    return writer.bytes
  }
}

// Variants for arrays. This is one of the few files that use `unsafe`: spans of arrays require it.
extension BlobCipher {
  /// Appends tweak, ciphertext and tag of the bytes in `range`.
  func encrypt(
    _ bytes: [UInt8], _ range: Range<Int>, number: UInt32, authenticating header: [UInt8] = [],
    appendingTo output: inout [UInt8]
  ) {
    unsafe encrypt(
      bytes.span.bytes.extracting(range), number: number, authenticating: header, appendingTo: &output)
  }

  /// The plaintext of a piece made by `encrypt`; nil if it was changed, or belongs to another number or
  /// header.
  func decrypt(_ encrypted: [UInt8], number: UInt32, authenticating header: [UInt8] = []) -> [UInt8]? {
    unsafe decrypt(encrypted.span.bytes, number: number, authenticating: header)
  }
}

extension RawSpan {
  /// One byte.
  func byte(_ index: Int) -> UInt8 { unsafe unsafeLoad(fromByteOffset: index, as: UInt8.self) }
}
