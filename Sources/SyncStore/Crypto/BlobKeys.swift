/// What the blob tier of an encrypted store is sealed with, as a key ring has it at one time (`schemas/blobs.md`, "Sealed objects").
///
/// A name on the disk is an HMAC of the content's hash under a key that stays for the life of the store: who has the disk
/// alone cannot tell whether a content that he knows is among the objects.
final class BlobKeys: Sendable {
  /// The generation that seals what is written from now on; 0 where the store is to become plain.
  let current: UInt32
  /// May objects still lie in the clear? So it is from when a plain store is encrypted until that is complete.
  let acceptsPlain: Bool
  private let namingKey: Secret
  private let masters: [UInt32: BlobMasterKey]

  /// Those of `ring`.
  init(_ ring: KeyRing) {
    (current, acceptsPlain) = (ring.current, ring.acceptsPlain)
    var name = ring.derived(KeyRing.keyBytes, for: "syncstore blob name v1")
    namingKey = Secret(taking: &name)
    masters = Dictionary(
      uniqueKeysWithValues: ring.masters.map {
        ($0.key, BlobMasterKey($0.value, generation: $0.key, store: ring.store))
      })
  }

  /// Is what is written from now on sealed?
  var encrypts: Bool { current != 0 }

  /// What an object is called on the disk.
  func name(of hash: BlobHash) -> BlobHash { BlobStore.hash(keyedHash(hash.bytes)) }

  /// 32 bytes that stand for these, of which they tell nothing to who has not the keys.
  func keyedHash(_ bytes: [UInt8]) -> [UInt8] {
    var key = namingKey.copy()
    defer { Secret.zero(&key) }
    return HMACSHA256.code(for: bytes, key: key)
  }

  /// The key of a generation; nil if it is not in the ring.
  func master(_ generation: UInt32) -> BlobMasterKey? { masters[generation] }

  /// What seals a new object, whose salt these random bytes become.
  func cipher(salt: [UInt8]) -> BlobCipher? { masters[current]?.cipher(salt: salt) }
}

/// Where the keys come from, and how they are read again when another process has changed them.
package struct BlobKeySource: Sendable {
  let present: @Sendable () -> BlobKeys?
  let refresh: @Sendable () throws(StoreError) -> Void

  /// None: a tier whose objects lie as they are.
  package static let none = BlobKeySource(present: { nil }, refresh: {})

  init(
    present: @escaping @Sendable () -> BlobKeys?, refresh: @escaping @Sendable () throws(StoreError) -> Void
  ) {
    (self.present, self.refresh) = (present, refresh)
  }

  init(_ seal: JournalKeys) {
    self.init(present: { seal.blobKeys }, refresh: { () throws(StoreError) in try seal.refresh() })
  }
}

/// What follows from one master key for the blob tier.
final class BlobMasterKey: Sendable {
  let generation: UInt32
  /// 32 bytes for the keys of objects, 32 for AES-256 and 192 for XXH3: what tweaks are made with.
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

  /// What seals and opens the object with this salt.
  func cipher(salt: [UInt8]) -> BlobCipher {
    var key = material.withBytes { [UInt8](copying: $0.extracting(first: KeyRing.keyBytes)) }
    defer { Secret.zero(&key) }
    var object = HMACSHA256.code(for: Array("syncstore blob object v1".utf8) + salt, key: key)
    return BlobCipher(self, salt: salt, Secret(taking: &object))
  }

  /// 64 bits that depend on all of `bytes`, as nobody without the key can tell.
  func tweak(_ bytes: RawSpan) -> UInt64 { ThreadCiphers.current.tweak(id, of: bytes, material) }
}

/// Seals and opens the pieces of one object: AES-256-GCM under a key of the object alone.
///
/// The nonce is the number of the piece and a keyed hash of what is sealed: should the salt ever repeat, as it may on a cloned
/// machine, a nonce repeats only for the very same bytes.
final class BlobCipher: Sendable {
  let salt: [UInt8]
  private let master: BlobMasterKey
  private let key: Secret

  /// Bytes that a sealed piece has more than a plain one: tweak and tag.
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

  /// What `seal` has made; nil if it was changed, or stood elsewhere.
  func decrypt(_ sealed: RawSpan, number: UInt32, authenticating header: [UInt8] = []) -> [UInt8]? {
    guard sealed.byteCount >= Self.overhead else { return nil }
    var tweak: UInt64 = 0
    for index in 0..<8 { tweak |= UInt64(sealed.byte(index)) << UInt64(8 * index) }
    var key = key.copy()
    defer { Secret.zero(&key) }
    return try? AES256GCM.decrypt(
      sealed.extracting(droppingFirst: 8), key: key, nonce: Self.nonce(number, tweak), authenticating: header)
  }

  private static func nonce(_ number: UInt32, _ tweak: UInt64) -> [UInt8] {
    var writer = ByteWriter(capacity: AES256GCM.nonceBytes)
    writer.write(number)
    writer.write(tweak)
    return writer.bytes
  }
}

// Of bytes in arrays: this is one of the few files that use `unsafe`, which spans of arrays are.
extension BlobCipher {
  /// Appends tweak, ciphertext and tag of the bytes in `range`.
  func encrypt(
    _ bytes: [UInt8], _ range: Range<Int>, number: UInt32, authenticating header: [UInt8] = [],
    appendingTo output: inout [UInt8]
  ) {
    unsafe encrypt(
      bytes.span.bytes.extracting(range), number: number, authenticating: header, appendingTo: &output)
  }

  /// What `seal` has made; nil if it was changed, or stood elsewhere.
  func decrypt(_ sealed: [UInt8], number: UInt32, authenticating header: [UInt8] = []) -> [UInt8]? {
    unsafe decrypt(sealed.span.bytes, number: number, authenticating: header)
  }
}

extension EncryptedBlob {
  /// Those bytes of the content that `range` names, out of the pieces from `first` on; nil if they were changed.
  func decrypt(_ pieces: [UInt8], from first: UInt64, _ range: Range<UInt64>) -> [UInt8]? {
    unsafe decrypt(pieces.span.bytes, from: first, range)
  }
}

extension RawSpan {
  /// One byte.
  func byte(_ index: Int) -> UInt8 { unsafe unsafeLoad(fromByteOffset: index, as: UInt8.self) }
}
