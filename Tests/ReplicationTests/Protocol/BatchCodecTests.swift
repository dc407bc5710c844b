import Foundation
import Replication
import SyncStore
import SyncTestSupport
import Testing

@Suite struct BatchCodecTests {
  static let store = StoreID(high: 0x1111_1111_1111_1111, low: 0x2222_2222_2222_2222)
  static let sender = ActorID(high: 0x3333_3333_3333_3333, low: 0x4444_4444_4444_4444)
  static let mark = RoundMark(high: 0x5555_5555_5555_5555, low: 0x6666_6666_6666_6666)
  static let context = BatchContext.records(store: store, sender: sender, mark: mark, index: 7)
  static let randomness = [UInt8](repeating: 0xA5, count: 32)
  let keys = GroupKeyRing(key: Array(0..<32))

  /// Incompressible bytes.
  static func noise(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var state = seed
    return (0..<count).map { _ in
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return UInt8(truncatingIfNeeded: state >> 56)
    }
  }

  /// An encoded batch built from the specification alone, so that it can be malformed, and so that the codec
  /// is checked against an independent implementation of the format.
  static func assemble(
    body: [UInt8], declared: Int, compressed: Bool, kind: UInt8 = 1, keys: GroupKeyRing
  ) throws -> [UInt8] {
    func littleEndian<Integer: FixedWidthInteger>(_ value: Integer) -> [UInt8] {
      (0..<(Integer.bitWidth / 8)).map { UInt8(truncatingIfNeeded: value >> Integer(8 * $0)) }
    }
    let fields: [UInt8] =
      [1, kind, compressed ? 1 : 0, 0] + littleEndian(keys.current) + store.bytes + sender.bytes
      + (kind == 1 ? mark.bytes : [UInt8](repeating: 0, count: 16)) + littleEndian(UInt64(7))
      + littleEndian(UInt32(declared))
    let groupKey = try #require(keys.key(of: keys.current))
    let saltKeys = HKDFSHA256.derive(
      64, secret: groupKey, salt: [], info: Array("syncstore batch salt v2".utf8))
    let digest = AES256GCM.encrypt(
      [], key: Array(saltKeys[32...]), nonce: [UInt8](repeating: 0, count: 12), authenticating: body)
    let salt = HMACSHA256.code(for: randomness + fields + digest, key: Array(saltKeys[..<32]))
    let key = HKDFSHA256.derive(
      32, secret: groupKey, salt: salt, info: Array("syncstore batch v1".utf8) + fields)
    let header = fields + salt
    return header
      + AES256GCM.encrypt(body, key: key, nonce: [UInt8](repeating: 0, count: 12), authenticating: header)
  }

  func open(_ sealed: [UInt8], _ context: BatchContext = Self.context) throws -> [UInt8] {
    try BatchCodec.decrypt(sealed, expecting: context, keys: keys)
  }

