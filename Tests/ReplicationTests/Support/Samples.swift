import Foundation
import Replication
import SyncStore
import SyncTestSupport

/// One message of each kind, with distinct fields, and the golden vectors they are checked against.
enum Samples {
  static func bytes(_ count: Int, from first: UInt8) -> [UInt8] { (0..<count).map { first &+ UInt8($0) } }
  static let store = StoreID(bytes: bytes(16, from: 0x10))!
  static let left = ActorID(bytes: bytes(16, from: 0x20))!
  static let right = ActorID(bytes: bytes(16, from: 0x30))!
  static let mark = RoundMark(bytes: bytes(16, from: 0x40))!
  static let digest = StateDigest(bytes: bytes(16, from: 0x50))!
  static let hash = BlobHash(bytes: bytes(32, from: 0x60))!
  static let vector = VersionVector([left: 5, right: 300])
  static let cursor = Cursor(position: 130, mark: mark, closed: true)
  static let wall: UInt64 = 1_700_000_000_123

  static let summary = ReplicaSummary(
    store: store, actor: left, sequence: 5, vector: vector, floor: VersionVector([right: 2]),
    horizon: Stamp(milliseconds: 1_600_000_000_000, counter: 7), position: 400)

  static let hello = Hello(
    compatibleFeatures: 6, summary: summary, wallMilliseconds: wall, digest: digest,
    directions: .receives, cursor: cursor)

  static let helloWithFeatures = Hello(
    compatibleFeatures: SessionFeature.live | SessionFeature.groupKeys, summary: summary,
    wallMilliseconds: wall, digest: digest, directions: .both,
    epochs: [
      EpochCheck(epoch: 1, check: bytes(8, from: 0xE0)),
      EpochCheck(epoch: 1 << 22, check: bytes(8, from: 0xF0)),
    ])

  static let accept = JoinAccept(
    mac: bytes(32, from: 0x90), store: store, storeName: "fleet", inviterName: "port",
    memberName: "starboard",
    right: .readOnly, groupKeys: Array("1 key".utf8))

  static let messages: [(name: String, message: Message)] = [
    ("hello", .hello(hello)),
    ("foreignHello", .foreignHello(2...9)),
    ("want", .want(cursor)),
    ("wantAll", .want(nil)),
    ("roundBegin", .roundBegin(RoundBegin(mark: mark, position: 400, records: 12))),
    ("batch", .batch(index: 3, encrypted: [1, 2, 3])),
    ("batchReceived", .batchReceived(position: 300)),
    (
      "roundClose",
      .roundClose(
        RoundEnd(
          mark: mark, position: 400, batches: 4, vector: vector, floor: VersionVector(), horizon: .zero))
    ),
    (
      "receipt",
      .receipt(
        Receipt(
          received: 400, state: DigestedState(position: 77, vector: vector, digest: digest, at: wall),
          missingBlobs: 1))
    ),
    (
      "blobWant",
      .blobWant([BlobNeed(hash: hash, size: 1 << 20, offset: 4096), BlobNeed(hash: hash, size: 5)])
    ),
    ("blobRange", .blobRange(BlobRange(hash: hash, offset: 4096, isLast: true, encrypted: [7, 8, 9]))),
    ("blobUnavailable", .blobUnavailable(hash)),
    ("ping", .ping(258)), ("pong", .pong(258)), ("goodbye", .goodbye),
    ("refuse", .refuse(Refusal(.clockSkew, "two hours"))),
    (
      "joinRequest",
      .joinRequest(
        JoinRequest(invitation: bytes(8, from: 0x70), deviceName: "starboard", mac: bytes(32, from: 0x80)))
    ),
    ("joinAccept", .joinAccept(accept)),
    ("helloWithFeatures", .hello(helloWithFeatures)),
    ("live", .live),
    (
      "burst",
      .liveUpdate(
        LiveUpdate(
          mark: mark, position: 401, records: 1, vector: VersionVector([left: 6]), floor: VersionVector(),
          horizon: .zero))
    ),
    ("burstEnd", .liveUpdateEnd(batches: 1)),
    ("burstReceived", .liveUpdateReceived(position: 401, missingBlobs: 2)),
    ("groupKeys", .groupKeys(Array("1 key".utf8))),
    ("stateClaim", .stateClaim(claim)),
    ("digestGroups", .digestGroups(DigestGroups(at: wall, digests: digests(0)))),
    ("groupBuckets", .groupBuckets([GroupBuckets(group: 2, digests: digests(2))])),
    ("bucketPrints", .bucketPrints(prints)),
    (
      "differingRecords",
      .differingRecords(
        DifferingRecords(hashes: [0x0102_0304_0506_0708, 0x1112_1314_1516_1718], encrypted: [1, 2, 3]))
    ),
    ("repaired", .repaired(keys: 300, isRenewed: true)),
    ("keysWant", .keysWant(prints)),
    (
      "keyStates",
      .keyStates(
        KeyStates(
          buckets: [0x0203, 0xFFFF], hashes: [0x0102_0304_0506_0708, 0x1112_1314_1516_1718],
          encrypted: [1, 2, 3]))
    ),
    ("helloThatRepairs", .hello(helloThatRepairs)),
    ("recipeWant", .recipeWant(BlobNeed(hash: hash, size: 5 << 20, offset: 4096))),
    ("recipe", .recipe(EncryptedRecipe(hash: hash, offset: 4096, encrypted: [7, 8, 9]))),
    (
      "partsWant",
      .partsWant(
        BlobPartsWanted(
          hash: hash, size: 1 << 20,
          parts: [BlobPart(offset: 4096, count: 100), BlobPart(offset: 8192, count: 5)]))
    ),
    ("recipeUnavailable", .recipeUnavailable(hash)),
    ("helloOfSomeKeys", .hello(helloOfSomeKeys)),
    (
      "scopeWant",
      .scopeWant(
        ScopeWant(
          keys: MissingScope(wanted: scope(["a/", "b/"]), held: scope(["a/"])),
          cursor: Cursor(position: 300, mark: mark, closed: false)))
    ),
    (
      "scopeWantOfAll",
      .scopeWant(ScopeWant(keys: MissingScope(wanted: nil, held: scope(["a/"])), cursor: nil))
    ),
    (
      "holdingsWant",
      .holdingsWant(
        HoldingsWanted(
          number: 7, blobs: [BlobReference(hash: hash, size: 1 << 20), BlobReference(hash: hash, size: 5)]))
    ),
    (
      "holdings",
      .holdings(
        HoldingsStated(
          number: 7, statement: .init(covered: VersionVector([left: 6]), held: [true, false])))
    ),
    ("holdingsUnsaid", .holdings(HoldingsStated(number: 8, statement: nil))),
  ]

