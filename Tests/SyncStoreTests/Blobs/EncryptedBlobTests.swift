import SyncTestSupport
import Testing

@testable import SyncStore

/// Keys of a ring that a test changes.
final class KeysUnderTest: Sendable {
  private let ring: Locked<(KeyRing, BlobKeys)>
  let random: @Sendable (Int) -> [UInt8]

  init(seed: UInt64 = 1) throws {
    let generator = Locked(SplitMix64(seed: seed))
    random = { count in
      generator.withLock { generator in (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
      }
    }
    let ring = try #require(
      KeyRing(
        store: StoreID(high: 1, low: 2), passphrase: Secret(copying: [1, 2, 3].span),
        cost: Scrypt.Parameters(logN: 1, r: 1, p: 1), generation: 1, acceptsPlain: false, random: random))
    self.ring = Locked((ring, BlobKeys(ring)))
  }

  var source: BlobKeySource {
    BlobKeySource(present: { self.ring.withLock { $0.1 } }, refresh: {})
  }
  var present: BlobKeys { ring.withLock { $0.1 } }
  var ringNow: KeyRing { ring.withLock { $0.0 } }

  func change(_ body: (inout KeyRing) -> Void) {
    ring.withLock { state in
      body(&state.0)
      state.1 = BlobKeys(state.0)
    }
  }
}

/// Bytes that do not occur by chance.
func secretContent(_ count: Int) -> [UInt8] {
  let word = Array("confidential value ".utf8)
  return (0..<count).map { word[$0 % word.count] }
}

@Suite("Objects of an encrypted store")
struct EncryptedBlobTests {
  static let sizes = [0, 1, 1000, 65_535, 65_536, 65_537, 131_072, 300_000]

