import Foundation
import SyncTestSupport
import Testing

@testable import SyncStore

/// Large values of an encrypted store, from its keys to its backup.
@Suite("Large values of an encrypted store")
struct EncryptedBlobStoreTests {
  let host = SimulatedHost(compacting: .onRequest, encrypted: true)
  static let configuration = Configuration(durability: .relaxed, blobThreshold: 1000)
  static let sizes = [1001, 70_000, 5 << 20]

  private func create(_ host: SimulatedHost) throws -> Store {
    let store = try Store.create(on: host, configuration: Self.configuration)
    for size in Self.sizes { try store.put(Key("large \(size)"), secretContent(size)) }
    return store
  }

  private func check(_ store: Store) throws {
    for size in Self.sizes { #expect(try store.get(Key("large \(size)"))?.bytes == secretContent(size)) }
    #expect(try store.verify().isClean)
  }

  private func plainFiles(below path: String = "/store") throws -> [String] {
    try host.storage.files(below: path).filter { Data($0.value).range(of: Data("fidential".utf8)) != nil }
      .map(\.key)
  }

  @Test("are in its blob tier without a byte of plaintext")
  func encrypted() throws {
    let store = try create(host)
    try check(store)
    #expect(try store.blobs.all().count == 3)
    #expect(try plainFiles() == [])
    try store.close()
    try check(try Store.open(on: host, configuration: Self.configuration))
    #expect(try plainFiles() == [])
  }

  @Test("survive a new master key, and the old one decrypts none any more")
  func renewKeys() throws {
    let store = try create(host)
    let report = try store.renewKeys()
    #expect(report.isComplete && report.blobs == 3)
    try check(store)
    #expect(store.journalKeys.ring?.masters.count == 1)
    try store.close()
    try check(try Store.open(on: host, configuration: Self.configuration))
  }

  @Test("are encrypted when the store is encrypted, and decrypted when it is decrypted")
  func encryptAndDecrypt() throws {
    let plain = SimulatedHost(storage: host.storage, compacting: .onRequest, encrypted: false)
    let store = try create(plain)
    let rotten = try store.blobs.put(bytes: secretContent(9999), durable: true)
    let dead = try store.blobs.put(bytes: secretContent(8888), durable: true)
    try store.blobs.remove(dead.hash)
    try host.storage.open("/store/blobs/quarantine/\(rotten.hash)", .create).write(secretContent(50), at: 0)
    #expect(try !plainFiles().isEmpty)
    #expect(try store.encrypt(with: SimulatedHost.passphrase).isComplete)
    #expect(try plainFiles() == [])
    try check(store)
    try store.close()
    let sealed = try Store.open(on: host, configuration: Self.configuration)
    try check(sealed)
    let report = try sealed.decrypt()
    #expect(report.isComplete && report.blobs == 4)
    try sealed.close()
    try check(try Store.open(on: plain, configuration: Self.configuration))
  }

  @Test(
    "are intact under the old or the new keys, at whatever call a rekey is killed or loses power (F12)"
  )
  func interrupted() throws {
    var number = 1
    let large = secretContent(5 << 20)
    while true {
      let host = SimulatedHost(seed: UInt64(number), compacting: .onRequest, encrypted: true)
      let store = try Store.create(on: host, configuration: Self.configuration)
      let sizes = [1001, 70_000]
      for size in sizes { try store.put(Key("large \(size)"), secretContent(size)) }
      let writer = try store.blobs.writer()
      try writer.append(large)
      _ = try writer.finish(durable: true)
      try store.close()
      let plan = FaultPlan()
      let dying = try Store.open(on: host, configuration: Self.configuration, failing: plan)
      let opening = plan.calls
      plan.fail(number: number, forever: true)
      let isDone = (try? dying.renewKeys()) != nil
      let isOver = plan.calls - opening < number
      if isOver { #expect(isDone) }
      if number % 2 == 0 { host.killProcesses() } else { host.losePower(seed: UInt64(number)) }
      let next = try Store.open(on: host, configuration: Self.configuration)
      for round in 0..<2 {
        for size in sizes {
          #expect(try next.get(Key("large \(size)"))?.bytes == secretContent(size), "call \(number)")
        }
        #expect(try next.blobs.put(bytes: large, durable: false).size == 5 << 20)
        #expect(try next.verify().isClean, "call \(number)")
        if round == 0 { #expect(try next.finishRekeying().isComplete, "call \(number)") }
      }
      if isOver { break }
      number = number < 12 ? EachCall.after(number) : EachCall.longAfter(number)
    }
    #expect(number > 120)
  }

  @Test("stay encrypted in a backup, which is restored without a passphrase")
  func backup() throws {
    let store = try create(host)
    #expect(try store.backUp(to: BackupTests.file).blobs == 3)
    try store.put("another", secretContent(2000))
    let second = try store.backUp(to: BackupTests.file)
    #expect(!second.isFull && second.blobs == 1)
    let file = try host.storage.open(BackupTests.file, .readOnly)
    let bytes = Data(try file.read(file.status().size, at: 0))
    for hidden in [Data("fidential".utf8)] + Self.sizes.map({ Data(SHA256.hash(secretContent($0))) }) {
      #expect(bytes.range(of: hidden) == nil)
    }
    try Store.verifyBackup(BackupTests.file, host.storage)
    let report = try Store.restore(
      from: BackupTests.file, to: "/restored", state: nil, replacing: false, environment: host.environment)
    #expect(report.blobs == 4 && report.missingBlobs.isEmpty)
    let restored = try Store.open(
      at: "/restored", configuration: host.configured(Self.configuration), environment: host.environment)
    try check(restored)
    #expect(try restored.get("another")?.bytes == secretContent(2000))
  }

  @Test("that are missing are listed in a backup, and included once they have arrived")
  func missing() throws {
    let store = try create(host)
    let blob = BlobReference(hash: BlobHash(sha256: SHA256.hash(secretContent(70_000))), size: 70_000)
    #expect(try store.blobs.remove(blob.hash))
    let first = try store.backUp(to: BackupTests.file)
    #expect(first.blobs == 2 && first.missingBlobs.map(\.size) == [70_000])
    #expect(first.missingBlobs.first?.hash != blob.hash)
    _ = try store.blobs.put(bytes: secretContent(70_000), durable: true)
    let second = try store.backUp(to: BackupTests.file)
    #expect(second.blobs == 1 && second.missingBlobs.isEmpty)
  }
}

/// The golden object of `schemas/vectors/sealed-blob.json`; its bytes were decrypted by a second
/// implementation of the schema.
@Suite("The golden encrypted object")
struct GoldenEncryptedBlobTests {
  struct Vector: Codable, Equatable {
    var store: String
    var secret: String
    var master: String
    var generation: UInt32
    var salt: String
    var content: String
    var hash: String
    var name: String
    var object: String
  }

  static let path = GoldenSegmentTests.path.deletingLastPathComponent().appending(path: "sealed-blob.json")

  static func written() throws -> Vector {
    let keys = try KeysUnderTest(seed: 9)
    let ring = keys.ringNow
    let content = Array("content 0123456789 ".utf8)
    let bytes = (0..<65_600).map { content[$0 % content.count] }
    let reference = BlobReference(hash: BlobHash(sha256: SHA256.hash(bytes)), size: UInt64(bytes.count))
    let salt = [UInt8](0xA0...0xAF)
    let cipher = try #require(keys.present.cipher(salt: salt))
    return Vector(
      store: ring.store.description, secret: Hex.string(of: ring.secret.copy()),
      master: Hex.string(of: try #require(ring.masters[1]).copy()), generation: 1, salt: Hex.string(of: salt),
      content: "65,600 bytes of \"content 0123456789 \" again and again",
      hash: reference.hash.description, name: keys.present.name(of: reference.hash).description,
      object: Hex.string(of: BlobEncryptor.object(bytes, reference: reference, cipher: cipher)))
  }

  @Test("is what this program writes")
  func writing() throws {
    let golden = try JSONDecoder().decode(Vector.self, from: Data(contentsOf: Self.path))
    #expect(try Self.written() == golden)
  }

  @Test("has the same bytes whether it is written in one piece or several")
  func pieces() throws {
    let golden = try Self.written()
    let keys = try KeysUnderTest(seed: 9)
    let cipher = try #require(keys.present.cipher(salt: [UInt8](0xA0...0xAF)))
    let content = Array("content 0123456789 ".utf8)
    let bytes = (0..<65_600).map { content[$0 % content.count] }
    for size in [1, 7, 65_535, 65_536, 65_537, 100_000] where size > 1000 || size == 7 {
      var sealing = BlobEncryptor(cipher)
      var object: [UInt8] = []
      for start in stride(from: 0, to: bytes.count, by: size) {
        object += sealing.encrypt(Array(bytes[start...].prefix(size)))
      }
      object += sealing.finish()
      #expect(golden.object.hasSuffix(Hex.string(of: object)))
    }
  }
}