  static func scope(_ prefixes: [String]) -> KeyScope {
    guard let scope = try? KeyScope(prefixes: prefixes) else { preconditionFailure("prefixes of a sample") }
    return scope
  }

  static let helloOfSomeKeys: Hello = {
    var summary = Self.summary
    summary.scope = scope(["boats/", "crew/"])
    return Hello(
      summary: summary, wallMilliseconds: wall, digest: digest,
      directions: .both)
  }()

  static let chunks = [
    BlobChunk(count: 20_000, name: bytes(16, from: 0xC0)), BlobChunk(count: 300, name: bytes(16, from: 0xD0)),
  ]

  static let helloThatRepairs = Hello(
    compatibleFeatures: SessionFeature.repair, summary: summary, wallMilliseconds: wall, digest: digest,
    directions: .both)

  static let claim = StateClaim(DigestedState(position: 77, vector: vector, digest: digest, at: wall))

  /// Digests of groups or buckets: number n has n in its first byte and the salt in its last.
  static func digests(_ salt: UInt8) -> [StateDigest] {
    (0..<DigestGroups.count).map { number in
      StateDigest(bytes: [UInt8(number)] + [UInt8](repeating: 0, count: 14) + [salt])!
    }
  }

  static let prints = BucketPrints(
    buckets: [3, 0x0405, 0xFFFF],
    prints: [
      RecordFingerprint(keyHash: 0x1122_3344_5566_0003, state: .live, content: 0x0102_0304_0506_0708),
      RecordFingerprint(keyHash: 0x2122_3344_5566_0003, state: .dead, content: 0),
      RecordFingerprint(keyHash: 0x0000_0000_0001_FFFF, state: .newer, content: 0),
    ])

  static let records = RecordCodec.Payload(
    position: 410,
    records: [
      PositionedRecord(
        position: 400,
        record: Record(
          version: Version(stamp: Stamp(milliseconds: wall, counter: 2), dot: Dot(actor: left, sequence: 5)),
          type: .string, key: Array("greeting".utf8), content: .inline(Array("hello".utf8)), continues: true)),
      PositionedRecord(
        position: 401,
        record: Record(
          version: Version(stamp: Stamp(milliseconds: wall, counter: 3), dot: Dot(actor: left, sequence: 6)),
          context: CausalContext(
            base: Dot(actor: right, sequence: 299), open: [Dot(actor: right, sequence: 300)]),
          key: Array("old".utf8), content: .tombstone)),
      PositionedRecord(
        position: 409,
        record: Record(
          version: Version(
            stamp: Stamp(milliseconds: wall - 5, counter: 0), dot: Dot(actor: right, sequence: 301)),
          deadline: wall + 1000, type: ValueType(rawValue: 200), key: [0xFF],
          content: .blob(BlobReference(hash: hash, size: 70_000, metadata: [1, 2])))),
    ],
    present: [1, 2, 3, 9].map { Dot(actor: left, sequence: $0) } + [Dot(actor: right, sequence: 300)])

  static let invitation = Invitation(
    addresses: ["192.0.2.1:7420", "[2001:db8::1]:7420"], inviter: DeviceID(bytes: bytes(32, from: 0xA0))!,
    secret: bytes(16, from: 0xC0), expires: wall + 600_000, right: .readWrite, storeName: "fleet")
  static let proof = PairingProof(
    exporter: bytes(32, from: 0xD0), inviter: DeviceID(bytes: bytes(32, from: 0xA0))!,
    joiner: DeviceID(bytes: bytes(32, from: 0xB0))!)

  /// The product's encodings of the samples, by name.
  static var vectors: [String: String] {
    var vectors: [String: String] = [:]
    for (name, message) in messages { vectors[name] = Hex.string(of: message.frame.bytes) }
    vectors["records"] = Hex.string(of: RecordCodec.encode(records))
    vectors["recipeChunks"] = Hex.string(of: RecipeCodec.encode(chunks))
    vectors["invitation"] = invitation.text
    vectors["invitationID"] = Hex.string(of: invitation.id)
    vectors["joinerProof"] = Hex.string(
      of: proof.ofJoiner(secret: invitation.secret, deviceName: "starboard"))
    vectors["inviterProof"] = Hex.string(of: proof.ofInviter(secret: invitation.secret, accept: accept))
    var digest = StateDigest()
    for positioned in records.records where !positioned.record.isTombstone { digest.add(positioned.record) }
    vectors["digestOfRecords"] = digest.description
    return vectors
  }

  /// The content of `schemas/vectors/messages.json`.
  static func golden() throws -> [String: String] {
    try Checkout.vector("messages.json")
  }
}