  func expectRefusal(
    _ sealed: [UInt8], as context: BatchContext = Self.context, _ what: Comment,
    location: SourceLocation = #_sourceLocation
  ) {
    let error = #expect(throws: ReplicationError.self, what, sourceLocation: location) {
      try open(sealed, context)
    }
    #expect(error?.code == .protocolViolation, what, sourceLocation: location)
  }

  @Test(
    "Encrypted batches of any size and shape are decrypted to the same records",
    arguments: [0, 1, 255, 256, 257, 1023, 1024, 4096, 32 << 10, (32 << 10) + 1, 1 << 20, 8 << 20])
  func roundTrip(count: Int) throws {
    let payloads = [
      [UInt8](repeating: 65, count: count), Self.noise(count),
      Array(Self.noise(count / 2) + [UInt8](repeating: 0, count: count - count / 2)),
    ]
    for payload in payloads {
      let sealed = try BatchCodec.encrypt(
        payload, as: Self.context, keys: keys, randomness: SecureRandom.bytes(32))
      #expect(sealed.count <= count + BatchCodec.overheadBytes)
      #expect(try open(sealed) == payload)
    }
  }

  @Test("Compressible batches are sent compressed, others as they are")
  func compression() throws {
    let text = Array(String(repeating: "a value like any other; ", count: 4000).utf8)
    let shrunk = try BatchCodec.encrypt(text, as: Self.context, keys: keys, randomness: Self.randomness)
    #expect(shrunk[2] == 1)
    #expect(shrunk.count < text.count / 4)
    let noise = Self.noise(96_000)
    let stored = try BatchCodec.encrypt(noise, as: Self.context, keys: keys, randomness: Self.randomness)
    #expect(stored[2] == 0)
    #expect(stored.count == noise.count + BatchCodec.overheadBytes)
  }

  @Test("A payload above its bound is not encrypted")
  func bounds() throws {
    let range = BatchContext.blobRange(store: Self.store, sender: Self.sender, offset: 0)
    let payload = Self.noise(Limits.blobRangeBytes)
    let sealed = try BatchCodec.encrypt(payload, as: range, keys: keys, randomness: Self.randomness)
    #expect(try open(sealed, range) == payload)
    #expect(throws: ReplicationError.self) {
      try BatchCodec.encrypt(payload + [0], as: range, keys: keys, randomness: Self.randomness)
    }
  }

  @Test("F80 one changed bit anywhere is refused: header, salt, ciphertext, tag", arguments: [false, true])
  func changes(compressed: Bool) throws {
    let payload = compressed ? [UInt8](repeating: 7, count: 1000) : Self.noise(64)
    let sealed = try BatchCodec.encrypt(payload, as: Self.context, keys: keys, randomness: Self.randomness)
    #expect(sealed[2] == (compressed ? 1 : 0))
    for index in sealed.indices {
      for bit in 0..<8 {
        var changed = sealed
        changed[index] ^= 1 << UInt8(bit)
        expectRefusal(changed, "byte \(index), bit \(bit)")
      }
    }
    for count in [0, 1, 99, 100, 115, 116, sealed.count - 1] {
      expectRefusal(Array(sealed.prefix(count)), "cut to \(count)")
    }
    expectRefusal(sealed + [0], "a byte more")
  }

  @Test("F80 a batch replayed in another context is refused")
  func replays() throws {
    let sealed = try BatchCodec.encrypt([1, 2, 3], as: Self.context, keys: keys, randomness: Self.randomness)
    let others: [BatchContext] = [
      .records(store: .random(), sender: Self.sender, mark: Self.mark, index: 7),
      .records(store: Self.store, sender: .random(), mark: Self.mark, index: 7),
      .records(store: Self.store, sender: Self.sender, mark: .random(), index: 7),
      .records(store: Self.store, sender: Self.sender, mark: Self.mark, index: 8),
      .blobRange(store: Self.store, sender: Self.sender, offset: 7),
    ]
    for other in others { expectRefusal(sealed, as: other, "\(other)") }
    #expect(try open(sealed) == [1, 2, 3])
  }

  @Test("F80 an unknown epoch and another group's key are refused; older epochs stay readable")
  func epochs() throws {
    var ring = keys
    let old = try BatchCodec.encrypt([1], as: Self.context, keys: ring, randomness: Self.randomness)
    #expect(try ring.beginEpoch(Self.noise(32), random: 0) == 1 << 22)
    let new = try BatchCodec.encrypt([1], as: Self.context, keys: ring, randomness: Self.randomness)
    #expect(BatchCodec.epoch(of: old) == 1 && BatchCodec.epoch(of: new) == 1 << 22)
    expectRefusal(new, "an epoch that is unknown here")
    #expect(try BatchCodec.decrypt(old, expecting: Self.context, keys: ring) == [1])
    #expect(try BatchCodec.decrypt(new, expecting: Self.context, keys: ring) == [1])
    #expect(throws: ReplicationError.self) {
      try BatchCodec.decrypt(old, expecting: Self.context, keys: GroupKeyRing(key: Self.noise(32)))
    }
  }

  @Test("F79 decompression stops when it exceeds or falls short of the declared size")
  func bombs() throws {
    // The zlib stream of a million zeros, taken from a valid batch.
    let zeros = [UInt8](repeating: 0, count: 1_000_000)
    let honest = try BatchCodec.encrypt(zeros, as: Self.context, keys: keys, randomness: Self.randomness)
    let header = Array(honest[..<100])
    let groupKey = try #require(keys.key(of: 1))
    let key = HKDFSHA256.derive(
      32, secret: groupKey, salt: Array(header[68...]), info: Array("syncstore batch v1".utf8) + header[..<68]
    )
    let stream = try AES256GCM.decrypt(
      honest[100...], key: key, nonce: [UInt8](repeating: 0, count: 12), authenticating: header)
    #expect(stream.count < 10_000)

    let exact = try Self.assemble(body: stream, declared: 1_000_000, compressed: true, keys: keys)
    #expect(try open(exact) == zeros)
    for declared in [
      0, 1, stream.count, stream.count + 1, 999_999, 1_000_001, Limits.batchBytes, Limits.batchBytes + 1,
      Int(UInt32.max),
    ] {
      expectRefusal(
        try Self.assemble(body: stream, declared: declared, compressed: true, keys: keys), "\(declared)")
    }
    expectRefusal(
      try Self.assemble(body: stream + [0], declared: 1_000_000, compressed: true, keys: keys), "a byte more")
    expectRefusal(
      try Self.assemble(body: Array(stream.dropLast()), declared: 1_000_000, compressed: true, keys: keys),
      "a byte fewer")
    expectRefusal(
      try Self.assemble(body: Self.noise(500), declared: 1000, compressed: true, keys: keys), "not zlib")
    expectRefusal(
      try Self.assemble(body: [1, 2], declared: 3, compressed: false, keys: keys), "stored, short")
    expectRefusal(
      try Self.assemble(body: [1, 2], declared: 1, compressed: false, keys: keys), "stored, long")
    expectRefusal(
      try Self.assemble(body: [1, 2], declared: 2, compressed: false, kind: 3, keys: keys), "unknown kind")
  }

  @Test("A repeating random generator does not repeat a key for other content or another context")
  func hedging() throws {
    let first = try BatchCodec.encrypt([1], as: Self.context, keys: keys, randomness: Self.randomness)
    let same = try BatchCodec.encrypt([1], as: Self.context, keys: keys, randomness: Self.randomness)
    let content = try BatchCodec.encrypt([2], as: Self.context, keys: keys, randomness: Self.randomness)
    let next = BatchContext.records(store: Self.store, sender: Self.sender, mark: Self.mark, index: 8)
    let place = try BatchCodec.encrypt([1], as: next, keys: keys, randomness: Self.randomness)
    let salts = [first, content, place].map { Array($0[68..<100]) }
    #expect(first == same)
    #expect(Set(salts).count == 3)
  }

  /// One case of schemas/vectors/batch.json; all bytes in hex.
  struct Vector: Decodable, Sendable, CustomTestStringConvertible {
    let name, kind, groupKey, store, sender, mark, randomness, payload, sealed: String
    let epoch: UInt32
    let index: UInt64
    var testDescription: String { name }

    func bytes(_ field: KeyPath<Vector, String>) throws -> [UInt8] {
      try #require(Hex.bytes(of: self[keyPath: field]))
    }

    static let all: [Vector] = {
      do { return try Checkout.vector("batch.json") } catch { fatalError("batch.json: \(error)") }
    }()
  }

  @Test(
    "The golden vectors are decrypted, and the stored contents encrypt to the same bytes",
    arguments: Vector.all)
  func golden(vector: Vector) throws {
    let store = try #require(StoreID(vector.store))
    let sender = try #require(ActorID(vector.sender))
    let mark = try #require(RoundMark(vector.mark))
    let context: BatchContext =
      vector.kind == "records"
      ? .records(store: store, sender: sender, mark: mark, index: vector.index)
      : .blobRange(store: store, sender: sender, offset: vector.index)
    var keys = GroupKeyRing(key: [UInt8](repeating: 0, count: 32))
    try keys.insert(vector.bytes(\.groupKey), epoch: vector.epoch)
    let sealed = try vector.bytes(\.sealed)
    let payload = try vector.bytes(\.payload)
    #expect(try BatchCodec.decrypt(sealed, expecting: context, keys: keys) == payload)
    // zlib versions may compress the same content differently; stored blocks have one form.
    if sealed[2] == 0 {
      let again = try BatchCodec.encrypt(
        payload, as: context, keys: keys, randomness: vector.bytes(\.randomness))
      #expect(again == sealed)
    }
  }
}