  private func reference(_ bytes: [UInt8]) -> BlobReference {
    BlobReference(hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count))
  }

  private func contents(_ test: BlobsUnderTest) throws -> [(String, [UInt8])] {
    try test.names().map { name in
      let file = try test.base.storage.open(test.directory + "/" + name, .readOnly)
      return (name, try file.read(file.status().size, at: 0))
    }
  }

  @Test(
    "are read whole, by range and in place, and are stored encrypted under names that are not their hashes",
    arguments: StorageUnderTest.Kind.allCases, [PackSettings.none, .small])
  func roundTrip(_ kind: StorageUnderTest.Kind, _ packing: PackSettings) throws {
    let test = try BlobsUnderTest(kind)
    let keys = try KeysUnderTest()
    var blobs = try test.open(packing: packing, keys: keys.source)
    var references: [(BlobReference, [UInt8])] = []
    for count in Self.sizes {
      let bytes = secretContent(count)
      let reference = try blobs.put(bytes: bytes, durable: count.isMultiple(of: 2))
      #expect(reference.hash.bytes == SHA256.hash(bytes))
      references.append((reference, bytes))
    }
    let written = try contents(test).count
    for life in 0..<2 {
      for (reference, bytes) in references {
        #expect(try blobs.read(reference) == bytes)
        #expect(try blobs.withBytes(reference) { [UInt8](copying: $0) } == bytes)
        #expect(try blobs.has(reference) && blobs.has(reference.hash))
        for offset in stride(from: 0, to: bytes.count + 1, by: 30_011) {
          for count in [1, 100, 65_536, 70_000] {
            #expect(
              try blobs.read(reference.hash, offset: UInt64(offset), count: count)
                == Array(bytes[offset...].prefix(count)))
          }
        }
        #expect(try blobs.put(bytes: bytes, durable: false) == reference)
      }
      #expect(try contents(test).count == written)
      #expect(try blobs.verify() == [])
      blobs.close()
      if life == 0 { blobs = try test.open(packing: packing, keys: keys.source) }
    }
    for (name, bytes) in try contents(test) {
      #expect(!bytes.contains(Array("fidential".utf8)), "\(name) holds the content")
      for (reference, _) in references {
        #expect(!name.contains(reference.hash.description) && !bytes.contains(reference.hash.bytes))
      }
    }
    let catalogue = test.directory + "/catalogue.sqlite"
    if try test.base.storage.status(catalogue) != nil {
      let file = try test.base.storage.open(catalogue, .readOnly)
      let bytes = try file.read(file.status().size, at: 0)
      for (reference, _) in references { #expect(!bytes.contains(reference.hash.bytes)) }
    }
  }

  @Test(
    "streamed in pieces, or read from a file, are encrypted on the way",
    arguments: [PackSettings.none, .small])
  func streams(_ packing: PackSettings) throws {
    let test = try BlobsUnderTest(.disk)
    let keys = try KeysUnderTest()
    let blobs = try test.open(packing: packing, keys: keys.source)
    for count in Self.sizes {
      let bytes = secretContent(count)
      let writer = try blobs.writer()
      for start in stride(from: 0, to: count, by: 23_456) {
        try writer.append(Array(bytes[start...].prefix(23_456)))
      }
      let reference = try writer.finish(durable: true)
      #expect(try reference.hash == self.reference(bytes).hash && blobs.read(reference) == bytes)
      try blobs.remove(reference.hash)
      let path = test.base.root + "/source \(count)"
      try test.base.storage.open(path, .create).write(bytes, at: 0)
      #expect(try blobs.put(fileAt: path, durable: false) == reference)
      #expect(try blobs.read(reference) == bytes)
    }
    for (name, bytes) in try contents(test) {
      #expect(!bytes.contains(Array("fidential".utf8)), "\(name) holds the content")
    }
  }

  @Test(
    "arrive encrypted from the first byte, and resume where they stopped, also after a restart",
    arguments: StorageUnderTest.Kind.allCases, [PackSettings.none, .small])
  func transfer(_ kind: StorageUnderTest.Kind, _ packing: PackSettings) throws {
    let test = try BlobsUnderTest(kind)
    let keys = try KeysUnderTest()
    let bytes = secretContent(700_000)
    let blob = reference(bytes)
    var random = SplitMix64(seed: 5)
    var blobs = try test.open(packing: packing, keys: keys.source)
    while true {
      let offset = try blobs.partialSize(blob.hash)
      if offset == blob.size { break }
      let end = min(Int(offset) + 1 + Int(random.next() % 100_000), bytes.count)
      try blobs.append(Array(bytes[Int(offset)..<end]), to: blob.hash, at: offset)
      #expect(try blobs.partialSize(blob.hash) == end)
      for (name, bytes) in try contents(test) {
        #expect(!bytes.contains(Array("fidential".utf8)), "\(name) holds the content")
      }
      if random.chance(30) { blobs = try test.open(packing: packing, keys: keys.source) }
    }
    try blobs.complete(blob, durable: true)
    #expect(try blobs.read(blob) == bytes)
    #expect(try blobs.partialSize(blob.hash) == 0)
    #expect(try test.names().count == 1)
    // Bytes of another content (F85).
    let wrong = BlobReference(hash: try #require(BlobHash(bytes: 0..<32)), size: 70_000)
    try blobs.append(secretContent(70_000), to: wrong.hash, at: 0)
    #expect(#expect(throws: StoreError.self) { try blobs.complete(wrong, durable: true) }?.code == .damaged)
    #expect(try blobs.partialSize(wrong.hash) == 0 && !blobs.has(wrong))
  }

  @Test("with any one byte changed are never served, and are quarantined (F37, F44)")
  func everyFlip() throws {
    let keys = try KeysUnderTest()
    let bytes = secretContent(140)
    for place in 0..<Int(EncryptedBlobLayout.encryptedSize(140)) {
      let test = try BlobsUnderTest(.simulated)
      let blobs = try test.open(keys: keys.source)
      let reference = try blobs.put(bytes: bytes, durable: true)
      try test.flip(test.directory + "/" + BlobFiles.object(keys.present.name(of: reference.hash)), at: place)
      let again = try test.open(keys: keys.source)
      let error = #expect(throws: StoreError.self) { try again.read(reference) }
      // A flipped bit of the generation names a key that is in no key file.
      #expect(
        error?.code == .damaged || (12..<16).contains(place) && error?.code == .wrongKey, "byte \(place)")
      if error?.code == .damaged { #expect(try !again.has(reference)) }
    }
  }

  @Test("cannot be swapped, nor their chunks reordered, undetected")
  func exchanged() throws {
    let test = try BlobsUnderTest(.simulated)
    let keys = try KeysUnderTest()
    let blobs = try test.open(keys: keys.source)
    let storage = test.base.storage
    let first = try blobs.put(bytes: secretContent(200_000), durable: true)
    let second = try blobs.put(bytes: pattern(200_000), durable: true)
    func path(_ reference: BlobReference) -> String {
      test.directory + "/" + BlobFiles.object(keys.present.name(of: reference.hash))
    }
    let original = try storage.open(path(first), .readOnly).read(1 << 20, at: 0)
    var swapped = original
    let (start, size) = (EncryptedBlobLayout.headerBytes, EncryptedBlobLayout.encryptedPieceBytes)
    swapped.replaceSubrange(
      start..<start + 2 * size,
      with: original[start + size..<start + 2 * size] + original[start..<start + size])
    try storage.open(path(first), .readWrite).write(swapped, at: 0)
    #expect(#expect(throws: StoreError.self) { try blobs.read(first) }?.code == .damaged)
    _ = try blobs.put(bytes: secretContent(200_000), durable: true)
    let other = try storage.open(path(second), .readOnly).read(1 << 20, at: 0)
    try storage.open(path(first), .readWrite).write(other, at: 0)
    #expect(#expect(throws: StoreError.self) { try blobs.read(first) }?.code == .damaged)
  }

  @Test("stored in plaintext by a stranger are read only if they match their hashes")
  func foreign() throws {
    let test = try BlobsUnderTest(.simulated)
    let keys = try KeysUnderTest()
    let plain = try test.open(packing: .small)
    let right = try plain.put(bytes: secretContent(5000), durable: true)
    let wrong = reference([1, 2, 3])
    // The checksum of a pack needs no key.
    try plain.packs.add(wrong.hash, [9, 9, 9])
    plain.close()
    let blobs = try test.open(packing: .small, keys: keys.source)
    #expect(try blobs.read(right) == secretContent(5000))
    #expect(#expect(throws: StoreError.self) { try blobs.reader(wrong).read(3, at: 0) }?.code == .damaged)
    #expect(try !blobs.has(wrong))
  }

  @Test(
    "are re-encrypted, encrypted or decrypted by a rekey; each is available all the time (F12)",
    arguments: ["renew", "encrypt", "decrypt"], [PackSettings.none, .small])
  func renewal(_ what: String, _ packing: PackSettings) throws {
    let test = try BlobsUnderTest(.simulated)
    let keys = try KeysUnderTest()
    let source = keys.source
    let isOn = Locked(what != "encrypt")
    let switched = BlobKeySource(present: { isOn.withLock { $0 } ? source.present() : nil }, refresh: {})
    let blobs = try test.open(packing: packing, keys: switched)
    let references = try Self.sizes.map { try blobs.put(bytes: secretContent($0), durable: true) }
    let half = secretContent(70_000) + [1]
    try blobs.append(Array(half.prefix(50_000)), to: reference(half).hash, at: 0)
    switch what {
    case "renew": keys.change { $0.rotate(least: 2, random: keys.random) }
    case "encrypt": isOn.withLock { $0 = true }
    default: keys.change { $0.stopEncrypting() }
    }
    for reference in references { #expect(try blobs.read(reference).count == Int(reference.size)) }
    let renewal = try blobs.reencryptAll()
    #expect(renewal.reencrypted == references.count && renewal.damaged.isEmpty)
    #expect(try blobs.reencryptAll().reencrypted == 0)
    // Nothing is readable with the old keys.
    if what == "renew" { keys.change { $0.dropOldGenerations() } }
    if what == "decrypt" { isOn.withLock { $0 = false } }
    for (reference, size) in zip(references, Self.sizes) {
      #expect(try blobs.read(reference) == secretContent(size))
    }
    blobs.close()
    let again = try test.open(packing: packing, keys: switched)
    for (reference, size) in zip(references, Self.sizes) {
      #expect(try again.read(reference) == secretContent(size))
    }
    #expect(try again.verify() == [])
    #expect(try again.partialSize(reference(half).hash) == 0)
    let isPlain = try contents(test).contains { $0.1.contains(Array("fidential".utf8)) }
    #expect(isPlain == (what == "decrypt"))
  }
}