@Suite struct GroupKeyRingTests {
  @Test("A ring is read back from its text")
  func text() throws {
    var ring = GroupKeyRing(key: Array(0..<32))
    _ = try ring.beginEpoch(Array(32..<64), random: 7)
    try ring.insert(Array(64..<96), epoch: 1 << 30)
    let read = try GroupKeyRing(text: ring.text)
    #expect(read == ring)
    #expect(read.current == 1 << 30 && read.epochs == [1, 1 << 22 | 7, 1 << 30])
    #expect(read.key(of: 1 << 22 | 7) == Array(32..<64) && read.key(of: 3) == nil)
  }

  @Test("Any changed character of the text is detected")
  func damage() throws {
    let text = Array(GroupKeyRing(key: Array(0..<32)).text.utf8)
    for index in text.indices {
      var changed = text
      changed[index] ^= 1
      #expect(throws: ReplicationError.self) {
        try GroupKeyRing(text: String(decoding: changed, as: UTF8.self))
      }
      #expect(throws: ReplicationError.self) {
        try GroupKeyRing(text: String(decoding: text[..<index], as: UTF8.self))
      }
    }
  }

  @Test("Two keys for one epoch are refused, and a refused merge changes nothing")
  func contradictions() throws {
    var ring = GroupKeyRing(key: Array(0..<32))
    var other = ring
    _ = try ring.beginEpoch(Array(32..<64), random: 7)
    _ = try other.beginEpoch(Array(64..<96), random: 7)
    try other.insert(Array(96..<128), epoch: 3)
    let before = ring
    #expect(throws: ReplicationError.self) { try ring.merge(other) }
    #expect(ring == before)
    var newcomer = GroupKeyRing(key: Array(0..<32))
    try newcomer.merge(other)
    #expect(newcomer == other)
  }

  @Test(
    "Two members that begin an epoch at once create two: both are kept, and the greater one is used")
  func concurrentEpochs() throws {
    var (left, right) = (GroupKeyRing(key: Array(0..<32)), GroupKeyRing(key: Array(0..<32)))
    let first = try left.beginEpoch(Array(32..<64), random: 7)
    let second = try right.beginEpoch(Array(64..<96), random: 8)
    #expect(first != second)
    let (before, other) = (left, right)
    try left.merge(other.only([second]))
    try right.merge(before.only([first]))
    #expect(left == right && left.epochs == [1, first, second] && left.current == second)
    #expect(left.checks == right.checks && left.checks.map(\.epoch) == left.epochs)
    // The next one is greater than both.
    #expect(try left.beginEpoch(Array(96..<128), random: 0) > second)
  }

  @Test("A ring in a log shows no key")
  func secrecy() {
    let ring = GroupKeyRing(key: [UInt8](repeating: 0xAB, count: 32))
    var dumped = ""
    dump(ring, to: &dumped)
    for text in ["\(ring)", String(reflecting: ring), dumped] {
      #expect(!text.contains("171") && !text.contains("abab"))
    }
  }
}
